"""Globals whose mere presence in a checkpoint's pickle condemns it: unpickling could run code.

Not a sandbox: our reader runs nothing whatever it meets, and a global that is neither
known nor denied is never trusted. This list only tells an attack (INVALID, basis
`unsafe`) from a class that nobody here knows (UNKNOWN, or a warning).

What may stand in an honest checkpoint stays out, even where a scanner lists it
(`types.SimpleNamespace`, `uuid.UUID`, `http.HTTPStatus`, `urllib.parse`, `inspect._empty`,
`numpy.memmap`), and modules whose names are likely names of a user's own package (`code`,
`trace`, `profile`) are denied by the names that they define, not as a whole.

Sources: picklescan `_unsafe_globals` (src/picklescan/scanner.py), fickling
`UNSAFE_IMPORTS` (fickling/fickle.py), modelscan `unsafe_globals` (modelscan/settings.py),
each as of 2026; "ours" where none of them names it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple


class DeniedGroup(NamedTuple):
    """Globals that one kind of attack needs.

    Args:
        why: What they allow.
        source: Who lists them.
        modules: Denied with all their names and submodules.
        names: Denied by themselves, `module.name`.
    """

    why: str
    source: str
    modules: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()


def _modules(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _names(module: str, text: str) -> frozenset[str]:
    return frozenset(f"{module}.{name}" for name in text.split())


_BUILTINS: Final = (
    "eval exec execfile compile getattr setattr delattr apply open file breakpoint __import__ reload"
    " input raw_input globals locals vars help exit quit"
)
_PATH_WRITES: Final = (
    "chmod hardlink_to lchmod link_to mkdir open rename replace rmdir symlink_to touch unlink write_bytes"
    " write_text"
)

DENIED_GROUPS: Final = (
    DeniedGroup(
        why="runs programs",
        source="picklescan, modelscan, fickling",
        modules=_modules("os posix nt subprocess pty popen2 pexpect _posixsubprocess"),
        names=_names("commands", "getoutput getstatus getstatusoutput") | _names("pipes", "Template"),
    ),
    DeniedGroup(
        why="runs programs, through a helper of the standard library",
        source="ours: found by looking for subprocess.Popen and exec in Lib/ of CPython 3.11 to 3.13",
        modules=_modules(
            "test.support test.test_support unittest.mock _osx_support _aix_support logging.config"
        ),
        names=_names("uuid", "_get_command_stdout")
        | _names("platform", "_syscmd_file _syscmd_ver")
        | _names("dataclasses", "_create_fn _FuncBuilder")
        | _names("typing", "ForwardRef _eval_type get_type_hints")
        | _names("rlcompleter", "Completer"),
    ),
    DeniedGroup(
        why="runs Python code or reaches any attribute",
        source="picklescan, modelscan; setattr, globals, locals, vars and input: fickling",
        names=_names("builtins", _BUILTINS)
        | _names("__builtin__", _BUILTINS)
        | _names("__builtins__", _BUILTINS),
    ),
    DeniedGroup(
        why="runs Python code",
        source="picklescan (code, cProfile, profile, trace, pydoc, timeit, bdb, pdb, runpy), fickling",
        modules=_modules(
            "runpy codeop pdb bdb timeit cProfile doctest pydoc idlelib lib2to3"
            " _interpreters _xxsubinterpreters compileall py_compile"
        ),
        names=_names("types", "FunctionType CodeType LambdaType")
        | _names("code", "InteractiveInterpreter InteractiveConsole interact compile_command")
        | _names("profile", "run runctx Profile")
        | _names("trace", "Trace"),
    ),
    DeniedGroup(
        why="imports or loads code",
        source="fickling; sys: picklescan, modelscan",
        modules=_modules(
            "importlib _frozen_importlib _frozen_importlib_external _imp pkgutil zipimport sys"
            " ctypes _ctypes cffi"
        ),
        names=_names("imp", "load_source load_module load_compiled load_dynamic load_package")
        | _names("site", "addsitedir addpackage main execsitecustomize execusercustomize"),
    ),
    DeniedGroup(
        why="calls what it is given by name",
        source="picklescan, modelscan (operator, functools.partial), fickling (gc)",
        modules=_modules("gc"),
        names=_names("operator", "attrgetter itemgetter methodcaller")
        | _names("_operator", "attrgetter itemgetter methodcaller")
        | _names("functools", "partial partialmethod reduce")
        | _names("__builtin__", "reduce")
        | _names("_functools", "partial reduce"),
    ),
    DeniedGroup(
        why="unpickles something else",
        source="picklescan, fickling, modelscan",
        modules=_modules("pickle _pickle cPickle marshal shelve dill cloudpickle joblib jsonpickle"),
        names=_names("pickle", "load loads Unpickler")
        | _names("pandas", "read_pickle eval")
        | _names("pandas.io.pickle", "read_pickle")
        | _names("yaml", "load unsafe_load full_load")
        | _names("torch.storage", "_load_from_bytes")
        | _names("torch.utils.serialization", "load"),
    ),
    DeniedGroup(
        why="changes files",
        source="picklescan, fickling",
        modules=_modules("shutil distutils fileinput tarfile zipfile logging.handlers"),
        names=_names("io", "open open_code FileIO")
        | _names("_io", "open open_code FileIO")
        | _names("codecs", "open")
        | _names("gzip", "open GzipFile")
        | _names("bz2", "open BZ2File")
        | _names("lzma", "open LZMAFile")
        | _names("logging", "FileHandler basicConfig")
        | _names("torch", "save from_file UntypedStorage.from_file")
        | _names("torch.serialization", "save")
        | _names("torch.storage", "UntypedStorage.from_file")
        | frozenset(
            f"{module}.{kind}.{method}"
            for module in ("pathlib", "pathlib._local")
            for kind in ("Path", "PosixPath", "WindowsPath")
            for method in _PATH_WRITES.split()
        ),
    ),
    DeniedGroup(
        why="reaches the network, a browser, or installs packages",
        source="picklescan, fickling, modelscan",
        modules=_modules(
            "socket _socket socketserver ssl webbrowser http.client http.server httplib urllib.request"
            " urllib2 requests.api requests.sessions asyncio smtplib ftplib imaplib poplib nntplib telnetlib"
            " aiohttp xmlrpc pip ensurepip venv"
            # what `fix_imports` of pickle turns into some of these (Lib/_compat_pickle.py)
            " SocketServer xmlrpclib SimpleXMLRPCServer DocXMLRPCServer BaseHTTPServer SimpleHTTPServer"
            " CGIHTTPServer"
        ),
        names=_names("urllib", "urlopen urlretrieve urlcleanup getproxies pathname2url url2pathname"),
    ),
    DeniedGroup(
        why="starts processes or handlers that run code",
        source="fickling; multiprocessing's containers are no checkpoint content",
        modules=_modules("multiprocessing _multiprocessing atexit _thread thread"),
        names=_names("multiprocessing", "Process Pool"),
    ),
    DeniedGroup(
        why="torch: loads pickles or compiles code",
        source="picklescan; torch.hub, torch.jit.load, torch.package, cpp_extension: ours",
        modules=_modules("torch.hub torch.package torch.utils.cpp_extension torch.utils.collect_env"),
        names=_names("torch", "load compile")
        | _names("torch.serialization", "load _load _legacy_load")
        | _names("torch.jit", "load script trace CompilationUnit")
        | _names("torch.jit.unsupported_tensor_ops", "execWrapper")
        | _names("torch._dynamo.guards", "GuardBuilder.get")
        | _names("torch._inductor.codecache", "compile_file")
        | _names("torch._utils", "_import_dotted_name")
        | _names("torch._C", "import_ir_module import_ir_module_from_buffer")
        | _names("torch.ops", "load_library")
        | _names("torch.classes", "load_library")
        | _names("torch.export", "load")
        | _names("torch.fx.graph_module", "reduce_graph_module reduce_package_graph_module")
        | _names("torch.fx.graph_module", "_exec_with_source _forward_from_src _deserialize_graph_module")
        | _names("torch.fx.experimental.symbolic_shapes", "ShapeEnv.evaluate_guards_expression")
        | _names("torch.utils._config_module", "ConfigModule.load_config")
        | _names("torch.utils.bottleneck.__main__", "run_cprofile run_autograd_prof")
        | _names("torch.utils.data.datapipes.utils.decoder", "basichandlers"),
    ),
    DeniedGroup(
        why="numpy: loads pickles or libraries, or runs strings",
        source="picklescan (f2py, testing), fickling; load and ctypeslib: picklescan's remarks",
        modules=_modules("numpy.f2py numpy.testing numpy.ctypeslib numpy.distutils"),
        names=_names("numpy", "load loads fromfile save savez savetxt")
        | _names("numpy.lib.npyio", "load")
        | _names("numpy.lib._npyio_impl", "load"),
    ),
)

_MODULES: Final = frozenset[str]().union(*(group.modules for group in DENIED_GROUPS))
_NAMES: Final = frozenset[str]().union(*(group.names for group in DENIED_GROUPS))

_DEEPEST: Final = 1 + max(name.count(".") for name in _MODULES | _NAMES)
_MAX_PARTS: Final = 64
"""No name of a class is so deep; bounds the time that 10,000 hostile names may take."""

_REACHED_THROUGH: Final = _modules(
    "os subprocess builtins posix nt importlib shutil sys pty runpy ctypes marshal"
)
"""Modules that others hold as an attribute: `torch.serialization.os.system` is `os.system`,
and `random._os.system` too."""
_NAMED_THROUGH: Final = _modules("codecs functools io operator pickle typing multiprocessing torch")
"""As these, but of which a user's own package may have a namesake: only their denied names count."""

_HONEST_DUNDERS: Final = frozenset({"__main__", "__mp_main__", "__init__"})


def is_denied(dotted: str) -> bool:
    """Say whether unpickling this global could run code.

    Args:
        dotted: `module.name`; the name may be qualified (`Class.method`, `os.system`),
            because protocol 4 walks its dots as attributes.

    Cost: some microseconds, whatever the name.
    """
    parts = dotted.split(".", _MAX_PARTS)
    if len(parts) > _MAX_PARTS or _is_listed(parts):
        return True
    inner = [part.lstrip("_") or part for part in parts[1:-1]]
    if not _REACHED_THROUGH.isdisjoint(inner) or any(map(_reaches_inside, parts[1:])):
        return True
    return any(
        part in _NAMED_THROUGH and not _NAMES.isdisjoint(_heads([part, *parts[at:]]))
        for at, part in enumerate(inner, start=2)
    )


def _is_listed(parts: Sequence[str]) -> bool:
    heads = _heads(parts)
    return not _NAMES.isdisjoint(heads) or not _MODULES.isdisjoint(heads[: len(parts) - 1])


def _heads(parts: Sequence[str]) -> list[str]:
    return [".".join(parts[:count]) for count in range(1, min(len(parts), _DEEPEST) + 1)]


def _reaches_inside(part: str) -> bool:
    """Say whether an attribute leads into the interpreter: `X.__builtins__.get` is one step from `eval`."""
    return part.startswith("__") and part.endswith("__") and part not in _HONEST_DUNDERS


def why_denied(dotted: str) -> str:
    """Return what a denied global allows, for its finding; empty if it is not denied."""
    if not is_denied(dotted):
        return ""
    for group in DENIED_GROUPS:
        if dotted in group.names or any(dotted.startswith(f"{module}.") for module in group.modules):
            return group.why
    return "reaches a module that runs code"
