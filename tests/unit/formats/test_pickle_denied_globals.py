"""The list of globals that condemn a checkpoint."""

import pytest

from ckptguard.formats.dcp_builders import KNOWN_GLOBALS
from ckptguard.formats.denied_globals import DENIED_GROUPS, is_denied, why_denied

DENIED = """
os.system posix.system nt.system subprocess.Popen pty.spawn builtins.eval builtins.exec builtins.getattr
builtins.__import__ __builtin__.eval __builtin__.apply builtins.open builtins.breakpoint builtins.input
importlib.import_module
importlib._bootstrap._gcd_import runpy.run_path sys.modules shutil.rmtree
socket.socket ctypes.CDLL pip.main pip._internal.main webbrowser.open
asyncio.subprocess.create_subprocess_shell
multiprocessing.Process multiprocessing.util.spawnv_passfds pickle.loads _pickle.loads marshal.loads
operator.attrgetter operator.methodcaller operator.itemgetter functools.partial types.FunctionType
types.CodeType code.InteractiveInterpreter.runcode codeop.compile_command commands.getoutput timeit.timeit
pdb.run bdb.Bdb cProfile.run torch.load torch.serialization.load torch.hub.load torch.jit.load numpy.load
numpy.testing._private.utils.runstring builtins.eval.__call__ torch.serialization.os.system
torch.utils.data.subprocess.run requests.api.get http.client.HTTPSConnection
"""

HARMLESS = """
collections.OrderedDict builtins.set __builtin__.set builtins.complex datetime.datetime uuid.UUID
http.HTTPStatus urllib.parse.ParseResult types.SimpleNamespace numpy.ndarray numpy.dtype numpy.memmap
numpy._core.multiarray._reconstruct pathlib.PosixPath pathlib._local.PosixPath _codecs.encode
torch._utils._rebuild_tensor_v2 torch.Size torch.storage.UntypedStorage code.model.TrainState
trace.events.Span acme.os osmium.Reader system.Config torchtitan.config.JobConfig functools.cached_property
"""


@pytest.mark.parametrize("dotted", DENIED.split())
def test_what_runs_code_is_denied(dotted: str) -> None:
    assert is_denied(dotted)
    assert why_denied(dotted)


@pytest.mark.parametrize("dotted", HARMLESS.split())
def test_what_honest_checkpoints_hold_is_not_denied(dotted: str) -> None:
    assert not is_denied(dotted)
    assert not why_denied(dotted)


def test_no_known_global_is_denied() -> None:
    assert not [name for name in KNOWN_GLOBALS if is_denied(name)]


def test_every_group_says_why_and_who_lists_it() -> None:
    for group in DENIED_GROUPS:
        assert group.why
        assert group.source
        assert group.modules or group.names
        assert all("." in name for name in group.names)
