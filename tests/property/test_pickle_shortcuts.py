"""Reading with shortcuts is reading: the same tables, or the same kind of refusal."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptguard.errors import CkptGuardError
from ckptguard.formats import dcp_shortcuts
from ckptguard.formats.dcp_builders import BUILDERS
from ckptguard.formats.dcp_metadata import read_metadata
from ckptguard.formats.pickle_reader import read_pickle
from ckptguard.formats.pickle_shortcut import size_of, uint
from ckptguard.model.policy import Limits

MUTATIONS = 300
SEED = 20261129


def tables(data: bytes, *, has_shortcuts: bool) -> object:
    return read_metadata(data, file="m", limits=Limits(), has_shortcuts=has_shortcuts)


def outcome(data: bytes, *, has_shortcuts: bool) -> object:
    """Return the tables, or the kind of error and its place."""
    try:
        read_pickle(data, builders=BUILDERS, has_shortcuts=has_shortcuts)
    except CkptGuardError as error:
        return type(error), str(error)
    return tables(data, has_shortcuts=has_shortcuts)


def metadata_files(corpus: Path) -> list[Path]:
    return sorted([*corpus.rglob(".metadata"), *corpus.rglob("__*.metadata")])


def test_every_metadata_of_the_corpus_reads_the_same(corpus_dir: Path) -> None:
    for path in metadata_files(corpus_dir):
        data = path.read_bytes()
        assert tables(data, has_shortcuts=True) == tables(data, has_shortcuts=False), path


def test_shortcuts_are_taken(corpus_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {"stored": 0, "tensors": 0}
    push = dcp_shortcuts._StoredShortcut._push
    entry = dcp_shortcuts._TensorShortcut._push

    def count_push(self: object, match: object) -> bool:
        taken["stored"] += 1
        return push(self, match)  # type: ignore[arg-type]

    def count_entry(*args: object) -> None:
        taken["tensors"] += 1
        entry(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(dcp_shortcuts._StoredShortcut, "_push", count_push)
    monkeypatch.setattr(dcp_shortcuts._TensorShortcut, "_push", count_entry)
    tables((corpus_dir / "dcp_torch2_13_0_many2000_ws2" / ".metadata").read_bytes(), has_shortcuts=True)
    assert taken["stored"] > 1980
    assert taken["tensors"] > 1980


@pytest.mark.parametrize(
    "name",
    [
        "dcp_torch2_13_0_uneven_ws4",
        "dcp_torch2_8_0_dtypes_nodist",
        "dcp_torch2_13_0_threads16_emptyfiles_ws2",
    ],
)
def test_mutated_metadata_has_the_same_outcome(corpus_dir: Path, name: str) -> None:
    rng = random.Random(SEED)  # noqa: S311 - a seeded choice of damage
    data = (corpus_dir / name / ".metadata").read_bytes()
    for number in range(MUTATIONS):
        mutated = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            mutated[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.1:
            start = rng.randrange(len(data))
            mutated[start : start + rng.randrange(1, 20)] = rng.randbytes(rng.randrange(1, 20))
        raw = bytes(mutated)
        same = outcome(raw, has_shortcuts=True) == outcome(raw, has_shortcuts=False)
        assert same, f"seed {SEED}, mutation {number} of {name}"


def test_every_single_bit_flip_of_a_small_metadata_ends_in_tables(corpus_dir: Path) -> None:
    data = (corpus_dir / "dcp_torch2_13_0_shardedtensor_ws2" / ".metadata").read_bytes()
    for offset in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[offset] ^= 1 << bit
            tables(bytes(flipped), has_shortcuts=False)


@given(st.lists(st.integers(0, 2**47 - 1), max_size=32))
def test_sizes_in_shortcuts_are_those_of_the_opcodes(sizes: list[int]) -> None:
    import pickle  # noqa: PLC0415 - writes, never reads

    raw = pickle.dumps(tuple(sizes), 2)[2:-1]
    end = raw.rfind(b"q\x00") if sizes else len(raw)
    spelled = raw[:end] + b"\x94" if sizes else b")"
    assert size_of(spelled) == tuple(sizes)


@given(st.integers(0, 2**47 - 1))
def test_numbers_in_shortcuts_are_those_of_the_opcodes(number: int) -> None:
    import pickle  # noqa: PLC0415 - writes, never reads

    assert uint(pickle.dumps(number, 2)[2:-1]) == number


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_end_in_tables(data: bytes) -> None:
    tables(data, has_shortcuts=True)
    tables(b"\x80\x04" + data, has_shortcuts=False)
