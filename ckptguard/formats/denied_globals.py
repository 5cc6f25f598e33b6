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

DENIED_GROUPS: Final = (
    DeniedGroup(
        why="runs programs",
        source="picklescan, modelscan, fickling",
        modules=_modules("os posix nt subprocess pty popen2 pexpect _posixsubprocess"),
        names=_names("commands", "getoutput getstatus getstatusoutput") | _names("pipes", "Template"),
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
        | _names("_functools", "partial reduce"),
    ),
    DeniedGroup(
        why="unpickles something else",
        source="picklescan, fickling, modelscan",
        modules=_modules("pickle _pickle cPickle marshal shelve dill cloudpickle joblib jsonpickle"),
        names=_names("pandas", "read_pickle eval")
        | _names("pandas.io.pickle", "read_pickle")
        | _names("yaml", "load unsafe_load full_load"),
    ),
    DeniedGroup(
        why="changes files",
        source="picklescan, fickling",
        modules=_modules("shutil distutils fileinput tarfile zipfile"),
    ),
    DeniedGroup(
        why="reaches the network, a browser, or installs packages",
        source="picklescan, fickling, modelscan",
        modules=_modules(
            "socket _socket socketserver ssl webbrowser http.client http.server httplib urllib.request"
            " urllib2 requests.api requests.sessions asyncio smtplib ftplib imaplib poplib nntplib telnetlib"
            " aiohttp xmlrpc pip ensurepip venv"
        ),
    ),
    DeniedGroup(
        why="starts processes or handlers that run code",
        source="fickling; multiprocessing's containers are no checkpoint content",
        modules=_modules("multiprocessing atexit _thread"),
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

_REACHED_THROUGH: Final = frozenset({"os", "subprocess", "builtins", "posix", "importlib", "shutil"})
"""Modules that others hold as an attribute: `torch.serialization.os.system` is `os.system`."""


def is_denied(dotted: str) -> bool:
    """Say whether unpickling this global could run code.

    Args:
        dotted: `module.name`; the name may be qualified (`Class.method`, `os.system`),
            because protocol 4 walks its dots as attributes.
    """
    parts = dotted.split(".")
    if any(".".join(parts[:count]) in _NAMES for count in range(2, len(parts) + 1)):
        return True
    if any(".".join(parts[:count]) in _MODULES for count in range(1, len(parts))):
        return True
    return any(part in _REACHED_THROUGH for part in parts[1:-1])


def why_denied(dotted: str) -> str:
    """Return what a denied global allows, for its finding; empty if it is not denied."""
    if not is_denied(dotted):
        return ""
    for group in DENIED_GROUPS:
        if dotted in group.names or any(dotted.startswith(f"{module}.") for module in group.modules):
            return group.why
    return "reaches a module that runs code"
