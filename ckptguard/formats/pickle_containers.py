"""The opcodes that make and fill tuples, lists, dicts and sets.

`budget` is charged with about what CPython allocates for each.

Source: CPython Lib/pickle.py and Modules/_pickle.c (3.11 to 3.13).
"""

from ckptguard.formats.pickle_machine import Machine
from ckptguard.formats.pickle_values import Opaque, PickledSet


def empty_list(m: Machine, pos: int) -> int:
    """EMPTY_LIST."""
    m.budget -= 72
    m.stack.append([])
    return pos


def empty_dict(m: Machine, pos: int) -> int:
    """EMPTY_DICT."""
    m.budget -= 80
    m.stack.append({})
    return pos


def empty_set(m: Machine, pos: int) -> int:
    """EMPTY_SET."""
    m.budget -= 136
    m.stack.append(PickledSet([]))
    return pos


def mark(m: Machine, pos: int) -> int:
    """MARK."""
    m.budget -= 88
    m.marks.append(m.stack)
    m.stack = []
    return pos


def tuple1(m: Machine, pos: int) -> int:
    """TUPLE1."""
    m.budget -= 64
    stack = m.stack
    stack[-1] = (stack[-1],)
    return pos


def tuple2(m: Machine, pos: int) -> int:
    """TUPLE2."""
    m.budget -= 72
    stack = m.stack
    last = stack.pop()
    stack[-1] = (stack[-1], last)
    return pos


def tuple3(m: Machine, pos: int) -> int:
    """TUPLE3."""
    m.budget -= 80
    stack = m.stack
    last = stack.pop()
    middle = stack.pop()
    stack[-1] = (stack[-1], middle, last)
    return pos


def tuple_n(m: Machine, pos: int) -> int:
    """TUPLE: of everything since the MARK."""
    items = m.pop_mark()
    m.budget -= 56 + 8 * len(items) - 88  # the mark's own list goes away
    m.stack.append(tuple(items))
    return pos


def list_n(m: Machine, pos: int) -> int:
    """LIST: of everything since the MARK."""
    items = m.pop_mark()
    m.stack.append(items)
    return pos


def frozenset_n(m: Machine, pos: int) -> int:
    """FROZENSET: of everything since the MARK."""
    items = m.pop_mark()
    m.budget -= 56
    m.stack.append(PickledSet(items))
    return pos


def dict_n(m: Machine, pos: int) -> int:
    """DICT: of keys and values in turn since the MARK."""
    items = m.pop_mark()
    m.budget -= 80
    made: dict[object, object] = {}
    m.stack.append(made)
    _fill(m, made, items, pos)
    return pos


def append(m: Machine, pos: int) -> int:
    """APPEND."""
    value = m.stack.pop()
    _extend(m, m.stack[-1], [value], pos)
    return pos


def appends(m: Machine, pos: int) -> int:
    """APPENDS."""
    items = m.pop_mark()
    m.budget += 88
    _extend(m, m.stack[-1], items, pos)
    return pos


def _extend(m: Machine, target: object, items: list[object], pos: int) -> None:
    m.budget -= 9 * len(items)
    if type(target) is list:
        target.extend(items)
    elif type(target) is Opaque:
        target.items = target.items or []
        target.items.extend(items)
    else:
        m.malformed(f"elements are appended to a {type(target).__name__}", pos)


def additems(m: Machine, pos: int) -> int:
    """ADDITEMS."""
    items = m.pop_mark()
    target = m.stack[-1]
    if type(target) is PickledSet:
        target.elements.extend(items)
    else:
        _extend(m, target, items, pos)
    return pos


def setitem(m: Machine, pos: int) -> int:
    """SETITEM."""
    value = m.stack.pop()
    key = m.stack.pop()
    _fill(m, m.stack[-1], [key, value], pos)
    return pos


def setitems(m: Machine, pos: int) -> int:
    """SETITEMS."""
    items = m.pop_mark()
    m.budget += 88
    _fill(m, m.stack[-1], items, pos)
    return pos


def _fill(m: Machine, target: object, items: list[object], pos: int) -> None:
    if len(items) & 1:
        m.malformed("a key without a value", pos)
    m.budget -= 40 * len(items)
    pairs = zip(items[::2], items[1::2], strict=True)
    if type(target) is dict:
        for key, value in pairs:
            target[key if type(key) is str else m.key(key, pos)] = value
    elif type(target) is Opaque:
        m.budget -= 36 * len(items)
        target.items = target.items or []
        target.items.extend(pairs)
    else:
        m.malformed(f"items are set in a {type(target).__name__}", pos)
