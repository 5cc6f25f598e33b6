"""What a page costs: server time over HTTP, and what a real Chromium asks for until it can be used."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from playwright.sync_api import Browser, BrowserContext, Page

from ckptguard_api.pages.door import COOKIE

_WARM_UP: Final = 3
_SETTLES_MS: Final = 1_500  # after `load`: data that scripts fetch; a stream never ends, so there is no quiet
_TIMEOUT_MS: Final = 30_000

# Notes when the map says that it is ready, points at a cell at once, and notes when its name is shown.
_WATCH_MAP: Final = """
addEventListener("DOMContentLoaded", () => {
  const note = (name) => { window.__times ??= {}; window.__times[name] ??= performance.now(); };
  new MutationObserver(() => {
    const section = document.querySelector("[data-ready=true]");
    if (!section) return;
    if (!window.__times?.ready) {
      note("ready");
      const canvas = section.querySelector("canvas");
      const box = canvas.getBoundingClientRect();
      const middle = {clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true};
      canvas.dispatchEvent(new PointerEvent("pointermove", middle));
    }
    if (/\\.distcp|\\.metadata/.test(section.querySelector(".map-readout")?.textContent ?? "")) note("name");
  }).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true});
});
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTime:
    """Of one page.

    Args:
        p50_ms: Milliseconds from the request to the last byte.
        p95_ms: As above.
        cpu_ms: Of the service's process, on average; what else runs here changes it least.
        gzip_bytes: As they are sent.
    """

    p50_ms: float
    p95_ms: float
    cpu_ms: float
    gzip_bytes: int


@dataclass(kw_only=True)
class View:
    """What one view of a page asked for."""

    requests: int = 0
    bytes_received: int = 0
    _cached: set[str] = field(default_factory=set)

    def listen(self, page: Page) -> None:
        """Count from now on."""
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.requestServedFromCache", lambda event: self._cached.add(event["requestId"]))
        session.on("Network.responseReceived", self._on_response)
        session.on("Network.loadingFinished", self._on_end)

    def _on_response(self, event: dict[str, Any]) -> None:
        if event["response"].get("fromDiskCache"):
            self._cached.add(event["requestId"])
        self.requests += event["requestId"] not in self._cached

    def _on_end(self, event: dict[str, Any]) -> None:
        if event["requestId"] not in self._cached:
            self.bytes_received += int(event["encodedDataLength"])  # with headers, as it was sent


@dataclass(frozen=True, slots=True, kw_only=True)
class MapTimes:
    """Milliseconds from the navigation, each the median and the worst of some visits."""

    ready_ms: tuple[float, float]
    name_ms: tuple[float, float]


@contextmanager
def signed_in(url: str, token: str) -> Iterator[httpx.Client]:
    """Yield a client with the cookie of a browser."""
    with httpx.Client(base_url=url, headers={"Origin": url}, trust_env=False, timeout=60) as client:
        assert client.post("/ui/sign-in", data={"token": token}).status_code == httpx.codes.SEE_OTHER
        yield client


def server_times(
    client: httpx.Client, paths: Sequence[str], *, rounds: int, cpu_s: Callable[[], float]
) -> dict[str, ServerTime]:
    """Ask for every path in turn, again and again; `cpu_s` tells what the service has used so far."""
    times: dict[str, list[float]] = {path: [] for path in paths}
    used: dict[str, float] = dict.fromkeys(paths, 0.0)
    weights: dict[str, int] = {}
    for number in range(_WARM_UP + rounds):
        for path in paths:
            before_s, began = cpu_s(), time.perf_counter()
            answer = client.get(path)
            elapsed = 1000 * (time.perf_counter() - began)
            assert answer.status_code == httpx.codes.OK, f"{path}: {answer.status_code}"
            weights[path] = answer.num_bytes_downloaded
            if number >= _WARM_UP:
                times[path].append(elapsed)
                used[path] += 1000 * (cpu_s() - before_s)
    return {
        path: ServerTime(
            p50_ms=statistics.median(times[path]),
            p95_ms=statistics.quantiles(times[path], n=20, method="inclusive")[-1],
            cpu_ms=used[path] / rounds,
            gzip_bytes=weights[path],
        )
        for path in paths
    }


def viewed(browser: Browser, client: httpx.Client, path: str) -> tuple[View, View]:
    """Open a page with an empty cache, and once more."""
    with _window(browser, client) as page:
        return _view(page, path), _view(page, path)


def _view(page: Page, path: str) -> View:
    view = View()
    view.listen(page)
    page.goto(path, wait_until="load")
    page.wait_for_timeout(_SETTLES_MS)
    return view


def map_times(browser: Browser, client: httpx.Client, path: str, *, visits: int) -> MapTimes:
    """Open a page with a map, each time with an empty cache, and look when the map can be used."""
    found = [_map_time(browser, client, path) for _ in range(visits)]
    ready, name = ([one[key] for one in found] for key in ("ready", "name"))
    return MapTimes(
        ready_ms=(statistics.median(ready), max(ready)), name_ms=(statistics.median(name), max(name))
    )


def _map_time(browser: Browser, client: httpx.Client, path: str) -> dict[str, float]:
    with _window(browser, client) as page:
        page.add_init_script(_WATCH_MAP)
        page.goto(path, wait_until="commit")
        page.wait_for_function("() => window.__times?.name")
        times: dict[str, float] = page.evaluate("() => window.__times")
        return times


@contextmanager
def _window(browser: Browser, client: httpx.Client) -> Iterator[Page]:
    context = _context(browser, client)
    try:
        yield context.new_page()
    finally:
        context.close()


def _context(browser: Browser, client: httpx.Client) -> BrowserContext:
    url = str(client.base_url)
    context = browser.new_context(base_url=url, viewport={"width": 1360, "height": 900})
    context.set_default_timeout(_TIMEOUT_MS)
    context.add_cookies([{"name": COOKIE, "value": client.cookies[COOKIE], "url": url}])
    return context
