"""axe-core in a page: what somebody who sees, hears or points differently cannot use."""

from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page

_AXE: Final = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
_GRAVE: Final = frozenset({"serious", "critical"})
# As the developer tools would: the page's policy forbids a script that the service did not send.
_SETTLE: Final = """() => document.getAnimations()
  .filter(one => one.effect.getComputedTiming().endTime !== Infinity).forEach(one => one.finish())"""
"""Colours that still change to those of the other scheme have none of the two contrasts."""
_RUN: Final = """() => axe.run(document, {resultTypes: ["violations"]}).then(result => result.violations)"""


def grave_faults(page: Page) -> list[str]:
    """Return every serious or critical fault of a page that is loaded, one line for each element."""
    page.evaluate(_SETTLE)
    if not page.evaluate("() => typeof axe === 'object'"):
        page.evaluate(_AXE)
    violations = page.evaluate(_RUN)
    return [
        f"{fault['id']} ({fault['impact']}): {node['html'][:160]} {_why(node)}"
        for fault in violations
        if fault["impact"] in _GRAVE
        for node in fault["nodes"][:5]
    ]


def _why(node: dict[str, Any]) -> str:
    return "; ".join(check["message"] for check in (*node["any"], *node["all"], *node["none"]))[:300]
