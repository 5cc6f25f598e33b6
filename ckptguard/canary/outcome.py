"""How a canary ended: its death is an outcome, never an exception."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ckptguard.scan.result import FileScan


class Ending(StrEnum):
    """How the child ended."""

    DONE = "done"
    LOAD_FAILED = "load_failed"  # DCP or torch raised; the child told why
    CRASHED = "crashed"  # a signal, an abort, an exit nobody announced
    DEADLINE = "deadline"  # killed: too slow, or hanging


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
