"""What stock's unpickler refuses of a `.metadata`, we never call sound."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from ckptguard.formats.dcp_builders import KNOWN_GLOBALS
from ckptguard.formats.dcp_metadata import read_metadata
from ckptguard.model.finding import Severity
from ckptguard.model.policy import Limits

pytestmark = pytest.mark.torch

FLIPS = 1500
SEED = 20261129

STOCK = """
import pickle, resource, sys, warnings
import torch.distributed.checkpoint.metadata
warnings.simplefilter("ignore")
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))  # flipped memo indices ask for any amount
content = open(sys.argv[1], "rb").read()
for line in sys.stdin:
    offset, bit = map(int, line.split())
    changed = bytearray(content)
    changed[offset] ^= 1 << bit
    try:
        pickle.loads(bytes(changed))
        print(1, flush=True)
    except BaseException:
        print(0, flush=True)
"""


def is_called_sound(content: bytes) -> bool:
    tables = read_metadata(content, file=".metadata", limits=Limits())
    severities = {finding.severity for finding in tables.findings}
    return not severities & {Severity.ERROR, Severity.UNKNOWN} and tables.globals <= KNOWN_GLOBALS


@pytest.mark.slow
def test_no_flip_that_stock_refuses_to_unpickle_is_called_sound(corpus_dir: Path) -> None:
    path = corpus_dir / "dcp_torch2_13_0_nodist" / ".metadata"
    content, chance = path.read_bytes(), random.Random(SEED)  # noqa: S311 - a seeded test
    flips = [(chance.randrange(len(content)), chance.randrange(8)) for _ in range(FLIPS)]
    stock = subprocess.run(
        [sys.executable, "-c", STOCK, str(path)],
        input="".join(f"{offset} {bit}\n" for offset, bit in flips),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = stock.stdout.split()
    assert len(answers) == FLIPS
    missed = []
    for (offset, bit), is_accepted in zip(flips, answers, strict=True):
        changed = bytearray(content)
        changed[offset] ^= 1 << bit
        if is_accepted == "0" and is_called_sound(bytes(changed)):
            missed.append((offset, bit))
    assert answers.count("0") > FLIPS // 4
    assert not missed, f"seed {SEED}"
