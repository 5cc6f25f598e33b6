"""How a trap is written down."""

from collections.abc import Callable

from ckptguard.model.policy import Policy
from ckptguard.testing.case import WITHOUT_WAITING, Case, Damage, Expectation, Scene


def as_saved(_scene: Scene) -> Damage:
    """Change nothing."""
    return Damage(kind="as_saved")


def trap(
    name: str,
    base: str,
    expected: Expectation,
    *,
    arrange: Callable[[Scene], Damage] = as_saved,
    target: str = "",
    policy: Policy = WITHOUT_WAITING,
) -> Case:
    """Return a trap whose name begins with the row of the case list, `F08 unrelated files`."""
    return Case(
        name=name,
        source=name.partition(" ")[0],
        base=base,
        arrange=arrange,
        expected=expected,
        target=target,
        policy=policy,
    )


def corpus_trap(name: str, base: str, expected: Expectation) -> Case:
    """Return a trap that is a checkpoint of the corpus, by a writer that is not installed here."""
    return Case(
        name=name,
        source=name.partition(" ")[0],
        base=base,
        arrange=as_saved,
        expected=expected,
        is_corpus=True,
    )
