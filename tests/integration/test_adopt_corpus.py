"""Every real checkpoint of the corpus: `adopt` tells of it what `register` tells, and opens far less."""

import json
from pathlib import Path
from typing import Any

import pytest

from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.formats.registry import adapters
from ckptguard.model.manifest import ChecksumSource, Origin, identity
from ckptguard.operations.adopt.adoption import Wish as AdoptWish
from ckptguard.operations.adopt.prepare import Reader, location
from ckptguard.operations.adopt.sweep import Naming, Sweep, sweep
from ckptguard.operations.register import Wish, registrations
from ckptguard.storage.open_url import open_location
from ckptguard.testing.edits import copy_checkpoint
from ckptguard.testing.save_manifest import leave_manifest
from tests.unit.operations.adopt.adopting import CORPUS, SAVE, CountingStore

STEP = 7
MAY_OPEN = (".metadata", "ckptguard.manifest.json")


def swept(root: Path) -> tuple[Sweep, CountingStore]:
    store, prefix = open_location(str(root))
    counting = CountingStore(store)
    return sweep(counting, prefix, Naming(run="r"), adapters()), counting


def told_by_adopt(root: Path) -> tuple[list[dict[str, Any]], list[str]]:
    seen, counting = swept(root)
    (found,) = seen.found
    prepared = Reader(sweep=seen).prepare(found, is_validated=True)
    assert prepared.error is None
    calls = prepared.calls(location(seen, found, {}), AdoptWish(target="", naming=Naming(run="r")).depth)
    return [dict(call.body or {}) for call in calls], counting.opened


def names(corpus: Path) -> list[str]:
    return sorted(path.name for path in corpus.iterdir() if path.is_dir())


def test_adopt_tells_the_same_as_register_of_every_committed_checkpoint(
    corpus_dir: Path, tmp_path: Path
) -> None:
    told = 0
    for name in names(corpus_dir):
        root = tmp_path / name
        copy_checkpoint(corpus_dir / name, root / f"step-{STEP}")
        seen, _ = swept(root)
        if [found.doubt for found in seen.found] != [None]:
            continue
        by_adopt, opened = told_by_adopt(root)
        asked = registrations(Wish(target=str(root / f"step-{STEP}"), run="r", step=STEP, stores={}))
        assert by_adopt == [dict(each.call.body or {}) for each in asked], name
        assert all(path.endswith(MAY_OPEN) for path in opened), (name, opened)
        told += 1
    assert told >= 50, told


@pytest.mark.parametrize("name", ["dcp_killed_before_metadata"])
def test_a_save_that_was_killed_is_not_committed(corpus_dir: Path, tmp_path: Path, name: str) -> None:
    copy_checkpoint(corpus_dir.parent / "corpus_broken" / name, tmp_path / "ckpts" / "step-1")
    seen, _ = swept(tmp_path / "ckpts")
    assert [found.doubt for found in seen.found] == ["no .metadata"]


def test_a_manifest_beside_the_shards_is_sent_along_and_not_as_the_writers_own_word(tmp_path: Path) -> None:
    folder = copy_checkpoint(CORPUS / SAVE, tmp_path / "ckpts" / f"step-{STEP}")
    left = parse_manifest(leave_manifest(folder, format_name="dcp").read_bytes())
    (body,), opened = told_by_adopt(tmp_path / "ckpts")
    sent = parse_manifest(json.dumps(body["manifest"]).encode())
    assert (left.origin, sent.origin) == (Origin.SAVE, Origin.READ_BACK)
    assert {file.checksum_source for file in sent.files} == {ChecksumSource.STORAGE}
    assert identity(sent) == identity(left)
    assert body["save_id"] == left.save_id
    assert opened == [f"ckpts/step-{STEP}/ckptguard.manifest.json"]
    (asked,) = registrations(Wish(target=str(folder), run="r", stores={}))
    assert (asked.call.body or {})["manifest"] == body["manifest"], "register says more than adopt"
    given = Wish(target=str(folder), run="r", stores={}, manifest=folder / "ckptguard.manifest.json")
    (asked,) = registrations(given)
    assert asked.manifest is not None
    assert asked.manifest.origin is Origin.SAVE, "the user vouches for a file that he names"


def test_a_manifest_that_cannot_be_used_is_left_to_the_check(tmp_path: Path) -> None:
    folder = copy_checkpoint(CORPUS / SAVE, tmp_path / "ckpts" / f"step-{STEP}")
    (folder / "ckptguard.manifest.json").write_text("{")
    seen, _ = swept(tmp_path / "ckpts")
    prepared = Reader(sweep=seen).prepare(seen.found[0], is_validated=True)
    assert (prepared.error, prepared.manifests) == (None, ())
    assert "without its manifest" in prepared.notes[0]
    assert prepared.save_id
