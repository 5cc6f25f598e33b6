"""Opcodes whose operands are lines of text (protocol 0, and GLOBAL up to protocol 3).

Source: CPython Lib/pickle.py and Modules/_pickle.c. Lines are bounded, because turning
long decimal text into an integer takes quadratic time.
"""

from typing import Final

from ckptguard.formats.pickle_machine import SKIPPED, Handler, Machine, RerunError
from ckptguard.formats.pickle_opcodes import persistent

MAX_NUMBER_CHARS: Final = 1000
MAX_LINE_BYTES: Final = 1 << 20


def _line(m: Machine, pos: int, max_bytes: int = MAX_LINE_BYTES) -> tuple[bytes, int]:
    """Return the line at `pos` without its end, and where the next one starts."""
    end = m.data.find(b"\n", pos, pos + max_bytes)
    if end < 0 and m.size - pos < max_bytes:
        raise m.truncated(m.size + 1)
    if end < 0:
        m.malformed(f"a line of over {max_bytes} bytes", pos)
    return m.data[pos:end], end + 1


def _global(m: Machine, pos: int) -> int:
    module, pos_name = _line(m, pos)
    name, end = _line(m, pos_name)
    m.stack.append(m.find_global(str(module, "utf-8"), str(name, "utf-8"), pos))
    return end


def _inst(m: Machine, pos: int) -> int:
    module, pos_name = _line(m, pos)
    name, end = _line(m, pos_name)
    args = m.pop_mark()
    m.budget -= 8 * len(args)
    cls = m.find_global(str(module, "utf-8"), str(name, "utf-8"), pos)
    m.stack.append(m.call(cls, tuple(args), pos))
    return end


def _int(m: Machine, pos: int) -> int:
    raw, end = _line(m, pos, MAX_NUMBER_CHARS)
    m.stack.append(raw == b"01" if raw in (b"00", b"01") else int(raw))  # how protocol 0 writes bools
    return end


def _long(m: Machine, pos: int) -> int:
    raw, end = _line(m, pos, MAX_NUMBER_CHARS)
    m.stack.append(int(raw.removesuffix(b"L")))
    return end


def _float(m: Machine, pos: int) -> int:
    raw, end = _line(m, pos, MAX_NUMBER_CHARS)
    m.stack.append(float(raw))
    return end


def _string(m: Machine, pos: int) -> int:
    raw, end = _line(m, pos)
    if len(raw) < 2 or raw[0] != raw[-1] or raw[:1] not in (b"'", b'"'):  # noqa: PLR2004 - two quotes
        m.malformed("a string without quotes", pos)
    m.stack.append(raw[1:-1].decode("unicode_escape"))
    return end


def _unicode(m: Machine, pos: int) -> int:
    raw, end = _line(m, pos)
    m.stack.append(raw.decode("raw_unicode_escape"))
    return end


def _persid(m: Machine, pos: int) -> int:
    raw, end = _line(m, pos)
    m.stack.append(persistent(m, str(raw, "ascii"), pos))
    return end


def _memo_index(m: Machine, pos: int) -> tuple[int, int]:
    raw, end = _line(m, pos, MAX_NUMBER_CHARS)
    index = int(raw)
    if index < 0:
        m.malformed(f"memo index {index}", pos)
    return index, end


def _get(m: Machine, pos: int) -> int:
    index, end = _memo_index(m, pos)
    value = m.memo[index]
    if value is SKIPPED:
        raise RerunError
    m.stack.append(value)
    return end


def _put(m: Machine, pos: int) -> int:
    index, end = _memo_index(m, pos)
    m.put(index, m.stack[-1])
    return end


TEXT_OPCODES: Final[dict[bytes, tuple[Handler, int]]] = {
    b"c": (_global, 0),
    b"i": (_inst, 0),
    b"I": (_int, 0),
    b"L": (_long, 0),
    b"F": (_float, 0),
    b"S": (_string, 0),
    b"V": (_unicode, 0),
    b"P": (_persid, 0),
    b"g": (_get, 0),
    b"p": (_put, 0),
}
"""Opcode: (handler, 0: the operand's length is not fixed)."""
