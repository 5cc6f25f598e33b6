"""What a folder is: one checkpoint, several parts, steps, nothing, or something else."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ckptguard.errors import ObjectNotFoundError
from ckptguard.formats.checkpoint import Checkpoint
from ckptguard.formats.discover import discover, discover_all
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Layout, MetadataFile, Shard
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.local import LocalStore
from ckptguard.storage.protocol import Store

CHECKSUM = Checksum(algorithm=Algorithm.XXH3_128, hex_digits="0" * 32)


@dataclass
class FakeAdapter:
    """Takes every file of its pattern as a shard, and tells one finding about the first."""

    name: str
    pattern: str
    metadata: str = ""

    def recognises(self, listing: Listing) -> bool:
        """Say whether a file of the pattern stands directly in the folder."""
        return any(re.fullmatch(f"{self.pattern}|{re.escape(self.metadata)}", name) for name in listing.names)

    def open(self, store: Store, listing: Listing, limits: Limits) -> tuple[Layout, ...]:
        """Describe the folder; the store must really hold what is listed."""
        assert limits
        names = [name for name in listing.names if re.fullmatch(self.pattern, name)]
        stats = [store.stat(listing.in_store(name)) for name in names]
        assert all(stat.length_bytes >= 0 for stat in stats)
        info = Finding(
            code=FindingCode.OBJECT_NOT_BUILT,
            check=CheckName.CONTENT,
            severity=Severity.INFO,
            message="told by the adapter",
            file=names[0] if names else None,
        )
        metadata = [name for name in listing.names if name == self.metadata]
        return (
            Layout(
                format=self.name,
                metadata_files=tuple(
                    MetadataFile(path=name, length_bytes=0, checksum=CHECKSUM) for name in metadata
                ),
                shards=tuple(
                    Shard(path=name, encoding=Encoding.OPAQUE, items=(), min_length_bytes=0) for name in names
                ),
                findings=(info,),
                sidecars=tuple(name for name in listing.names if name not in {*names, *metadata}),
            ),
        )


DCP = FakeAdapter("dcp", r"__\d+_\d+\.distcp|__\d+\.metadata", ".metadata")
SAFETENSORS = FakeAdapter("safetensors", r"[^.].*\.safetensors")
TORCH_SAVE = FakeAdapter("torch_save", r"[^.].*\.(pt|pth|bin|pkl)")
FAKES = (DCP, SAFETENSORS, TORCH_SAVE)


def build(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")
    return root


def dcp(folder: str) -> tuple[str, ...]:
    head = f"{folder}/" if folder else ""
    return (f"{head}.metadata", f"{head}__0_0.distcp")


def look(root: Path, folder: str = "", *, step: int | None = None) -> Checkpoint:
    store = LocalStore(root)
    return discover(store, list_folder(store, folder, max_files=10_000), Limits(), step=step, adapters=FAKES)


def parts(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    return [(layout.format, layout.part) for layout in checkpoint.layouts]


def codes(findings: Sequence[Finding]) -> list[tuple[FindingCode, Severity]]:
    return [(one.code, one.severity) for one in findings if one.code is not FindingCode.OBJECT_NOT_BUILT]


def doubts(checkpoint: Checkpoint) -> list[tuple[FindingCode, Severity]]:
    return codes([finding for layout in checkpoint.layouts for finding in layout.findings])


def test_one_folder_is_one_part(tmp_path: Path) -> None:
    checkpoint = look(build(tmp_path, *dcp("")))
    assert parts(checkpoint) == [("dcp", "")]
    assert checkpoint.steps == ()
    assert doubts(checkpoint) == []
    assert checkpoint.surroundings == ()


def test_two_folders_are_two_parts_whose_paths_start_at_the_root(tmp_path: Path) -> None:
    build(tmp_path, *dcp("c/pytorch_model_fsdp_0"), *dcp("c/optimizer_0"))
    checkpoint = look(tmp_path, "c")
    assert checkpoint.root == "c"
    assert parts(checkpoint) == [("dcp", "optimizer_0"), ("dcp", "pytorch_model_fsdp_0")]
    first = checkpoint.layouts[0]
    assert [shard.path for shard in first.shards] == ["optimizer_0/__0_0.distcp"]
    assert [file.path for file in first.metadata_files] == ["optimizer_0/.metadata"]
    assert [finding.file for finding in first.findings] == ["optimizer_0/__0_0.distcp"]


def test_torch_files_in_a_dcp_folder_are_its_sidecars(tmp_path: Path) -> None:
    checkpoint = look(build(tmp_path, *dcp(""), "meta.pt", "common.pt", "rerun/state.pt"))
    assert parts(checkpoint) == [("dcp", "")]
    assert checkpoint.layouts[0].sidecars == ("common.pt", "meta.pt")


def test_safetensors_and_torch_files_share_a_folder_as_two_parts(tmp_path: Path) -> None:
    checkpoint = look(build(tmp_path, "model.safetensors", "optimizer.bin", "random_states_0.pkl", "a.json"))
    assert parts(checkpoint) == [("safetensors", ""), ("torch_save", "")]
    assert [layout.sidecars for layout in checkpoint.layouts] == [("a.json",), ("a.json",)]


def test_another_adapters_folder_is_its_own(tmp_path: Path) -> None:
    build(tmp_path, "array.zz", "state.pt")
    store = LocalStore(tmp_path)
    theirs = FakeAdapter("zz", r".*\.zz")
    checkpoint = discover(store, list_folder(store, "", max_files=9), Limits(), adapters=(*FAKES, theirs))
    assert parts(checkpoint) == [("zz", "")]


@pytest.mark.parametrize(
    ("folders", "chosen"),
    [
        (("checkpoint-200", "checkpoint-1000", "checkpoint-tmp"), "checkpoint-1000"),
        (("iter_0000007", "iter_0000100"), "iter_0000100"),
        (
            ("out/checkpoint/step-4", "out/checkpoint/step-10", "out/checkpoint/step-5.tmp"),
            "out/checkpoint/step-10",
        ),
        (("global_step_1/actor", "global_step_2/actor", "global_step_2/critic"), "global_step_2"),
        (("epoch=1-step=200", "epoch=0-step=100", "last.ckpt"), "epoch=1-step=200"),
        (("9", "10"), "10"),
    ],
)
def test_the_newest_step_is_chosen_by_number(tmp_path: Path, folders: tuple[str, ...], chosen: str) -> None:
    for folder in folders:
        build(tmp_path, *dcp(folder))
    checkpoint = look(tmp_path)
    assert checkpoint.root == chosen
    assert checkpoint.step == checkpoint.steps[-1].step
    assert [step.step for step in checkpoint.steps] == sorted(step.step for step in checkpoint.steps)


def test_a_newer_uncommitted_step_is_passed_over_and_told(tmp_path: Path) -> None:
    build(tmp_path, *dcp("step-100"), "step-200/__0_0.distcp", "step-300/config.json")
    checkpoint = look(tmp_path)
    assert checkpoint.root == "step-100"
    assert [(step.step, step.is_committed) for step in checkpoint.steps] == [
        (100, True),
        (200, False),
        (300, False),
    ]
    assert doubts(checkpoint) == []
    assert codes(checkpoint.surroundings) == [(FindingCode.NOT_COMMITTED, Severity.WARNING)] * 2


def test_where_no_step_is_committed_the_newest_is_opened(tmp_path: Path) -> None:
    build(tmp_path, "step-100/__0_0.distcp", "step-200/__0_0.distcp")
    assert look(tmp_path).root == "step-200"


def test_a_step_can_be_named(tmp_path: Path) -> None:
    build(tmp_path, *dcp("step-0"), *dcp("step-7"))
    assert look(tmp_path, step=0).root == "step-0"
    assert look(tmp_path, step=7).step == 7
    with pytest.raises(ObjectNotFoundError, match="no step 3"):
        look(tmp_path, step=3)


def test_a_steps_own_folder_may_be_named_with_its_step(tmp_path: Path) -> None:
    build(tmp_path, *dcp("run/step-7"))
    assert look(tmp_path, "run/step-7", step=7).step == 7
    with pytest.raises(ObjectNotFoundError, match="not a folder of steps"):
        look(tmp_path, "run/step-7", step=8)


def test_all_steps_are_found_oldest_first(tmp_path: Path) -> None:
    build(tmp_path, *dcp("step-10"), *dcp("step-9"))
    store = LocalStore(tmp_path)
    found = discover_all(store, list_folder(store, "", max_files=99), Limits(), adapters=FAKES)
    assert [checkpoint.root for checkpoint in found] == ["step-9", "step-10"]


def test_several_runs_are_not_mixed(tmp_path: Path) -> None:
    build(tmp_path, *dcp("a/step-1"), *dcp("b/step-2"))
    checkpoint = look(tmp_path)
    assert checkpoint.layouts == ()
    assert checkpoint.sightings == ("2 folders of steps, name one of them: a, b",)


def test_a_final_model_beside_the_steps_is_told_and_not_checked(tmp_path: Path) -> None:
    build(tmp_path, "model.safetensors", "checkpoint-5/model.safetensors")
    checkpoint = look(tmp_path)
    assert checkpoint.root == "checkpoint-5"
    assert codes(checkpoint.surroundings) == [(FindingCode.UNREFERENCED_FILE, Severity.INFO)]


def test_an_inner_step_of_another_number_is_a_part_and_a_warning(tmp_path: Path) -> None:
    build(tmp_path, "run/checkpoint-800/model.safetensors", "run/checkpoint-800/global_step799/mp.pt")
    (tmp_path / "run/checkpoint-800/latest").write_text("global_step799")
    for asked in ("run", "run/checkpoint-800"):
        checkpoint = look(tmp_path, asked)
        assert checkpoint.step == 800
        assert parts(checkpoint) == [("safetensors", ""), ("torch_save", "global_step799")]
        assert codes(checkpoint.surroundings) == [(FindingCode.MIXED_SAVES, Severity.WARNING)]
        assert doubts(checkpoint) == []


@pytest.mark.parametrize("asked", ["run", "run/step=200"])
def test_an_unfinished_marker_beside_a_checkpoint_makes_doubt(tmp_path: Path, asked: str) -> None:
    build(tmp_path, *dcp("run/step=200"), "run/step=200-unfinished")
    checkpoint = look(tmp_path, asked)
    assert doubts(checkpoint) == [(FindingCode.UNFINISHED_MARKER, Severity.UNKNOWN)]


def test_a_marked_step_is_passed_over_for_an_older_one(tmp_path: Path) -> None:
    build(tmp_path, *dcp("step=100"), *dcp("step=200"), "step=200-unfinished")
    checkpoint = look(tmp_path)
    assert checkpoint.root == "step=100"
    assert codes(checkpoint.surroundings) == [(FindingCode.NOT_COMMITTED, Severity.WARNING)]


def test_a_save_in_progress_is_in_doubt_when_it_is_named(tmp_path: Path) -> None:
    build(tmp_path, *dcp("step-5.tmp"), *dcp("backup-tmp"))
    assert doubts(look(tmp_path, "step-5.tmp")) == [(FindingCode.UNFINISHED_MARKER, Severity.UNKNOWN)]
    assert doubts(look(tmp_path, "backup-tmp")) == []


def test_a_save_in_progress_beside_the_steps_is_told(tmp_path: Path) -> None:
    build(tmp_path, *dcp("step-4"), *dcp("step-5.tmp"))
    assert codes(look(tmp_path).surroundings) == [(FindingCode.UNFINISHED_MARKER, Severity.INFO)]


def test_a_step_without_the_trainers_last_file_is_not_committed(tmp_path: Path) -> None:
    for step in (100, 200):
        build(tmp_path, f"checkpoint-{step}/model.safetensors")
    build(tmp_path, "checkpoint-100/trainer_state.json")
    assert look(tmp_path).step == 100
    assert doubts(look(tmp_path, step=200)) == [(FindingCode.NOT_COMMITTED, Severity.ERROR)]


@pytest.mark.parametrize("text", ["203", "", "step-203"])
def test_a_pointer_to_nothing_is_told_beside_a_good_checkpoint(tmp_path: Path, text: str) -> None:
    build(tmp_path, *dcp("iter_0000100"))
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(text)
    checkpoint = look(tmp_path)
    assert codes(checkpoint.surroundings) == [(FindingCode.POINTER_STALE, Severity.WARNING)]
    assert doubts(checkpoint) == []


def test_a_pointer_that_is_no_text_is_read_no_further_than_its_limit(tmp_path: Path) -> None:
    build(tmp_path, *dcp("global_step1"))
    (tmp_path / "latest").write_bytes(b"global_step1" * 1000)
    assert codes(look(tmp_path).surroundings) == [(FindingCode.POINTER_STALE, Severity.WARNING)]


def test_a_pointer_that_is_a_link_counts_as_a_pointer_and_not_as_a_part(tmp_path: Path) -> None:
    build(tmp_path, *dcp("step-100"), *dcp("step-200"))
    (tmp_path / "latest").symlink_to("step-100")
    checkpoint = look(tmp_path)
    assert checkpoint.root == "step-200"
    assert codes(checkpoint.surroundings) == [(FindingCode.POINTER_STALE, Severity.INFO)]


def test_a_pointer_link_to_a_step_of_folders_is_seen_through(tmp_path: Path) -> None:
    build(tmp_path, *dcp("out/global_step_1/actor"), *dcp("out/global_step_2/actor"))
    (tmp_path / "out/latest").symlink_to("global_step_2")
    checkpoint = look(tmp_path)
    assert checkpoint.root == "out/global_step_2"
    assert parts(checkpoint) == [("dcp", "actor")]
    assert checkpoint.surroundings == ()


def test_a_step_folder_that_is_itself_linked_in_is_a_step(tmp_path: Path) -> None:
    build(tmp_path, *dcp("blobs"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run/step-3").symlink_to("../blobs")
    assert look(tmp_path, "run").root == "run/step-3"


def test_nothing_and_litter_are_nothing(tmp_path: Path) -> None:
    for checkpoint in (look(tmp_path), look(build(tmp_path, ".DS_Store", "._.metadata"))):
        assert checkpoint.layouts == ()
        assert checkpoint.sightings == ()


def test_litter_does_not_disturb(tmp_path: Path) -> None:
    build(
        tmp_path,
        *dcp(""),
        ".DS_Store",
        "._.metadata",
        ".nfs000123",
        ".__0_0.distcp.swp",
        "__9_0.distcp.tmp",
        ".cache/huggingface/model.safetensors",
        "logs/step-9/model.safetensors",
        "tokenizer.json",
    )
    checkpoint = look(tmp_path)
    assert parts(checkpoint) == [("dcp", "")]
    assert doubts(checkpoint) == []


@pytest.mark.parametrize(
    ("paths", "seen"),
    [
        ((".snapshot_metadata", "0/w"), "torchsnapshot: .snapshot_metadata"),
        (("_METADATA", "commit_success.txt", "w/.zarray"), "orbax: commit_success.txt"),
        (("_CHECKPOINT_METADATA", "w/0"), "orbax: _CHECKPOINT_METADATA"),
        (("metadata.pkl", "model_0.pt", "model_1.pt"), "torch_checkpointing: metadata.pkl"),
        (("a.npz", "b.npz"), "2 files: 2 of .npz"),
    ],
)
def test_an_unknown_layout_says_what_was_seen(tmp_path: Path, paths: tuple[str, ...], seen: str) -> None:
    checkpoint = look(build(tmp_path, *paths))
    assert checkpoint.layouts == ()
    assert seen in checkpoint.sightings


def test_torch_files_beside_arrays_that_nobody_reads_are_in_doubt(tmp_path: Path) -> None:
    checkpoint = look(build(tmp_path, "common.pt", "metadata.json", "model.w/.zarray", "model.w/0.0"))
    assert parts(checkpoint) == [("torch_save", "")]
    assert doubts(checkpoint) == [(FindingCode.UNKNOWN_LAYOUT, Severity.UNKNOWN)]


@pytest.mark.parametrize("name", ["commit_success.txt", "saved_model.pb"])
def test_a_marker_of_somebody_else_says_nothing_against_our_own_files(tmp_path: Path, name: str) -> None:
    assert doubts(look(build(tmp_path, "model.safetensors", name))) == []


@pytest.mark.parametrize("folder", ["", "part"])
def test_the_owner_of_a_folder_answers_for_foreign_data_in_and_below_it(tmp_path: Path, folder: str) -> None:
    below = f"{folder}/data/.zarray" if folder else "data/.zarray"
    assert doubts(look(build(tmp_path, *dcp(folder), below))) == []
    build(tmp_path, "beside.safetensors", "partly/.zarray")
    assert (doubts(look(tmp_path)) == []) == (folder == "")


@pytest.mark.parametrize("link", [".metadata", "__0.metadata"])
def test_metadata_that_links_out_of_the_root_is_in_doubt_and_not_opened(tmp_path: Path, link: str) -> None:
    build(tmp_path, "outside/m", "inside/__0_0.distcp")
    (tmp_path / "inside" / link).symlink_to(tmp_path / "outside/m")
    checkpoint = look(tmp_path / "inside")
    assert doubts(checkpoint) == [(FindingCode.PATH_ESCAPE, Severity.UNKNOWN)]


def test_a_torch_file_that_links_out_of_the_root_is_in_doubt(tmp_path: Path) -> None:
    build(tmp_path, "outside/m", "inside/a.pt")
    (tmp_path / "inside/b.pt").symlink_to(tmp_path / "outside/m")
    assert doubts(look(tmp_path / "inside")) == [(FindingCode.PATH_ESCAPE, Severity.UNKNOWN)]


def test_a_part_that_links_out_of_the_root_is_in_doubt(tmp_path: Path) -> None:
    build(tmp_path, *dcp("outside"), *dcp("inside/pytorch_model_fsdp_0"))
    (tmp_path / "inside/optimizer_0").symlink_to(tmp_path / "outside")
    (tmp_path / "inside/logs").symlink_to(tmp_path / "outside")
    checkpoint = look(tmp_path / "inside")
    assert doubts(checkpoint) == [(FindingCode.PATH_ESCAPE, Severity.UNKNOWN)]


def test_a_step_that_links_out_of_the_root_is_told(tmp_path: Path) -> None:
    build(tmp_path, *dcp("outside"), *dcp("run/step-1"))
    (tmp_path / "run/step-2").symlink_to(tmp_path / "outside")
    checkpoint = look(tmp_path / "run")
    assert checkpoint.root == "step-1"
    assert codes(checkpoint.surroundings) == [(FindingCode.PATH_ESCAPE, Severity.WARNING)]


def test_a_single_file_is_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    build(tmp_path, "run/model.safetensors", "run/other.safetensors")
    checkpoint = look(tmp_path, "run/model.safetensors")
    assert checkpoint.root == "run"
    assert [shard.path for shard in checkpoint.layouts[0].shards] == ["model.safetensors"]


def test_folders_with_spaces_and_foreign_letters_are_folders(tmp_path: Path) -> None:
    build(tmp_path, *dcp("g dir ünï ☃/step-3"))
    assert look(tmp_path, "g dir ünï ☃").root == "g dir ünï ☃/step-3"


def test_ten_thousand_steps_are_surveyed_in_a_moment(tmp_path: Path) -> None:
    files = {}
    store = LocalStore(build(tmp_path, *dcp("run/step-9999")))
    stat = store.stat("run/step-9999/.metadata")
    for step in range(10_000):
        for name in (".metadata", "__0_0.distcp"):
            files[f"step-{step}/{name}"] = stat
    checkpoint = discover(store, Listing(root="run", files=files), Limits(), adapters=FAKES)
    assert checkpoint.step == 9999
    assert len(checkpoint.steps) == 10_000
