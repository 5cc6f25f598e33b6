"""A real Chromium that signs in to a service and takes pictures of its pages."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from playwright.sync_api import Browser, Page, sync_playwright

DESK: Final = (1280, 800)
PHONE: Final = (390, 844)
MAX_HEIGHT: Final = 1080
MARGIN: Final = 12
MAX_BYTES: Final = 200_000
Scheme = Literal["light", "dark"]

_SETTLE: Final = """() => document.getAnimations()
  .filter(one => one.effect.getComputedTiming().endTime !== Infinity).forEach(one => one.finish())"""
# Down to the end of the last piece that is wholly in it: nothing is cut off.
# Down to the end of the last piece that is wholly in it: nothing is cut off.
_END: Final = """(limit) => Math.max(...[...document.querySelectorAll(
    'main p, main tbody tr, main li, main dd, main form, main article, main canvas, .empty, .panel')]
  .map(one => one.getBoundingClientRect().bottom + window.scrollY).filter(bottom => bottom <= limit))"""
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """Somebody who is signed in, in front of a window, with a camera.

    Args:
        page: The window.
        url: Of the service.
        folder: Where pictures go.
    """

    page: Page
    url: str
    folder: Path

    def take(
        self,
        name: str,
        path: str | None = None,
        *,
        scheme: Scheme = "light",
        size: tuple[int, int] = DESK,
        max_height: int = MAX_HEIGHT,
    ) -> None:
        """Take a picture of a page down to its end; without a path, of the one that is open."""
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.emulate_media(color_scheme=scheme)
        if path is not None:
            self.open(path)
        file = self.folder / f"{name}.png"
        height = self.page.evaluate(_END, max_height - MARGIN) + MARGIN
        clip = {"x": 0, "y": 0, "width": size[0], "height": height}
        self.page.evaluate(_SETTLE)
        self.page.screenshot(path=file, full_page=True, clip=clip)
        too_large = "" if file.stat().st_size <= MAX_BYTES else ", TOO LARGE: show less of the page"
        print(f"   {file.name}: {file.stat().st_size / 1000:.0f} kB{too_large}")

    def open(self, path: str) -> None:
        """Open a page, and wait until its scripts have drawn what they fetch."""
        answer = self.page.goto(self.url + path, wait_until="load")
        if answer is None or not answer.ok:
            msg = f"{path}: {answer and answer.status}"
            raise ValueError(msg)
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('.file-map')].every(one => one.dataset.ready === 'true')"
        )
        self.page.wait_for_timeout(300)

    def sign_in(self, token: str) -> None:
        """Sign in as a person does."""
        self.open("/ui/sign-in")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("button", name="Sign out").wait_for()


@contextmanager
def camera(url: str, folder: Path) -> Iterator[Camera]:
    """Yield a camera in front of an empty window."""
    folder.mkdir(parents=True, exist_ok=True)
    with _browser() as browser:
        page = browser.new_page()
        page.on("pageerror", _fail)
        yield Camera(page=page, url=url, folder=folder)


@contextmanager
def _browser() -> Iterator[Browser]:
    path = os.environ.get("CKPTGUARD_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def _fail(error: Exception) -> None:
    raise ValueError(str(error)) from error
