"""Denied globals that are reached through other names, and honest names that only look like them."""

import time

import pytest

from ckptguard.formats.denied_globals import is_denied

REACHED = """
random._os.system tempfile._os.system collections.__builtins__.get torch.serialization.__builtins__.get
json.loads.__globals__.get enum.sys.modules.get torch.nn.functools.partial acme.deep._operator.attrgetter
torch.functional.pickle.loads torch.utils.data.multiprocessing.Process inspect.builtins.eval
torch.storage._load_from_bytes torch.save torch.UntypedStorage.from_file
torch.fx.graph_module.reduce_graph_module
io.open _io.FileIO codecs.open gzip.GzipFile pathlib.Path.write_text pathlib._local.PosixPath.unlink
logging.FileHandler logging.config.dictConfig uuid._get_command_stdout unittest.mock._importer
dataclasses._create_fn typing.ForwardRef test.support.script_helper.assert_python_ok
thread.start_new_thread __builtin__.reduce urllib.urlretrieve BaseHTTPServer.HTTPServer
"""

HONEST = """
acme.os acme.pickle.State acme.multiprocessing.Config acme.functools.Cached acme.io.Reader acme.trace.Trace
acme.profile.Profile acme.pipes.Template acme.code.Block acme.operator.Add __main__.Config acme.__main__.Args
acme.model.__init__.Model torch.io.Something collections.OrderedDict.fromkeys logging.Logger logging.getLogger
typing.Optional uuid.UUID dataclasses.MISSING pathlib.PosixPath pathlib.PurePosixPath.joinpath io.BytesIO
torch.utils.data.distributed.DistributedSampler megatron.core.optimizer.OptimizerConfig codecs.encode
"""


@pytest.mark.parametrize("dotted", REACHED.split())
def test_what_leads_to_a_denied_global_is_denied(dotted: str) -> None:
    assert is_denied(dotted)


@pytest.mark.parametrize("dotted", HONEST.split())
def test_a_namesake_in_a_users_package_is_not_denied(dotted: str) -> None:
    assert not is_denied(dotted)


def test_a_name_of_hundreds_of_parts_is_denied_at_once() -> None:
    started = time.process_time()
    for number in range(10_000):
        assert is_denied(f"a{number}" + ".a" * 900)
    assert time.process_time() - started < 2
