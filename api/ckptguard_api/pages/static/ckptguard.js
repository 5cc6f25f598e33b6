// What every page does: nothing but what HTML cannot. Pages work without it.
"use strict";

// An error in answer to a form or to a part of a page is a page of its own: show it. So is the one to sign in,
// to which somebody is led whose token ended meanwhile.
document.addEventListener("htmx:beforeOnLoad", (event) => {
  const { status, responseURL } = event.detail.xhr;
  if (status >= 400 || new URL(responseURL).pathname === "/ui/sign-in") {
    event.detail.shouldSwap = false;
    const isAddress = event.detail.elt.closest("[hx-push-url=true]") !== null;
    if (isAddress) window.location.assign(event.detail.pathInfo.finalRequestPath);
    else window.location.reload();
  }
});

// Ages go on while a page is open: as `ago` of wording.py says them, by the clock of the service.
{
  const UNITS = [[86400, "days"], [3600, "h"], [60, "min"]];
  const EVERY_MS = 5000;
  const ahead = Date.parse(document.documentElement.dataset.now) - Date.now();

  function lengthText(seconds) {
    for (const [size, unit] of UNITS) if (seconds >= 2 * size) return `${Math.round(seconds / size)} ${unit}`;
    return `${Math.round(seconds)} s`;
  }

  function tellAges() {
    const marked = document.getSelection();
    for (const time of document.querySelectorAll("time[datetime]")) {
      if (marked !== null && !marked.isCollapsed && marked.containsNode(time, true)) continue;
      const seconds = (Date.now() + ahead - Date.parse(time.dateTime)) / 1000;
      const text = seconds >= 0 ? `${lengthText(seconds)} ago` : `in ${lengthText(-seconds)}`;
      if (time.textContent !== text) time.textContent = text;
    }
  }

  window.setInterval(() => document.hidden || tellAges(), EVERY_MS);
  document.addEventListener("visibilitychange", () => document.hidden || tellAges());
}
