"""The state of our pickle machine, and the loop that runs it.

Written in Python on purpose. The C unpickler imports and calls what the bytes name; it
also sizes its memo by the largest index written, and hashes any tuple used as a key.
Here no opcode can do more than allocate a small value: each consumes at least one byte,
so that time is linear in the input, and what it allocates is charged to a budget.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from typing import Final, NoReturn

from ckptguard.errors import LimitExceededError
from ckptguard.formats.pickle_values import (
    MAX_NAME_CHARS,
    Buildable,
    Builder,
    Constant,
    GlobalRef,
    OddKey,
    Opaque,
    PickledSet,
    PickleMalformedError,
    PickleReading,
    PickleTruncatedError,
)

MAX_GLOBALS: Final = 10_000
"""Distinct globals of one pickle; the largest real ones name a few dozen."""

_OPS_PER_BUDGET_CHECK: Final = 1024
_PLAIN_KEYS: Final = frozenset({str, bytes, bool, float, type(None)})
_UNHASHABLE: Final = frozenset({list, dict, PickledSet, bytearray})
_MAX_KEY_INT: Final = 1 << 60

SKIPPED: Final = object()
"""Stands in the memo for a value that a shortcut did not build because nothing is known to name it."""

Handler = Callable[["Machine", int], int]
"""Carries out one opcode. Takes the position after it; returns that of the next opcode."""


Shortcut = Callable[[int], int]
"""Reads a whole instance, or a run of them, at once.

Pushes what the opcodes from the given position (after a NEWOBJ) on make, and returns where
they end. It leaves stack and memo as the opcodes would, except that memo entries may be
`SKIPPED`; it changes nothing and returns that position if it does not recognise them.
"""

ShortcutFactory = Callable[["Machine", GlobalRef], Shortcut]
"""Binds the shortcut of a class to one reading."""


class StoppedError(Exception):
    """STOP was reached."""


class RerunError(Exception):
    """The pickle does what a shortcut took for granted that it would not: read it without."""


class SparseMemo(dict[int, object]):
    """A memo whose indices are not 0, 1, 2, …; has the list's methods that the machine uses."""

    def append(self, value: object) -> None:
        """Store under the number of entries, as MEMOIZE does (pickle.py, load_memoize)."""
        self[len(self)] = value

    def extend(self, values: Iterable[object]) -> None:
        """Store one after the other."""
        for value in values:
            self.append(value)


class Machine:
    """One reading: data, stack, marks, memo.

    `stack` holds what was pushed since the innermost MARK; `marks` the stacks below it.
    """

    __slots__ = (
        "budget",
        "builders",
        "data",
        "end",
        "frame_end",
        "has_shortcuts",
        "marks",
        "memo",
        "persistent_load",
        "refs",
        "shortcuts",
        "size",
        "stack",
        "value",
    )

    def __init__(
        self,
        data: bytes,
        *,
        builders: Mapping[str, Builder | Constant],
        persistent_load: Callable[[object], object] | None,
        budget_bytes: int,
        has_shortcuts: bool,
    ) -> None:
        """Start with everything empty."""
        self.data = data
        self.size = len(data)
        self.builders = builders
        self.persistent_load = persistent_load
        self.budget = budget_bytes
        self.has_shortcuts = has_shortcuts
        self.stack: list[object] = []
        self.marks: list[list[object]] = []
        self.memo: list[object] | SparseMemo = []
        self.refs: dict[str, GlobalRef] = {}
        self.shortcuts: dict[object, Shortcut] = {}
        self.value: object = None
        self.end = 0
        self.frame_end = 0

    def run(self, handlers: list[Handler], operand_bytes: Mapping[int, int]) -> PickleReading:
        """Carry out the opcodes up to STOP.

        Args:
            handlers: By opcode, 256 of them.
            operand_bytes: Length of the fixed part of each opcode's operand; 0 if absent.

        Raises:
            PickleTruncatedError, PickleMalformedError, LimitExceededError, RerunError.
        """
        data, pos = self.data, 0
        try:
            while True:
                for _ in repeat(None, _OPS_PER_BUDGET_CHECK):
                    pos = handlers[data[pos]](self, pos + 1)
                if self.budget < 0:
                    self.refuse_size()
        except StoppedError:
            return PickleReading(self.value, self.names(), self.end)
        except (IndexError, KeyError, struct.error) as error:
            if pos >= self.size or pos + 1 + operand_bytes.get(data[pos], 0) > self.size:
                raise self.truncated(
                    pos + 1 + operand_bytes.get(data[pos], 0) if pos < self.size else 0
                ) from error
            reason = f"opcode 0x{data[pos]:02x} lacks an operand (stack underflow or unknown memo index)"
            raise PickleMalformedError(reason, offset=pos, names=self.names()) from error
        except ValueError as error:  # a builder refused, text is no number, an index is out of reach
            raise PickleMalformedError(str(error), offset=pos, names=self.names()) from error

    def names(self) -> frozenset[str]:
        """Return every global named so far."""
        return frozenset(self.refs)

    def malformed(self, reason: str, pos: int) -> NoReturn:
        """Give up: the opcode before `pos` breaks a rule."""
        raise PickleMalformedError(reason, offset=pos - 1, names=self.names())

    def truncated(self, needed_bytes: int) -> PickleTruncatedError:
        """Return what says that the data ends too early."""
        needed_bytes = max(needed_bytes, self.size + 1)
        return PickleTruncatedError(offset=self.size, needed_bytes=needed_bytes, names=self.names())

    def refuse_size(self) -> NoReturn:
        """Give up: the values would take more memory than such a file may ask for."""
        msg = f"values of a pickle of {self.size} bytes exceed the memory allowed for it"
        raise LimitExceededError(msg)

    def take(self, pos: int, length_bytes: int) -> bytes:
        """Return bytes of the data; never allocates more than is there."""
        if length_bytes > self.size - pos:
            raise self.truncated(pos + length_bytes)
        return self.data[pos : pos + length_bytes]

    def pop_mark(self) -> list[object]:
        """Return what was pushed since the innermost MARK, and drop that mark."""
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def find_global(self, module: object, name: object, pos: int) -> object:
        """Return the stand-in for a global; nothing is imported.

        Same names, same object, so that millions of mentions cost one.
        """
        if not (isinstance(module, str) and isinstance(name, str)):
            self.malformed("a global is not named by two strings", pos)
        if len(module) > MAX_NAME_CHARS or len(name) > MAX_NAME_CHARS:
            self.malformed("a global's name is too long", pos)
        dotted = f"{module}.{name}"
        ref = self.refs.get(dotted)
        if ref is None:
            ref = self._new_ref(module, name, pos)
        constant = self.builders.get(dotted)
        return constant.value if type(constant) is Constant else ref

    def _new_ref(self, module: str, name: str, pos: int) -> GlobalRef:
        if len(self.refs) >= MAX_GLOBALS:
            self.malformed(f"more than {MAX_GLOBALS} globals", pos)
        builder = self.builders.get(f"{module}.{name}")
        ref = GlobalRef(module, name, builder if isinstance(builder, Builder) else None)
        self.refs[ref.dotted] = ref
        if self.has_shortcuts and ref.builder is not None and ref.builder.shortcut is not None:
            self.shortcuts[ref] = ref.builder.shortcut(self, ref)
        return ref

    def call(self, callee: object, args: object, pos: int) -> object:
        """Return what stands for `callee(*args)`; nothing is called but our own builders."""
        self.budget -= 80
        if not isinstance(args, tuple):
            self.malformed("arguments are not a tuple", pos)
        if type(callee) is GlobalRef:
            builder = callee.builder
            return Opaque(callee, args) if builder is None else builder.make(args)
        if type(callee) is not Opaque:
            self.malformed(f"a {type(callee).__name__} is called", pos)
        return Opaque(callee.ref, (callee, args))

    def key(self, key: object, pos: int) -> object:
        """Return what may stand as a mapping's key: hashed in constant time, hard to make collide."""
        kind = type(key)
        if kind in _PLAIN_KEYS or (kind is int and -_MAX_KEY_INT < key < _MAX_KEY_INT):  # type: ignore[operator]
            return key
        if self.has_shortcuts and isinstance(key, tuple) and kind is not tuple:
            raise RerunError  # perhaps a value of a shortcut: the opcodes make it unhashable
        if kind in _UNHASHABLE or (isinstance(key, Buildable) and not key.is_hashable):
            self.malformed(f"a {kind.__name__} is used as a key", pos)
        return OddKey(key) if kind in (int, tuple, frozenset) else key

    def put(self, index: int, value: object) -> None:
        """Store in the memo under a written index.

        Picklers count up, and each entry costs them a byte: an index beyond the length is none
        of theirs, and makes the C unpickler allocate that many pointers.

        Raises:
            RerunError: The index was not the next one, which shortcuts rely on.
        """
        if index > self.size:
            msg = f"memo index {index}"
            raise ValueError(msg)
        memo = self.memo
        if index == len(memo) and type(memo) is list:
            memo.append(value)
            return
        if self.has_shortcuts:
            raise RerunError
        if type(memo) is list and index > len(memo):
            self.memo = memo = SparseMemo(enumerate(memo))
        if isinstance(memo, SparseMemo) and index not in memo:
            self.budget -= 100
        memo[index] = value
