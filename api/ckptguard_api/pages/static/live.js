// Shows what goes on without a reload: one stream of events a page; what an event concerns is fetched again.
// Where no stream can be had the parts are fetched every few seconds. See templates/live.html, live_parts.js.
"use strict";

(() => {
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

  class Live {
    constructor(bar) {
      this.bar = bar;
      this.words = bar.querySelector("[data-live-state]");
      this.button = bar.querySelector("[data-live-pause]");
      const elements = [...document.querySelectorAll("[data-live-refresh], [data-live-tell]")];
      this.parts = elements.map((element) => new LivePart(element, () => this.endIfOver()));
      this.page = "livePage" in bar.dataset ? new LivePage(bar) : null;
      if (this.page !== null) this.parts.push(this.page);
      this.atLeastMs = Number(bar.dataset.liveAtLeast || 0);
      this.ageing = null;
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
      if (this.atLeastMs > 0) this.ageing = window.setInterval(() => this.page.refreshSoon(), this.atLeastMs);
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
      window.clearInterval(this.ageing);
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
      if (kind !== "progress") {
        if (Number(message.lastEventId) <= Number(this.after)) return; // the page was made after it
        this.after = message.lastEventId;
      }
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

  const bar = document.querySelector("[data-live]");
  if (bar !== null) {
    const live = new Live(bar); // before other scripts draw into what the service sent
    document.addEventListener("DOMContentLoaded", () => live.start());
  }
})();
