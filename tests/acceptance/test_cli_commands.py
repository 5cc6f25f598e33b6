"""`manifest`, `damage` and `doctor` as processes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.model.manifest import MANIFEST_NAME, Origin

if TYPE_CHECKING:
    import subprocess

Ckptguard = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_manifest_written_beside_the_shards_makes_a_later_check_unchanged(
    ckptguard: Ckptguard, run_folder: Path
) -> None:
    done = ckptguard("manifest", run_folder / "step-2", "--write")
    assert done.returncode == 0, done.stderr
    assert "origin    read_back" in done.stdout
    assert "run       run-7, step 2" in done.stdout
    report = json.loads(ckptguard("check", run_folder / "step-2", "--depth", "content", "--json").stdout)
    assert (report["verdict"], report["provenance"]) == ("VALID", "unchanged")


def test_a_manifest_goes_to_standard_output_whole(ckptguard: Ckptguard, run_folder: Path) -> None:
    text = ckptguard("manifest", run_folder / "step-2", "--run", "other", "--step", 7).stdout
    manifest = parse_manifest(text.encode())
    assert (manifest.run, manifest.step, manifest.origin) == ("other", 7, Origin.READ_BACK)
    assert {file.path for file in manifest.files} == {".metadata", "__0_0.distcp", "__1_0.distcp"}


def test_a_manifest_is_never_written_over_another(ckptguard: Ckptguard, run_folder: Path) -> None:
    assert ckptguard("manifest", run_folder / "step-2", "--write").returncode == 0
    before = (run_folder / "step-2" / MANIFEST_NAME).read_bytes()
    done = ckptguard("manifest", run_folder / "step-2", "--write", "--run", "other")
    assert done.returncode == 2
    assert "is there already" in done.stderr
    assert (run_folder / "step-2" / MANIFEST_NAME).read_bytes() == before


def test_a_manifest_can_be_shown(ckptguard: Ckptguard, run_folder: Path) -> None:
    written = json.loads(ckptguard("manifest", run_folder / "step-2", "--write", "--json").stdout)
    shown = json.loads(ckptguard("manifest", "--show", written["file"], "--json").stdout)
    assert shown == written
    assert shown["identity"].startswith("sha256:")


def test_every_problem_of_a_bad_manifest_is_listed(ckptguard: Ckptguard, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"manifest_version": 1, "run": 7, "step": "x"}', encoding="utf-8")
    done = ckptguard("manifest", "--show", "bad.json", "--json")
    assert done.returncode == 30
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "manifest_format"
    assert len(error["problems"]) > 2


def test_damage_is_done_to_a_new_copy_only(ckptguard: Ckptguard, run_folder: Path) -> None:
    original = {path.name: path.read_bytes() for path in (run_folder / "step-2").iterdir()}
    done = ckptguard("damage", run_folder / "step-2", "copy", "--seed", 3, "--json")
    assert done.returncode == 0, done.stderr
    damage = json.loads(done.stdout)["damage"]
    copy = {path.name: path.read_bytes() for path in (run_folder.parent / "copy").iterdir()}
    assert {path.name: path.read_bytes() for path in (run_folder / "step-2").iterdir()} == original
    assert [name for name in copy if copy[name] != original[name]] == [damage["file"]]
    assert ckptguard("damage", run_folder / "step-2", "copy").returncode == 2


def test_damage_says_what_should_find_it(ckptguard: Ckptguard, run_folder: Path) -> None:
    done = ckptguard("damage", run_folder / "step-2", "a copy", "--kind", "truncate", "--length", "1KiB")
    assert done.stdout.splitlines()[-1] == "next: ckptguard check 'a copy'"


def test_doctor_proves_a_checkpoint_of_its_own(ckptguard: Ckptguard) -> None:
    done = ckptguard("doctor", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert done.returncode == 0, done.stdout
    assert rows["self test"]["health"] == "ok", rows["self test"]
    assert rows["python"]["health"] == "ok"
