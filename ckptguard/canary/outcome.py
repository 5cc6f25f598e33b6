"""How a canary ended: its death is an outcome, never an exception."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from ckptguard.errors import CanaryError
from ckptguard.scan.result import FileScan, scan_from_json, scan_to_json


class Ending(StrEnum):
    """How the child ended."""

    DONE = "done"
    LOAD_FAILED = "load_failed"  # DCP or torch raised; the child told why
    CRASHED = "crashed"  # a signal, an abort, an exit nobody announced
    DEADLINE = "deadline"  # killed: too slow, or hanging
    STOPPED = "stopped"  # killed: another child of its group had ended, or nobody wants the result


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryOutcome:
    """What a canary told before it ended.

    Args:
        ending: How it ended.
        reason: Why, for a person; empty if done.
        is_about_bytes: The load failed, and not for want of memory, a device, a library or the store.
        scans: Files read to their end, by path.
        versions: torch and Python of the child.
        device: Name of the device it loaded onto.
        import_seconds: Time that importing torch took.
        load_seconds: Time of the load alone, metadata already parsed.
        output_tail: Last bytes of its stdout and stderr, as text.
        loaded: Tensors that stock `dcp.load` filled, in `stock` mode.
    """

    ending: Ending
    reason: str = ""
    is_about_bytes: bool = False
    scans: Mapping[str, FileScan] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str | None = None
    import_seconds: float = 0.0
    load_seconds: float = 0.0
    output_tail: str = ""
    loaded: int = 0


_PLAIN: Final = (
    "reason",
    "is_about_bytes",
    "device",
    "import_seconds",
    "load_seconds",
    "output_tail",
    "loaded",
)
_WORST_FIRST: Final = (Ending.CRASHED, Ending.DEADLINE, Ending.LOAD_FAILED, Ending.STOPPED, Ending.DONE)
"""What others see of a crash, a failed collective or their own stop, comes after it."""


def outcome_to_json(outcome: CanaryOutcome) -> dict[str, Any]:
    """Return plain JSON values."""
    return {
        **{name: getattr(outcome, name) for name in _PLAIN},
        "ending": outcome.ending.value,
        "versions": dict(outcome.versions),
        "scans": [scan_to_json(scan) for scan in outcome.scans.values()],
    }


def outcome_from_json(value: Mapping[str, Any]) -> CanaryOutcome:
    """Rebuild what `outcome_to_json` made.

    Raises:
        CanaryError: It was not made by `outcome_to_json`.
    """
    try:
        scans = [scan_from_json(scan) for scan in value["scans"]]
        return CanaryOutcome(
            **{name: value[name] for name in _PLAIN},
            ending=Ending(value["ending"]),
            versions=dict(value["versions"]),
            scans={scan.path: scan for scan in scans},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        msg = f"no outcome of a canary: {type(error).__name__}: {error}"
        raise CanaryError(msg) from error


def merge_outcomes(outcomes: Sequence[CanaryOutcome]) -> CanaryOutcome:
    """Make one outcome of those of a group: what all of them read, and the worst ending.

    A child that dies takes the load of the others with it: what it died of is what is told,
    not what the others then saw of it.

    Args:
        outcomes: By rank, at least one.
    """
    worst = min(outcomes, key=lambda outcome: (_WORST_FIRST.index(outcome.ending), outcome.is_about_bytes))
    rank = outcomes.index(worst)
    first = outcomes[0]
    is_named = len(outcomes) > 1 and worst.ending is not Ending.DONE
    return CanaryOutcome(
        ending=worst.ending,
        reason=f"rank {rank}: {worst.reason}" if is_named else worst.reason,
        is_about_bytes=worst.is_about_bytes,
        scans={path: scan for outcome in outcomes for path, scan in outcome.scans.items()},
        versions=first.versions,
        device=first.device,
        import_seconds=max(outcome.import_seconds for outcome in outcomes),
        load_seconds=max(outcome.load_seconds for outcome in outcomes),
        output_tail=worst.output_tail,
        loaded=sum(outcome.loaded for outcome in outcomes),
    )
