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
