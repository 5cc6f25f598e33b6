"""What each opcode of pickle protocols 0 to 5 does on our machine.

Source: CPython Lib/pickle.py and Modules/_pickle.c (3.11 to 3.13). Where the two
disagree, the C unpickler is followed, because stock readers use it.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NoReturn

from ckptguard.formats import pickle_containers as containers
from ckptguard.formats.pickle_machine import SKIPPED, Handler, Machine, RerunError, StoppedError
from ckptguard.formats.pickle_values import Buildable, GlobalRef, Opaque

MAX_INT_BYTES: Final = 4096
"""Longest integer that is read; converting longer ones takes quadratic time."""

HIGHEST_PROTOCOL: Final = 5

_LARGE: Final = {ord("X"): 4, 0x8D: 8, ord("B"): 4, 0x8E: 8, 0x96: 8}
"""Opcodes that a pickler writes between frames, and the width of their length."""
_UNFRAMED_BYTES: Final = 3
"""A last frame this short is written without its FRAME (pickle.py, `_FRAME_SIZE_MIN`)."""

_U16: Final = Struct("<H").unpack_from
_I32: Final = Struct("<i").unpack_from
_U32: Final = Struct("<I").unpack_from
_U64: Final = Struct("<Q").unpack_from
_F64: Final = Struct(">d").unpack_from


# Framing and the end.


def _proto(m: Machine, pos: int) -> int:
    if m.data[pos] > HIGHEST_PROTOCOL:
        m.malformed(f"protocol {m.data[pos]}", pos)
    return pos + 1


def _frame(m: Machine, pos: int) -> int:
    (length,) = _U64(m.data, pos)
    if length > m.size - pos - 8:
        raise m.truncated(pos + 8 + length)
    _leave_frame(m, pos - 1)
    m.frame_end = pos + 8 + length
    return pos + 8


def _leave_frame(m: Machine, pos: int) -> None:
    """Hold the end of the last frame against where the next one, or STOP, stands.

    The C unpickler reads frame by frame and loses its place in an opcode that runs over
    a frame's end. Between frames a pickler writes only strings and bytes of 64 KiB and more.
    """
    end = m.frame_end
    while end < pos and (width := _LARGE.get(m.data[end])):
        end += 1 + width + int.from_bytes(m.data[end + 1 : end + 1 + width], "little")
    if end != pos and m.frame_end:
        m.malformed(f"a frame that should end here ends at byte {m.frame_end}", pos + 1)


def _stop(m: Machine, pos: int) -> int:
    m.value = m.stack.pop()
    m.end = pos
    if pos > m.frame_end + _UNFRAMED_BYTES:
        _leave_frame(m, pos)
    raise StoppedError


# Plain values.


def _constant(value: object) -> Handler:
    def push(m: Machine, pos: int) -> int:
        m.stack.append(value)
        return pos

    return push


def _binint1(m: Machine, pos: int) -> int:
    m.stack.append(m.data[pos])
    return pos + 1


def _binint2(m: Machine, pos: int) -> int:
    m.stack.append(_U16(m.data, pos)[0])
    return pos + 2


def _binint(m: Machine, pos: int) -> int:
    m.stack.append(_I32(m.data, pos)[0])
    return pos + 4


def _long(m: Machine, pos: int, length_bytes: int) -> int:
    if length_bytes > MAX_INT_BYTES:
        m.malformed(f"an integer of {length_bytes} bytes", pos)
    m.stack.append(int.from_bytes(m.take(pos, length_bytes), "little", signed=True))
    return pos + length_bytes


def _long1(m: Machine, pos: int) -> int:
    return _long(m, pos + 1, m.data[pos])


def _long4(m: Machine, pos: int) -> int:
    (length,) = _I32(m.data, pos)
    if length < 0:
        m.malformed("an integer of negative length", pos)
    return _long(m, pos + 4, length)


def _binfloat(m: Machine, pos: int) -> int:
    m.stack.append(_F64(m.data, pos)[0])
    return pos + 8


def _short_text(m: Machine, pos: int) -> int:
    end = pos + 1 + m.data[pos]
    if end > m.size:
        m.take(pos + 1, m.data[pos])
    m.stack.append(str(m.data[pos + 1 : end], "utf-8", "surrogatepass"))
    return end


def _sized(unpack: Callable[..., tuple[int, ...]], width: int, convert: Callable[[bytes], object]) -> Handler:
    def push(m: Machine, pos: int) -> int:
        (length,) = unpack(m.data, pos)
        m.stack.append(convert(m.take(pos + width, length)))
        return pos + width + length

    return push


def _text(raw: bytes) -> str:
    return str(raw, "utf-8", "surrogatepass")


def _utf8(raw: bytes) -> str:
    return str(raw, "utf-8")  # strings of Python 2, as torch.load decodes them


# Stack.


def _pop(m: Machine, pos: int) -> int:
    if m.stack:
        m.stack.pop()
    else:
        m.pop_mark()
    return pos


def _pop_mark(m: Machine, pos: int) -> int:
    m.pop_mark()
    return pos


def _dup(m: Machine, pos: int) -> int:
    m.stack.append(m.stack[-1])
    return pos


# Memo.


def _memoize(m: Machine, pos: int) -> int:
    m.memo.append(m.stack[-1])
    return pos


def _binget(m: Machine, pos: int) -> int:
    value = m.memo[m.data[pos]]
    if value is SKIPPED:
        raise RerunError
    m.stack.append(value)
    return pos + 1


def _long_binget(m: Machine, pos: int) -> int:
    value = m.memo[_U32(m.data, pos)[0]]
    if value is SKIPPED:
        raise RerunError
    m.stack.append(value)
    return pos + 4


def _binput(m: Machine, pos: int) -> int:
    m.put(m.data[pos], m.stack[-1])
    return pos + 1


def _long_binput(m: Machine, pos: int) -> int:
    m.put(_U32(m.data, pos)[0], m.stack[-1])
    return pos + 4


# Globals and instances: nothing is imported, nothing is called.


def _stack_global(m: Machine, pos: int) -> int:
    name = m.stack.pop()
    m.stack[-1] = m.find_global(m.stack[-1], name, pos)
    return pos


def _extension(m: Machine, pos: int) -> NoReturn:
    m.malformed("a code of copyreg's extension registry, which no writer of checkpoints uses", pos)


def _reduce(m: Machine, pos: int) -> int:
    stack = m.stack
    args = stack.pop()
    stack[-1] = m.call(stack[-1], args, pos)
    return pos


def _newobj(m: Machine, pos: int) -> int:
    stack = m.stack
    args = stack.pop()
    cls = stack.pop()
    if args == () and (shortcut := m.shortcuts.get(cls) if type(cls) is GlobalRef else None):
        end = shortcut(pos)
        if end != pos:
            return end
    stack.append(m.call(cls, args, pos))
    return pos


def _newobj_ex(m: Machine, pos: int) -> int:
    kwargs = m.stack.pop()
    args = m.stack.pop()
    cls = m.stack.pop()
    if kwargs == {}:
        value = m.call(cls, args, pos)
    elif type(cls) is GlobalRef:
        m.budget -= 160
        value = Opaque(cls, (args, kwargs))
    else:
        m.malformed(f"a {type(cls).__name__} is called", pos)
    m.stack.append(value)
    return pos


def _obj(m: Machine, pos: int) -> int:
    cls, *args = m.pop_mark()
    m.budget -= 8 * len(args)
    m.stack.append(m.call(cls, tuple(args), pos))
    return pos


def _build(m: Machine, pos: int) -> int:
    state = m.stack.pop()
    target = m.stack[-1]
    if isinstance(target, Buildable):
        target.set_state(state)
    elif type(target) is Opaque:
        target.state = state
    elif type(target) is not dict:  # a dict subclass has attributes; nobody needs them
        m.malformed(f"state is given to a {type(target).__name__}", pos)
    return pos


def _binpersid(m: Machine, pos: int) -> int:
    m.stack.append(persistent(m, m.stack.pop(), pos))
    return pos


def persistent(m: Machine, persistent_id: object, pos: int) -> object:
    """Return what stands for an object that is stored elsewhere."""
    if m.persistent_load is None:
        m.malformed("a persistent id where none is expected", pos)
    return m.persistent_load(persistent_id)


OPCODES: Final[dict[bytes, tuple[Handler, int]]] = {
    # opcode: (handler, bytes of its operand's fixed part)
    b"\x80": (_proto, 1),
    b"\x95": (_frame, 8),
    b".": (_stop, 0),
    b"N": (_constant(None), 0),
    b"\x88": (_constant(value=True), 0),
    b"\x89": (_constant(value=False), 0),
    b")": (_constant(()), 0),
    b"K": (_binint1, 1),
    b"M": (_binint2, 2),
    b"J": (_binint, 4),
    b"\x8a": (_long1, 1),
    b"\x8b": (_long4, 4),
    b"G": (_binfloat, 8),
    b"\x8c": (_short_text, 1),
    b"X": (_sized(_U32, 4, _text), 4),
    b"\x8d": (_sized(_U64, 8, _text), 8),
    b"C": (_sized(Struct("<B").unpack_from, 1, bytes), 1),
    b"B": (_sized(_U32, 4, bytes), 4),
    b"\x8e": (_sized(_U64, 8, bytes), 8),
    b"\x96": (_sized(_U64, 8, bytes), 8),  # BYTEARRAY8: ours is immutable
    b"U": (_sized(Struct("<B").unpack_from, 1, _utf8), 1),
    b"T": (_sized(_U32, 4, _utf8), 4),
    b"]": (containers.empty_list, 0),
    b"}": (containers.empty_dict, 0),
    b"\x8f": (containers.empty_set, 0),
    b"(": (containers.mark, 0),
    b"\x85": (containers.tuple1, 0),
    b"\x86": (containers.tuple2, 0),
    b"\x87": (containers.tuple3, 0),
    b"t": (containers.tuple_n, 0),
    b"l": (containers.list_n, 0),
    b"d": (containers.dict_n, 0),
    b"\x91": (containers.frozenset_n, 0),
    b"a": (containers.append, 0),
    b"e": (containers.appends, 0),
    b"\x90": (containers.additems, 0),
    b"s": (containers.setitem, 0),
    b"u": (containers.setitems, 0),
    b"0": (_pop, 0),
    b"1": (_pop_mark, 0),
    b"2": (_dup, 0),
    b"\x94": (_memoize, 0),
    b"h": (_binget, 1),
    b"j": (_long_binget, 4),
    b"q": (_binput, 1),
    b"r": (_long_binput, 4),
    b"\x93": (_stack_global, 0),
    b"\x82": (_extension, 1),
    b"\x83": (_extension, 2),
    b"\x84": (_extension, 4),
    b"R": (_reduce, 0),
    b"\x81": (_newobj, 0),
    b"\x92": (_newobj_ex, 0),
    b"o": (_obj, 0),
    b"b": (_build, 0),
    b"Q": (_binpersid, 0),
}
"""The binary opcodes; those with text operands stand in `ckptguard.formats.pickle_text`."""
