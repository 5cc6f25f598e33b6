"""`--layout`: what it matches, and what is refused."""

import pytest

from ckptguard.errors import ConfigError
from ckptguard.operations.adopt.folder_layout import parse_layout
from ckptguard.operations.adopt.sweep import Naming


@pytest.mark.parametrize(
    ("layout", "path", "expected"),
    [
        ("{run}/step-{step}", "a/step-12", ("a", 12)),
        ("{run}/step-{step}", "a/step-0012", ("a", 12)),
        ("{run}/step-{step}", "a/b/step-12", None),
        ("{run}/step-{step}", "step-12", None),
        ("{run}/step-{step}", "a/step-12.tmp", None),
        ("{run}/step-{step}", "a/step-x", None),
        ("{run}/*/ck.{step}/", "a/any thing/ck.7", ("a", 7)),
        ("{run}/*/ck.{step}", "a/b/ckx7", None),
        ("it{step}-*", "it3-final", (None, 3)),
        ("{run}-{step}", "r-1-5", ("r-1", 5)),
        ("{step}", "\u0663", None),
    ],
)
def test_a_layout_matches_whole_paths_of_its_own_depth(
    layout: str, path: str, expected: tuple[str | None, int] | None
) -> None:
    assert parse_layout(layout).match(path) == expected


@pytest.mark.parametrize(
    "layout",
    ["", "{run}", "{step}/{step}", "{run}/{run}/{step}", "{branch}/{step}", "a//{step}", "../{step}", "{ste"],
)
def test_a_layout_that_tells_no_step_is_refused_with_the_reason(layout: str) -> None:
    with pytest.raises(ConfigError, match="--layout takes"):
        parse_layout(layout)


def test_the_run_is_told_exactly_once() -> None:
    with pytest.raises(ConfigError, match="name the run"):
        Naming(layout=parse_layout("step-{step}"))
    with pytest.raises(ConfigError, match="named twice"):
        Naming(run="r", layout=parse_layout("{run}/{step}"))
