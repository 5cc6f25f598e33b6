"""A save is read back by another process, and an old manifest never outlives what it lists."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.integrations import incidents
from ckptguard.integrations.dcp import SaveFacts
from ckptguard.integrations.read_back import MAX_WAITING, ReadBacks
from ckptguard.integrations.registration.spool import Spool
from ckptguard.model.manifest import MANIFEST_NAME, ChecksumSource, Origin
from tests.fresh_spool import spooled

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("own_spool")]
_WITHIN_S = 60.0
_FACTS = SaveFacts(run="r", step=3)


@pytest.fixture
def reads() -> Iterator[ReadBacks]:
    """Return the reader of a fresh process."""
    fresh = ReadBacks()
    yield fresh
    fresh.stop()
    assert fresh.settle(_WITHIN_S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that a trainer wrote."""
    made = tmp_path / "r" / "global_step3"
    made.mkdir(parents=True)
    (made / "weights.bin").write_bytes(b"weights")
    return made


def test_a_save_gets_a_manifest_of_what_is_stored(reads: ReadBacks, folder: Path, own_spool: Spool) -> None:
    reads.begin(str(folder), _FACTS)
    reads.finish(str(folder), _FACTS)
    assert reads.settle(_WITHIN_S)
    manifest = parse_manifest((folder / MANIFEST_NAME).read_bytes())
    assert (manifest.run, manifest.step, manifest.origin) == ("r", 3, Origin.READ_BACK)
    assert {file.checksum_source for file in manifest.files} == {ChecksumSource.STORAGE}
    [entry] = spooled(own_spool)
    assert (entry.run, entry.step, entry.save_id) == ("r", 3, manifest.save_id)


def test_the_manifest_of_an_earlier_save_is_gone_before_the_next_is_written(
    reads: ReadBacks, folder: Path
) -> None:
    (folder / MANIFEST_NAME).write_text("of an earlier save")
    reads.begin(str(folder), _FACTS)
    assert not (folder / MANIFEST_NAME).exists()


def test_a_save_that_is_overtaken_gets_no_manifest(reads: ReadBacks, folder: Path, own_spool: Spool) -> None:
    reads.begin(str(folder), _FACTS)
    reads.finish(str(folder), _FACTS)
    reads.begin(str(folder), _FACTS)  # the trainer saves there again, and has not finished
    assert reads.settle(_WITHIN_S)
    assert not (folder / MANIFEST_NAME).exists()
    assert own_spool.names() == []


def test_what_cannot_be_read_back_is_told_and_hurts_nobody(
    reads: ReadBacks, tmp_path: Path, own_spool: Spool
) -> None:
    missing = str(tmp_path / "r" / "global_step9")
    reads.begin(missing, _FACTS)
    reads.finish(missing, _FACTS)
    assert reads.settle(_WITHIN_S)
    assert incidents.counters()["manifest_failed"] == 1
    assert own_spool.names() == []


def test_without_a_run_nothing_is_registered(reads: ReadBacks, folder: Path, own_spool: Spool) -> None:
    reads.finish(str(folder), SaveFacts(step=3))
    assert reads.settle(_WITHIN_S)
    assert (folder / MANIFEST_NAME).exists()
    assert own_spool.names() == []


def test_saves_that_wait_are_bounded(reads: ReadBacks, folder: Path) -> None:
    for _ in range(MAX_WAITING + 3):
        reads.finish(str(folder), _FACTS)
    assert incidents.counters()["read_back_late"] >= 2
    reads.stop()
    assert reads.settle(_WITHIN_S)


def test_the_process_that_reads_gets_no_token(
    reads: ReadBacks, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spy = tmp_path / "python"
    spy.write_text(f"#!/bin/sh\nenv > {tmp_path}/environment\nexit 1\n")
    spy.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(spy))
    monkeypatch.setenv("CKPTGUARD_TOKEN", "ckg_secret")
    monkeypatch.setenv("CKPTGUARD_TOKEN_FILE", "/secret")
    reads.finish(str(folder), _FACTS)
    assert reads.settle(_WITHIN_S)
    assert "secret" not in (tmp_path / "environment").read_text()
