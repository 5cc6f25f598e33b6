"""Reading a whole instance with one regular expression instead of a hundred opcodes.

A pickler writes the same opcodes for every instance of a class; only strings, numbers
and memo indices differ, and the indices of field names and classes are the same from
the second instance on. A `Template` is that sequence with holes. Its first match is held
against the memo, name by name; from then on the indices found there are part of the
expression, which then proves them by matching.

Every alternative begins with its opcode byte and has one length, so that the expression
splits the bytes exactly as the opcodes would.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

from ckptguard.formats.pickle_machine import SKIPPED, Machine
from ckptguard.formats.pickle_values import GlobalRef

GET: Final = rb"(?:h.|j....)"
UINT: Final = rb"(?:K.|M..|J...[\x00-\x7f]|\x8a\x05....[\x00-\x7f]|\x8a\x06.....[\x00-\x7f])"
"""A number >= 0 as Python's pickler writes it up to 2**47; others are left to the opcodes."""
TEXT: Final = rb"\x8c(.)([ -~]{0,255})\x94"
"""A memoized ASCII string: length, characters. The caller compares the two."""
SIZE_ARGS: Final = (
    rb"(\)|" + UINT + rb"\x85\x94|" + UINT + UINT + rb"\x86\x94|" + UINT * 3 + rb"\x87\x94"
    rb"|\((?:" + UINT + rb"){4,32}t\x94)\x85\x94R\x94"
)
"""The arguments of `torch.Size((…))` and the call itself, after the class."""

_NEVER: Final = rb"(?!)"
_MAX_LEARNED: Final = 16
_NUMBER: Final = re.compile(UINT, re.DOTALL)


def uint(raw: bytes) -> int:
    """Return the number that a match of `UINT` stands for."""
    return int.from_bytes(raw[2 if raw[0] == 0x8A else 1 :], "little")  # noqa: PLR2004 - LONG1


def size_of(raw: bytes) -> tuple[int, ...]:
    """Return the sizes that the first group of `SIZE_ARGS` stands for."""
    if raw == b")":
        return ()
    start = 1 if raw[:1] == b"(" else 0
    return tuple(uint(match) for match in _NUMBER.findall(raw, start, len(raw) - 2))


class Template:
    """An opcode sequence with holes for memo references.

    Args:
        source: Regular expression; each `{name}` stands once for a GET of what
            `meanings[name]` accepts.
        meanings: By hole, whether a value from the memo is the one that belongs there.
    """

    def __init__(self, source: bytes, meanings: Mapping[str, Callable[[object], bool]]) -> None:
        """Keep both; nothing is compiled before it is needed."""
        self.source = source
        self.meanings = meanings

    @cached_property
    def general(self) -> re.Pattern[bytes]:
        """The general form: any reference in any hole."""
        return self._compile({name: b"(?P<%b>%b)" % (name.encode(), GET) for name in self.meanings})

    def _compile(self, holes: Mapping[str, bytes]) -> re.Pattern[bytes]:
        source = self.source
        for name in self.meanings:
            source = source.replace(b"{%b}" % name.encode(), holes.get(name, _NEVER))
        return re.compile(source, re.DOTALL)

    def learn(self, machine: Machine, pos: int) -> re.Pattern[bytes] | None:
        """Return the expression for this reading, if the instance at `pos` shows its references.

        Holes of an optional part that this instance lacks match nothing in the result.
        """
        match = self.general.match(machine.data, pos)
        if match is None:
            return None
        found = {name: raw for name, raw in match.groupdict().items() if raw is not None}
        if not all(self.meanings[name](recalled(machine, raw)) for name, raw in found.items()):
            return None
        return self._compile({name: re.escape(raw) for name, raw in found.items()})


def recalled(machine: Machine, raw: bytes) -> object:
    """Return what a GET would push; `SKIPPED` where that is nothing, or not known."""
    index = int.from_bytes(raw[1:], "little")
    memo = machine.memo
    return memo[index] if index < len(memo) else SKIPPED


class Learner:
    """A template within one reading: learns when it must, up to a bound.

    Attributes:
        again: Matches what was learned; for loops, which need no second try at their end.
    """

    __slots__ = ("_left", "_machine", "_template", "again")

    def __init__(self, template: Template, machine: Machine) -> None:
        """Start without knowledge."""
        self._template = template
        self._machine = machine
        self._left = _MAX_LEARNED
        self.again: Callable[[bytes, int], re.Match[bytes] | None] = _match_nothing

    def match(self, pos: int) -> re.Match[bytes] | None:
        """Match one instance at `pos`, if need be by learning from it."""
        match = self.again(self._machine.data, pos)
        if match is None and self._left and (pattern := self._template.learn(self._machine, pos)):
            self._left -= 1
            self.again = pattern.match
            match = self.again(self._machine.data, pos)
        return match


def _match_nothing(data: bytes, pos: int) -> None:
    del data, pos


def is_text(text: str) -> Callable[[object], bool]:
    """Accept exactly this string."""
    return lambda value: type(value) is str and value == text


def is_global(*dotted: str) -> Callable[[object], bool]:
    """Accept a class or function of one of these names."""
    return lambda value: type(value) is GlobalRef and value.dotted in dotted


def instance_start(machine: Machine, pos: int, ref: GlobalRef) -> int | None:
    """Return where `GET EMPTY_TUPLE NEWOBJ` of this class, which ends at `pos`, begins; None if it does not.

    Whether the bytes were read as that GET does not matter: what counts is that as
    opcodes they would push this very class.
    """
    for opcode, width in ((b"h", 2), (b"j", 5)):
        start = pos - 2 - width
        is_get = start >= 0 and machine.data.startswith(opcode, start)
        if is_get and recalled(machine, machine.data[start : pos - 2]) is ref:
            return start
    return None
