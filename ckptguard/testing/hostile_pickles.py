"""Pickles that run something when a real unpickler reads them, each by another way.

What they would run is harmless: it creates one empty file, the marker, whose absence a
test then holds. They are written as opcodes, so that nothing is imported to make them.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ckptguard.testing import raw_pickles as raw

Bait = Callable[[Path], bytes]
"""Takes the marker; returns the opcodes that push the bait's value."""


def _command(marker: Path) -> bytes:
    return raw.text(f"touch '{marker}'")


def _expression(marker: Path) -> bytes:
    return raw.text(f"__import__('pathlib').Path({str(marker)!r}).touch()")


def _calling(callee: bytes, argument: Callable[[Path], bytes] = _command) -> Bait:
    return lambda marker: raw.call(callee, argument(marker))


def _popen(marker: Path) -> bytes:
    words = raw.list_of([raw.text("touch"), raw.text(str(marker))])
    return raw.call(raw.global_of("subprocess", "Popen"), words)


def _getattr_chain(marker: Path) -> bytes:
    module = raw.call(raw.global_of("builtins", "__import__"), raw.text("os"))
    system = raw.call(raw.global_of("builtins", "getattr"), module, raw.text("system"))
    return raw.call(system, _command(marker))


def _import_module(marker: Path) -> bytes:
    module = raw.call(raw.global_of("importlib", "import_module"), raw.text("os"))
    getter = raw.call(raw.global_of("operator", "attrgetter"), raw.text("system"))
    return raw.call(raw.call(getter, module), _command(marker))


def _method_caller(marker: Path) -> bytes:
    module = raw.call(raw.global_of("importlib", "import_module"), raw.text("os"))
    caller = raw.call(raw.global_of("operator", "methodcaller"), raw.text("system"), _command(marker))
    return raw.call(caller, module)


def _partial(marker: Path) -> bytes:
    partial = raw.call(raw.global_of("functools", "partial"), raw.global_of("os", "system"), _command(marker))
    return raw.call(partial)


def _builtins_dict(marker: Path) -> bytes:
    """`__builtins__` of an imported module is the dict of all builtins; `.get` is one attribute away."""
    found = raw.call(raw.stacked_global("collections", "__builtins__.get"), raw.text("eval"))
    return raw.call(found, _expression(marker))


def _modules_dict(marker: Path) -> bytes:
    module = raw.call(raw.stacked_global("enum", "sys.modules.get"), raw.text("os"))
    return raw.call(
        raw.call(raw.global_of("builtins", "getattr"), module, raw.text("system")), _command(marker)
    )


def _memo(marker: Path) -> bytes:
    """Name the global by strings that went through the memo, one slot of which is written twice."""
    names = raw.text("os") + b"q\x070" + raw.text("harmless") + b"q\x080" + raw.text("system") + b"q\x080"
    return names + raw.call(b"h\x07h\x08\x93", _command(marker))


def _memoized_global(marker: Path) -> bytes:
    return raw.global_of("os", "system") + b"q\x090" + raw.call(b"h\x09", _command(marker))


def _inst(marker: Path) -> bytes:
    return b"(" + _command(marker) + b"ios\nsystem\n"


def _obj(marker: Path) -> bytes:
    return b"(" + raw.global_of("os", "system") + _command(marker) + b"o"


def _set_state(marker: Path) -> bytes:
    """Give a class a `__setstate__`, then an instance a state."""
    holder = raw.global_of("types", "SimpleNamespace")
    state = raw.dict_of([(raw.text("__setstate__"), raw.global_of("os", "system"))])
    return raw.call(holder) + state + b"b" + _command(marker) + b"b"


def _nested_pickle(marker: Path) -> bytes:
    inner = raw.finished(raw.call(raw.global_of("os", "system"), _command(marker)))
    content = b"B" + len(inner).to_bytes(4, "little") + inner
    return raw.call(raw.global_of("pickle", "loads"), content)


def _nested_storage(marker: Path) -> bytes:
    inner = raw.finished(raw.call(raw.global_of("os", "system"), _command(marker)))
    content = b"B" + len(inner).to_bytes(4, "little") + inner
    return raw.call(raw.global_of("torch.storage", "_load_from_bytes"), content)


def _write_text(marker: Path) -> bytes:
    path = raw.call(raw.global_of("pathlib", "PosixPath"), raw.text(str(marker)))
    return raw.call(raw.stacked_global("pathlib", "Path.write_text"), path, raw.text(""))


def _opened(marker: Path) -> bytes:
    return raw.call(raw.global_of("io", "open"), raw.text(str(marker)), raw.text("w"))


FIRING: Final[Mapping[str, Bait]] = {
    "os_system": _calling(raw.global_of("os", "system")),
    "posix_system": _calling(raw.global_of("posix", "system")),
    "subprocess_popen": _popen,
    "eval": _calling(raw.global_of("builtins", "eval"), _expression),
    "exec": _calling(raw.global_of("builtins", "exec"), _expression),
    "stacked": _calling(raw.stacked_global("os", "system")),
    "stacked_alias": _calling(raw.stacked_global("random", "_os.system")),
    "stacked_through_modules": _calling(raw.stacked_global("logging.handlers", "logging.os.system")),
    "getattr_chain": _getattr_chain,
    "import_module": _import_module,
    "method_caller": _method_caller,
    "partial": _partial,
    "builtins_dict": _builtins_dict,
    "modules_dict": _modules_dict,
    "memo": _memo,
    "memoized_global": _memoized_global,
    "inst": _inst,
    "obj": _obj,
    "nested_pickle": _nested_pickle,
    "path_write_text": _write_text,
    "io_open": _opened,
    "timeit": _calling(raw.global_of("timeit", "timeit"), _expression),
    "uuid_helper": lambda marker: raw.call(
        raw.global_of("uuid", "_get_command_stdout"), raw.text("touch"), raw.text(str(marker))
    ),
}
"""Baits that create the marker in any Python 3.11 to 3.13 on POSIX."""

NAMING: Final[Mapping[str, Bait]] = {
    "nt_system": _calling(raw.global_of("nt", "system")),
    "python2_eval": _calling(raw.global_of("__builtin__", "eval"), _expression),
    "python2_commands": _calling(raw.global_of("commands", "getoutput")),
    "python2_thread": _calling(raw.global_of("thread", "start_new_thread")),
    "runpy": _calling(raw.global_of("runpy", "run_path")),
    "torch_load": _calling(raw.global_of("torch", "load")),
    "torch_save": _calling(raw.global_of("torch", "save")),
    "torch_fx": _calling(raw.global_of("torch.fx.graph_module", "reduce_graph_module")),
    "numpy_load": _calling(raw.global_of("numpy", "load")),
    "nested_storage": _nested_storage,
    "set_state": _set_state,
    "newobj": lambda marker: raw.global_of("os", "system") + raw.tuple_of(_command(marker)) + b"\x81",
    "newobj_ex": lambda marker: (
        raw.global_of("os", "system") + raw.tuple_of(_command(marker)) + raw.dict_of([]) + b"\x92"
    ),
    "deep_attributes": _calling(raw.stacked_global("a" + ".a" * 400, "os" + ".b" * 400)),
}
"""Baits that only some readers fall for; they must be judged like the others."""

BAITS: Final[Mapping[str, Bait]] = {**FIRING, **NAMING}
