"""What reading a pickle yields: plain values, and stand-ins for everything that would be code."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from ckptguard.errors import FormatError

MAX_NAME_CHARS: Final = 1000
"""Longest module or qualified name that is kept; real ones stay far below."""


class PickleError(FormatError):
    """Bytes that are no pickle that we read.

    Attributes:
        offset: Byte concerned.
        globals: `module.name` of every global named before that byte.
    """

    code = "pickle"

    def __init__(self, message: str, *, offset: int, names: frozenset[str] = frozenset()) -> None:
        """Keep the place beside the message."""
        super().__init__(message)
        self.offset = offset
        self.globals = names


class PickleTruncatedError(PickleError):
    """The bytes end before the pickle does; `offset` is where they end.

    Attributes:
        needed_bytes: Length that the pickle has at least, as far as it was read.
    """

    code = "pickle_truncated"

    def __init__(self, *, offset: int, needed_bytes: int, names: frozenset[str] = frozenset()) -> None:
        """Say where the bytes end."""
        super().__init__(f"pickle ends at byte {offset}, before its STOP", offset=offset, names=names)
        self.needed_bytes = needed_bytes


class PickleMalformedError(PickleError):
    """The bytes break a rule of the pickle protocol.

    Attributes:
        reason: Which rule, without the place.
    """

    code = "pickle_malformed"

    def __init__(self, reason: str, *, offset: int, names: frozenset[str] = frozenset()) -> None:
        """Keep the bare reason for callers that word their own message."""
        super().__init__(f"{reason} at byte {offset}", offset=offset, names=names)
        self.reason = reason


class GlobalRef:
    """A class or function that the pickle names. It is a name, never the thing itself.

    Attributes:
        module: As written, e.g. `torch.serialization`.
        name: Qualified name, may hold dots.
        dotted: `module.name`.
        builder: What makes our value of it; None if nobody does.
    """

    __slots__ = ("builder", "dotted", "module", "name")

    def __init__(self, module: str, name: str, builder: "Builder | None" = None) -> None:
        """Join the dotted name once."""
        self.module = module
        self.name = name
        self.dotted = f"{module}.{name}"
        self.builder = builder

    def __repr__(self) -> str:
        return f"GlobalRef({self.dotted!r})"


class Opaque:
    """An instance of a class, or the result of a call, that nobody builds: kept as data, never run.

    Attributes:
        ref: The global that would be called; for a call of a call's result, the innermost.
        args: Positional arguments as pickled; for a call of a call's result `(callee, args)`;
            with keywords `(args, kwargs)`.
        state: Argument of BUILD; None without one.
        items: What was appended; `(key, value)` pairs for what was set by key. None without any.
    """

    __slots__ = ("args", "items", "ref", "state")

    def __init__(self, ref: GlobalRef, args: object) -> None:
        """Start without state and items."""
        self.ref = ref
        self.args = args
        self.state: object = None
        self.items: list[object] | None = None

    def __repr__(self) -> str:
        return f"Opaque({self.ref.dotted!r})"


class Buildable:
    """Base of our own values that take their fields from the pickle's BUILD.

    Attributes:
        is_hashable: Whether the writer's class may be a mapping's key; a real unpickler
            fails on one that may not.
    """

    __slots__ = ()
    is_hashable: ClassVar[bool] = True

    def set_state(self, state: object) -> None:
        """Take the fields.

        Raises:
            ValueError: They are not of the right kind; becomes `PickleMalformedError`.
        """
        raise NotImplementedError


class PickledSet:
    """A set or frozenset as the list of its elements: nothing is hashed, repeats are kept."""

    __slots__ = ("elements",)

    def __init__(self, elements: list[object]) -> None:
        """Take the list itself, not a copy."""
        self.elements = elements


class OddKey:
    """A mapping key that we do not hash by value: a tuple, a huge integer.

    Hashing a nested tuple takes exponential time where its parts are shared, and integers
    can be chosen to collide; this hashes by identity.
    """

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        """Wrap the key as pickled."""
        self.value = value


@dataclass(frozen=True, slots=True)
class Builder:
    """How one global becomes one of our values.

    Args:
        make: Called with the arguments of REDUCE or NEWOBJ. It must take bounded time, copy
            no container of unbounded size (the same one can be named millions of times)
            and raise ValueError for arguments of the wrong kind.
        shortcut: Opcode sequences of this class that may be read at once; see
            `ckptguard.formats.pickle_machine.ShortcutFactory`.
    """

    make: Callable[[tuple[object, ...]], object]
    shortcut: Callable[..., Callable[[int], int]] | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A global that is data by itself, such as a dtype.

    Args:
        value: What stands in its place.
    """

    value: object


@dataclass(frozen=True, slots=True, eq=False)
class PickleReading:
    """A pickle, read.

    Args:
        value: The outermost value; containers may share parts or hold themselves, so any
            walk over it must be bounded.
        globals: `module.name` of every global that the pickle names.
        length_bytes: Bytes up to and including STOP; more may follow.
    """

    value: object
    globals: frozenset[str]
    length_bytes: int
