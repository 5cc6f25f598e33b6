"""The only unpickler of the product: executes nothing, imports nothing.

`read_pickle` yields plain values, our own compact ones (made by `Builder`s), and
`GlobalRef` or `Opaque` for everything that a real unpickler would import or call.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NoReturn

from ckptguard.formats.pickle_machine import Handler, Machine, RerunError
from ckptguard.formats.pickle_opcodes import OPCODES
from ckptguard.formats.pickle_text import TEXT_OPCODES
from ckptguard.formats.pickle_values import (
    Buildable,
    Builder,
    Constant,
    GlobalRef,
    OddKey,
    Opaque,
    PickledSet,
    PickleError,
    PickleMalformedError,
    PickleReading,
    PickleTruncatedError,
)

__all__ = [
    "Buildable",
    "Builder",
    "Constant",
    "GlobalRef",
    "OddKey",
    "Opaque",
    "PickleError",
    "PickleMalformedError",
    "PickleReading",
    "PickleTruncatedError",
    "PickledSet",
    "paused_collector",
    "read_pickle",
]

BUDGET_BASE_BYTES: Final = 8 << 20
BUDGET_PER_BYTE: Final = 24
"""Memory that values may take for each byte of the pickle; dense real metadata takes 10 to 20."""

_MANY_BYTES: Final = 1 << 16
"""From here on a pause of the collector, and what shortcuts learn, cost less than they save."""


def _unknown(m: Machine, pos: int) -> NoReturn:
    m.malformed(f"opcode 0x{m.data[pos - 1]:02x} is unknown or not allowed here", pos)


_ALL: Final = {**OPCODES, **TEXT_OPCODES}
_HANDLERS: Final[list[Handler]] = [_ALL.get(bytes([code]), (_unknown, 0))[0] for code in range(256)]
_OPERAND_BYTES: Final = {opcode[0]: width for opcode, (_, width) in _ALL.items()}


def read_pickle(
    data: bytes | memoryview,
    *,
    builders: Mapping[str, Builder | Constant],
    persistent_load: Callable[[object], object] | None = None,
    has_shortcuts: bool | None = None,
) -> PickleReading:
    """Read one pickle of any protocol as data.

    Args:
        data: The pickle; bytes after its STOP are ignored (`PickleReading.length_bytes`).
        builders: By `module.name`, what makes a value of that global. Others become
            `GlobalRef` and `Opaque`.
        persistent_load: Makes a value of a persistent id; without it such ids are
            malformed. May raise ValueError.
        has_shortcuts: Use the builders' shortcuts; None: where the length makes it worth
            while. The answer is the same either way.

    Raises:
        PickleTruncatedError: The data ends before the pickle does.
        PickleMalformedError: A rule of the protocol is broken, or a builder refused.
        LimitExceededError: The values would take far more memory than a real pickle of
            this length.

    Guarantees: time linear in the length, memory at most `BUDGET_BASE_BYTES` plus
        `BUDGET_PER_BYTE` times the length; no recursion, whatever the nesting.
    """
    raw = data if isinstance(data, bytes) else bytes(data)
    is_large = len(raw) >= _MANY_BYTES
    with paused_collector(is_needed=is_large):
        if is_large if has_shortcuts is None else has_shortcuts:
            try:
                return _read(raw, builders, persistent_load, has_shortcuts=True)
            except (RerunError, PickleMalformedError):
                pass  # let the opcodes alone decide
        return _read(raw, builders, persistent_load, has_shortcuts=False)


def _read(
    raw: bytes,
    builders: Mapping[str, Builder | Constant],
    persistent_load: Callable[[object], object] | None,
    *,
    has_shortcuts: bool,
) -> PickleReading:
    machine = Machine(
        raw,
        builders=builders,
        persistent_load=persistent_load,
        budget_bytes=BUDGET_BASE_BYTES + BUDGET_PER_BYTE * len(raw),
        has_shortcuts=has_shortcuts,
    )
    return machine.run(_HANDLERS, _OPERAND_BYTES)


@contextmanager
def paused_collector(*, is_needed: bool = True) -> Iterator[None]:
    """Switch the cyclic garbage collector off for a while.

    Building millions of long-lived tuples makes it walk all of them again and again: the
    full collections of 2,000 items' metadata beside torch's heap cost 50 us per item
    (spikes/one_pass.md of the design).
    """
    was_enabled = gc.isenabled()
    if is_needed:
        gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
