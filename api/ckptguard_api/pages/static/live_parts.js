// What of a page is fetched again, and how it is put in its place: never under the hands of whoever reads it.
"use strict";

const LIVE_AT_MOST_EVERY_MS = 1000;
const LEAVING_MS = 10_000;
const HELD_BACK = "Something changed: it is shown when you leave the part that you are at.";
const LIVE_CONTROLS = "a[href], button, input, select, textarea, summary, [tabindex='0']";

function liveKeyOf(control) {
  return control.id || control.getAttribute("href") || control.name || control.textContent.trim();
}

let leftAt = -Infinity;
window.addEventListener("beforeunload", () => (leftAt = Date.now()));

/** Load the page again, unless somebody is on the way to another one. */
function reload() {
  if (Date.now() - leftAt > LEAVING_MS) window.location.reload();
}

/** Whether text inside an element is marked, perhaps to be copied. */
function isMarked(element) {
  const marked = document.getSelection();
  return marked !== null && !marked.isCollapsed && marked.containsNode(element, true);
}

/** Whether a field holds what somebody put there. */
function isFilledIn(field) {
  if (field.tagName !== "SELECT") return field.value !== field.defaultValue;
  const chosen = [...field.options].findIndex((option) => option.defaultSelected);
  return field.selectedIndex !== Math.max(0, chosen);
}

// One element that is fetched again by itself, at most once a second (or every `data-live-every` ms).
class LivePart {
  constructor(element, onShown) {
    this.element = element;
    this.onShown = onShown;
    this.address = element.dataset.liveRefresh; // none: its own script is told, and fetches what it wants
    this.everyMs = Number(element.dataset.liveEvery || LIVE_AT_MOST_EVERY_MS);
    this.about = (element.dataset.liveAbout || "").split(" ").filter(Boolean);
    this.on = (element.dataset.liveOn || "").split(" ").filter(Boolean);
    this.fetchedAt = 0;
    this.timer = null;
    this.isAsking = false;
    this.isStale = false;
  }

  concerns(kind, event) {
    if (this.on.length > 0 && !this.on.some((beginning) => kind.startsWith(beginning))) return false;
    const about = [`validation:${event.validation_id}`, `checkpoint:${event.checkpoint_id}`];
    return this.about.length === 0 || this.about.some((one) => about.includes(one));
  }

  refreshSoon() {
    this.isStale = true;
    if (this.timer !== null || this.isAsking) return;
    const wait = Math.max(0, this.fetchedAt + this.everyMs - Date.now());
    this.timer = window.setTimeout(() => this.refresh(), wait);
  }

  async refresh() {
    this.timer = null;
    this.isAsking = true;
    this.isStale = false;
    this.fetchedAt = Date.now();
    try {
      await this.fetchAgain();
    } finally {
      this.isAsking = false;
    }
    if (this.isStale) this.refreshSoon();
  }

  async fetchAgain() {
    if (this.address === undefined) {
      this.element.dispatchEvent(new CustomEvent("live"));
      return;
    }
    const answer = await this.ask(this.address, { "HX-Request": "true" });
    if (answer !== null) this.show(await answer.text());
  }

  /** Return an answer with something to show, or null. */
  async ask(address, headers) {
    const options = { headers, redirect: "manual", cache: "no-store" };
    const answer = await fetch(address, options).catch(() => null); // nobody answers
    if (answer === null || answer.ok) return answer;
    // Signed out, or not there any more: the page itself says it. Anything else may pass.
    if (answer.type === "opaqueredirect" || [403, 404].includes(answer.status)) reload();
    return null;
  }

  show(text) {
    if (isMarked(this.element)) {
      document.addEventListener("selectionchange", () => this.refreshSoon(), { once: true });
      return;
    }
    const open = [...this.element.querySelectorAll("details[open][id]")].map((one) => one.id);
    const focused = this.placeOfFocus();
    window.htmx.swap(this.element, text, { swapStyle: "innerHTML" });
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused !== null) this.controls(focused.key)[focused.nth]?.focus({ preventScroll: true });
    this.onShown();
  }

  // Whoever goes by keyboard stays where they were: at the same of the controls that lead to the same place.
  placeOfFocus() {
    const one = document.activeElement;
    if (!this.element.contains(one)) return null;
    const key = liveKeyOf(one);
    return { key, nth: this.controls(key).indexOf(one) };
  }

  controls(key) {
    return [...this.element.querySelectorAll(LIVE_CONTROLS)].filter((one) => liveKeyOf(one) === key);
  }

  get isOver() {
    return this.address === undefined || this.element.querySelector("[data-live-over]") !== null;
  }
}

// Parts of the page itself (`data-live-part`): fetched as one page, each put in its place where it became another.
class LivePage extends LivePart {
  constructor(bar) {
    super(bar, () => {});
    this.news = bar.querySelector("[data-live-news]");
    this.parts = [...document.querySelectorAll("[data-live-part]")];
    this.shown = new Map(this.parts.map((part) => [part.id, LivePage.sense(part)]));
    this.waiting = new Map(); // what came while somebody was at the part
    this.known = { address: null, etag: null };
    this.turns = 0; // of htmx: an answer that was asked for before the last one is of another page
    this.isPressed = false;
    this.listen();
  }

  /** Return what a part says but for its ages, which go on by themselves (ckptguard.js). */
  static sense(part) {
    const markup = new XMLSerializer();
    const text = [...part.childNodes].map((one) => markup.serializeToString(one)).join("");
    return text.replace(/(<time[^>]*>|<span class="moment">)[^<]*/g, "$1");
  }

  listen() {
    for (const name of ["htmx:beforeRequest", "htmx:afterSettle"]) {
      document.addEventListener(name, (event) => this.onFilter(event));
    }
    for (const name of ["focusout", "selectionchange", "toggle"]) {
      document.addEventListener(name, () => this.takeWaitingSoon(), true);
    }
    document.addEventListener("pointerdown", () => (this.isPressed = true));
    for (const name of ["pointerup", "pointercancel", "pointermove"]) {
      document.addEventListener(name, (event) => {
        if (!this.isPressed || event.buttons > 0) return;
        this.isPressed = false;
        this.takeWaitingSoon();
      });
    }
  }

  onFilter(event) {
    if (event.detail.xhr === undefined) return; // a part that was fetched here
    this.turns += 1;
    const part = event.detail.target; // a part as a whole; of what is added to one, nothing is taken away again
    if (event.type !== "htmx:afterSettle" || !this.parts.includes(part)) return;
    this.shown.set(part.id, LivePage.sense(part));
    this.waiting.delete(part.id);
  }

  async fetchAgain() {
    const turn = this.turns;
    const address = window.location.href.split("#")[0];
    const isKnown = this.known.address === address && this.known.etag !== null;
    const answer = await this.ask(address, isKnown ? { "If-None-Match": this.known.etag } : {});
    if (answer === null) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (turn !== this.turns || address !== window.location.href.split("#")[0]) {
      this.isStale = true;
      return;
    }
    this.known = { address, etag: answer.headers.get("ETag") };
    this.take(page);
  }

  take(page) {
    const fresh = new Map([...page.querySelectorAll("[data-live-part]")].map((part) => [part.id, part]));
    if (fresh.size !== this.parts.length || !this.parts.every((part) => fresh.has(part.id))) {
      this.beginAnew();
      return;
    }
    for (const part of this.parts) {
      if (LivePage.sense(fresh.get(part.id)) === this.shown.get(part.id)) this.waiting.delete(part.id);
      else this.waiting.set(part.id, fresh.get(part.id));
    }
    this.takeWaiting();
  }

  /** Show the page as it is now: it has other parts, as with the first checkpoint of a run. */
  beginAnew() {
    if (this.parts.some((part) => this.isBusy(part, part))) this.say("There is more to show: reload the page.");
    else reload();
  }

  takeWaitingSoon() {
    if (this.waiting.size === 0) return;
    window.clearTimeout(this.later);
    this.later = window.setTimeout(() => this.takeWaiting(), 300);
  }

  takeWaiting() {
    const before = this.lines();
    for (const part of this.parts) {
      const fresh = this.waiting.get(part.id);
      if (fresh !== undefined && !this.isBusy(part, fresh)) this.put(part, fresh);
    }
    const changed = [...this.lines()].filter(([key]) => !before.has(key)).map(([, words]) => words);
    if (this.waiting.size > 0) this.say(HELD_BACK);
    else if (changed.length > 0) this.say(`Updated: ${changed.join("; ")}`);
    else if (this.news.textContent === HELD_BACK) this.say("");
  }

  /** Whether somebody reads, marks or fills in what would be replaced. */
  isBusy(part, fresh) {
    if (this.isPressed || document.querySelector("dialog[open]") !== null) return true;
    if (part.contains(document.activeElement) || isMarked(part)) return true;
    const fields = [...part.querySelectorAll("input[name]:not([type=hidden]), select[name], textarea[name]")];
    const told = (field) => fresh.querySelector(`[name="${field.name}"]`)?.value;
    return fields.some((field) => isFilledIn(field) && told(field) !== field.value);
  }

  put(part, fresh) {
    this.waiting.delete(part.id);
    this.shown.set(part.id, LivePage.sense(fresh));
    const open = [...part.querySelectorAll("details[open]")].map((one) => one.id || one.className);
    const aside = [...part.querySelectorAll(".wide")].map((one) => one.scrollLeft);
    part.replaceChildren(...fresh.childNodes);
    for (const one of part.querySelectorAll("details")) if (open.includes(one.id || one.className)) one.open = true;
    [...part.querySelectorAll(".wide")].forEach((one, place) => (one.scrollLeft = aside[place] ?? 0));
    window.htmx.process(part);
    part.dispatchEvent(new CustomEvent("live:put", { bubbles: true }));
  }

  /** Return the lines that are said when they become others: as they are, by what they are without ages. */
  lines() {
    const words = (line, left) => {
      const copy = line.cloneNode(true);
      for (const one of copy.querySelectorAll(left)) one.remove();
      return copy.textContent.replace(/\s+/g, " ").trim();
    };
    const lines = [...document.querySelectorAll("[data-live-line]")];
    return new Map(lines.map((line) => [words(line, "time, [aria-hidden=true]"), words(line, "[aria-hidden=true]")]));
  }

  say(text) {
    if (this.news.textContent !== text) this.news.textContent = text;
  }

  get isOver() {
    return false;
  }
}
