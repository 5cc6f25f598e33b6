// Shows what goes on without a reload: one stream of events a page; what an event concerns is fetched again.
// Where no stream can be had the parts are fetched every few seconds. See templates/live.html.
"use strict";

(() => {
  const AT_MOST_EVERY_MS = 1000;
  const POLL_EVERY_MS = 5000;
  const NEW_STREAM_AFTER_MS = 30000;
  const WORDS = {
    connecting: "Connecting …",
    live: "Live: this page follows what happens.",
    lost: "Connection lost; trying again.",
    polling: "No stream; asking every 5 s.",
    paused: "Paused: nothing new is shown.",
    over: "Finished: nothing more will change here by itself.",
  };

  const CONTROLS = "a[href], button, input, select, textarea, summary, [tabindex='0']";

  function keyOf(control) {
    return control.id || control.getAttribute("href") || control.name || control.textContent.trim();
  }

  // One part of the page that is fetched again, at most once a second (or every `data-live-every` ms).
  class Part {
    constructor(element, onShown) {
      this.element = element;
      this.onShown = onShown;
      this.address = element.dataset.liveRefresh; // none: its own script is told, and fetches what it wants
      this.everyMs = Number(element.dataset.liveEvery || AT_MOST_EVERY_MS);
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
        if (this.address === undefined) this.element.dispatchEvent(new CustomEvent("live"));
        else await this.fetchAgain();
      } catch (error) {
        if (!(error instanceof TypeError)) throw error; // what `fetch` says where nobody answers
      } finally {
        this.isAsking = false;
      }
      if (this.isStale) this.refreshSoon();
    }

    async fetchAgain() {
      const options = { headers: { "HX-Request": "true" }, redirect: "manual", cache: "no-store" };
      const answer = await fetch(this.address, options);
      if (answer.ok) this.show(await answer.text());
      // Signed out, or not there any more: the page itself says it. Anything else may pass.
      else if (answer.type === "opaqueredirect" || [403, 404].includes(answer.status)) window.location.reload();
    }

    show(text) {
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
      const key = keyOf(one);
      return { key, nth: this.controls(key).indexOf(one) };
    }

    controls(key) {
      return [...this.element.querySelectorAll(CONTROLS)].filter((one) => keyOf(one) === key);
    }

    get isOver() {
      return this.address === undefined || this.element.querySelector("[data-live-over]") !== null;
    }
  }

  class Live {
    constructor(bar) {
      this.bar = bar;
      this.words = bar.querySelector("[data-live-state]");
      this.button = bar.querySelector("[data-live-pause]");
      const elements = [...document.querySelectorAll("[data-live-refresh], [data-live-tell]")];
      this.parts = elements.map((element) => new Part(element, () => this.endIfOver()));
      this.after = bar.dataset.liveAfter;
      this.source = null;
      this.poll = null;
      this.again = null;
      this.isPaused = false;
      this.wasOpen = false;
    }

    start() {
      this.button.hidden = false;
      this.button.addEventListener("click", () => this.pauseOrGoOn());
      window.addEventListener("pagehide", () => this.close());
      window.addEventListener("pageshow", (event) => event.persisted && this.goOn());
      // Browsers open few connections to one place: a page that nobody looks at keeps none.
      document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.goOn()));
      if (!document.hidden) this.open();
    }

    say(state) {
      this.bar.dataset.liveIs = state;
      if (this.words.textContent !== WORDS[state]) this.words.textContent = WORDS[state];
    }

    pauseOrGoOn() {
      this.isPaused = !this.isPaused;
      this.button.textContent = this.isPaused ? "Go on" : "Pause";
      this.button.setAttribute("aria-pressed", String(this.isPaused));
      if (this.isPaused) {
        this.close();
        this.say("paused");
      } else {
        this.goOn();
      }
    }

    goOn() {
      if (this.isPaused || this.source !== null || this.bar.dataset.liveIs === "over") return;
      this.refreshAll();
      this.open();
    }

    open() {
      this.close();
      if (!window.EventSource) {
        this.startPolling();
        return;
      }
      this.say("connecting");
      const address = new URL(this.bar.dataset.live, window.location.href);
      address.searchParams.set("after", this.after);
      this.source = new EventSource(address);
      this.source.addEventListener("open", () => this.onOpen());
      this.source.addEventListener("error", () => this.onError());
      for (const kind of this.bar.dataset.liveKinds.split(" ")) {
        this.source.addEventListener(kind, (message) => this.onEvent(kind, message));
      }
    }

    close() {
      this.source?.close();
      this.source = null;
      window.clearInterval(this.poll);
      window.clearTimeout(this.again);
      this.poll = null;
      this.again = null;
      this.wasOpen = false;
    }

    onOpen() {
      // Events come again after `Last-Event-ID`; progress, which is not kept, does not.
      if (this.wasOpen) this.refreshAll();
      this.wasOpen = true;
      window.clearInterval(this.poll);
      this.poll = null;
      this.say("live");
    }

    onError() {
      if (this.source.readyState !== EventSource.CLOSED) {
        this.startPolling("lost"); // the browser comes again by itself
        return;
      }
      // Refused: too many streams, a proxy that lets none through, or signed out, which the next fetch finds.
      this.close();
      this.refreshAll();
      this.startPolling();
      this.again = window.setTimeout(() => this.open(), NEW_STREAM_AFTER_MS);
    }

    onEvent(kind, message) {
      if (message.lastEventId) this.after = message.lastEventId;
      const event = JSON.parse(message.data);
      for (const part of this.parts) if (part.concerns(kind, event)) part.refreshSoon();
    }

    startPolling(state = "polling") {
      this.say(state);
      if (this.poll === null) this.poll = window.setInterval(() => this.refreshAll(), POLL_EVERY_MS);
    }

    refreshAll() {
      for (const part of this.parts) part.refreshSoon();
    }

    endIfOver() {
      if (this.parts.length === 0 || !this.parts.every((part) => part.isOver)) return;
      this.close();
      this.button.hidden = true;
      this.say("over");
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    const bar = document.querySelector("[data-live]");
    if (bar !== null) new Live(bar).start();
  });
})();
