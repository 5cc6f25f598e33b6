"""The command starts quickly and brings nothing that a training job does not want."""

import json
import resource
import subprocess
import sys

import pytest

from ckptguard.cli.commands import BUILT_INS

FORBIDDEN = ("torch", "numpy", "fastapi", "uvicorn", "sqlalchemy", "alembic", "rich", "fsspec", "s3fs")
IMPORT = "import ckptguard"
HELP = "from ckptguard.cli.main import run; run(['--help'])"
GOAL_S = 0.3


@pytest.mark.parametrize("code", [IMPORT, HELP], ids=["import", "help"])
def test_neither_import_nor_help_brings_torch_or_a_server(code: str) -> None:
    tail = "; import json, sys; sys.stderr.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code + tail], check=True, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stderr)}
    assert not loaded.intersection(FORBIDDEN)


@pytest.mark.parametrize("code", [IMPORT, HELP], ids=["import", "help"])
def test_import_and_help_take_less_than_the_goal(code: str) -> None:
    assert min(_cpu_seconds([sys.executable, "-c", code]) for _ in range(7)) < GOAL_S


def _cpu_seconds(command: list[str]) -> float:
    """Return what a process took of a core: on a quiet machine its wall time, on a busy one still itself."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_the_help_of_every_command_has_examples_and_needs_no_torch() -> None:
    names = sorted(BUILT_INS)
    code = (
        f"from ckptguard.cli.main import run\nfor name in {names!r}:\n    run([name, '--help'])\n"
        "import sys; assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    without = [name for name in names if f"Examples:\n    ckptguard {name}" not in done.stdout]
    assert not without
