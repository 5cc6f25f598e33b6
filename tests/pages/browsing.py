"""A real Chromium that looks at a real service, and forgives nothing."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, sync_playwright

from ckptguard.model.service import Scope
from tests.served_app import ServedApp

DESKTOP: Final = (1360, 900)
PHONE: Final = (390, 844)

_ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_TIMEOUT_MS: Final = 15_000


def chromium_path() -> str | None:
    """Return the Chromium of this machine: `CKPTGUARD_CHROMIUM`, or one on PATH; None: playwright's own."""
    return os.environ.get("CKPTGUARD_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Yield a browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(_ARGUMENTS))
        yield browser
        browser.close()


@dataclass(kw_only=True)
class Visitor:
    """Somebody in front of one browser window.

    Args:
        page: The window.
        url: Of the service.
        faults: What the browser complained of: scripts that failed, policies that were broken, errors.
        requests: Addresses that were asked for.
    """

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def go(self, path: str) -> Page:
        """Open a page of the service, and return the window once it is there."""
        self.page.goto(self.url + path, wait_until="load")
        return self.page

    def expect_no_faults(self) -> None:
        """Fail with everything that the browser complained of."""
        assert not self.faults, "\n".join(self.faults)
        elsewhere = [one for one in self.requests if not one.startswith((self.url, "data:", "blob:"))]
        assert not elsewhere, f"asked elsewhere: {elsewhere}"


@contextmanager
def visitor(
    browser: Browser,
    served: ServedApp,
    *scopes: Scope,
    size: tuple[int, int] = DESKTOP,
    scheme: Literal["light", "dark"] = "light",
    token: str | None = None,
    **options: Any,  # noqa: ANN401 - of `Browser.new_context`
) -> Iterator[Visitor]:
    """Yield somebody who is signed in; at the end the browser must not have complained.

    Args:
        browser: Running.
        served: The service.
        scopes: Of the token; none: `admin`.
        size: Of the window, in CSS pixels.
        scheme: Colours that the system prefers.
        token: To sign in with; None: a new one of these scopes.
        options: Further ones of the browser's context.
    """
    width, height = size
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
    context.set_default_timeout(_TIMEOUT_MS)
    try:
        someone = _someone(context, served.url)
        _sign_in(someone, token or served.token(*scopes))
        yield someone
        someone.expect_no_faults()
    finally:
        context.close()


def _someone(context: BrowserContext, url: str) -> Visitor:
    page = context.new_page()
    someone = Visitor(page=page, url=url)

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            someone.faults.append(f"console {message.type}: {message.text} ({message.location})")

    def on_dialog(dialog: Dialog) -> None:
        someone.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("console", on_console)
    page.on("pageerror", lambda error: someone.faults.append(f"script failed: {error}"))
    page.on("request", lambda request: someone.requests.append(request.url))
    page.on("dialog", on_dialog)
    return someone


def _sign_in(someone: Visitor, token: str) -> None:
    page = someone.go("/ui/sign-in")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_load_state("load")
    page.get_by_role("button", name="Sign out").wait_for()
