"""Making, writing and finding manifests: only what was read, whole or not at all."""

import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ckptguard.checks.against_manifest import compare_content, compare_listing
from ckptguard.errors import (
    AccessDeniedError,
    LimitExceededError,
    ManifestFormatError,
    ObjectNotFoundError,
    PathEscapeError,
    StoreError,
    StoreUnavailableError,
)
from ckptguard.formats.manifest_json import ManifestLimits, to_json
from ckptguard.model.finding import Basis, CheckName, FindingCode, Severity
from ckptguard.model.layout import Encoding, Layout, MetadataFile, Shard
from ckptguard.model.manifest import (
    MANIFEST_NAME,
    ChecksumSource,
    Manifest,
    Origin,
    Role,
    default_save_id,
    identity,
    rank_manifest_name,
)
from ckptguard.model.report import FileEvidence
from ckptguard.model.saving_marker import marker_name
from ckptguard.operations.manifest import (
    ReadBack,
    delete_manifest,
    load_manifest,
    load_manifest_beside,
    make_manifest,
    manifest_folders,
    write_manifest,
)
from ckptguard.operations.manifests_beside import ManifestBeside
from ckptguard.scan.progress import Progress
from ckptguard.storage.listing import list_folder
from ckptguard.storage.local import LocalStore
from ckptguard.storage.memory import MemoryStore
from ckptguard.storage.protocol import ObjectStat, RangeReader
from ckptguard.testing.fakes import FakeClock
from ckptguard.testing.manifests import checksum_of, manifest_of

SAVED = {
    ".metadata": b"meta",
    "__0_0.distcp": b"z" * 70_001,
    "__1_0.distcp": b"",
    "sub folder/rng ☃.pth": b"random",
}
LAYOUT = Layout(
    format="dcp",
    save_id="3f0c8f3e-6c0f-4b0e-9d53-6f6c2f1c2a77",
    metadata_files=(MetadataFile(path=".metadata", length_bytes=4, checksum=checksum_of(b"meta")),),
    shards=tuple(
        Shard(path=f"__{rank}_0.distcp", encoding=Encoding.TORCH_ZIP_ITEMS, items=(), min_length_bytes=0)
        for rank in (0, 1)
    ),
)


def make(store: MemoryStore | LocalStore, prefix: str = "", how: ReadBack | None = None) -> Manifest:
    return make_manifest(store, prefix, run="r", step=3, clock=FakeClock(), how=how)


def test_every_file_is_read_and_listed() -> None:
    manifest = make(MemoryStore(SAVED), how=ReadBack(jobs=3, block_bytes=4096))
    assert {file.path: (file.length_bytes, file.checksum) for file in manifest.files} == {
        path: (len(data), checksum_of(data)) for path, data in SAVED.items()
    }
    assert manifest.origin is Origin.READ_BACK
    assert {file.checksum_source for file in manifest.files} == {ChecksumSource.STORAGE}
    assert (manifest.run, manifest.step, manifest.created_at) == ("r", 3, FakeClock().now())


def test_the_marker_of_a_save_that_died_is_no_file_of_this_one() -> None:
    marked = make(MemoryStore({**SAVED, marker_name("another", "0123abcd"): b""}))
    assert {file.path for file in marked.files} == set(SAVED)


def test_what_was_made_agrees_with_what_it_was_made_of() -> None:
    store = MemoryStore({f"runs/7/{path}": data for path, data in SAVED.items()})
    manifest = make(store, "runs/7")
    listing = list_folder(store, "runs/7", max_files=100)
    observed = {
        path: FileEvidence(path=path, length_bytes=len(data), checksum=checksum_of(data))
        for path, data in SAVED.items()
    }
    assert compare_listing(manifest, listing.files) == ()
    assert compare_content(manifest, observed) == ()


def test_the_layout_gives_roles_format_and_save_id() -> None:
    manifest = make(MemoryStore(SAVED), how=ReadBack(layouts=(LAYOUT,)))
    assert {file.path: file.role for file in manifest.files} == {
        ".metadata": Role.METADATA,
        "__0_0.distcp": Role.SHARD,
        "__1_0.distcp": Role.SHARD,
        "sub folder/rng ☃.pth": Role.SIDECAR,
    }
    assert (manifest.format, manifest.save_id) == ("dcp", LAYOUT.save_id)


def test_without_a_layout_the_identity_is_the_save_id() -> None:
    manifest = make(MemoryStore(SAVED))
    assert (manifest.format, manifest.save_id) == ("unknown", default_save_id(identity(manifest)))


def test_a_read_back_has_the_identity_of_the_save() -> None:
    read_back = make(MemoryStore(SAVED), how=ReadBack(layouts=(LAYOUT,)))
    assert identity(read_back) == identity(manifest_of(SAVED))


@pytest.mark.parametrize(
    "name",
    [
        *(MANIFEST_NAME, rank_manifest_name(3), f"part/{MANIFEST_NAME}"),
        *(".metadata.tmp", "__9_0.distcp.tmp", ".DS_Store", "._.metadata", "sub folder/.nfs0001", ".x.swp"),
    ],
)
def test_manifests_and_leftovers_are_not_listed(name: str) -> None:
    assert make(MemoryStore(SAVED | {name: b"x"})).files == make(MemoryStore(SAVED)).files


def test_an_empty_folder_has_no_manifest() -> None:
    with pytest.raises(ManifestFormatError, match="/files: empty"):
        make(MemoryStore(SAVED), "nothing/here")


def test_too_many_files_are_refused_before_they_are_read() -> None:
    with pytest.raises(LimitExceededError):
        make(MemoryStore(SAVED), how=ReadBack(max_files=3))


def test_a_denied_file_is_no_manifest() -> None:
    store = MemoryStore(SAVED)
    store.deny("__0_0.distcp")
    with pytest.raises(AccessDeniedError):
        make(store)


class GrowingStore(MemoryStore):
    """Appends to a file as soon as it is opened."""

    def open(self, path: str) -> RangeReader:
        """Open, then append."""
        reader = super().open(path)
        if path == "__0_0.distcp":
            self.put(path, SAVED[path] + b"!")
        return reader


class ShrunkStore(MemoryStore):
    """Lists a file longer than it is."""

    def walk(self, prefix: str = "") -> Iterator[ObjectStat]:
        """Add a byte to each length."""
        for stat in super().walk(prefix):
            yield replace(stat, length_bytes=stat.length_bytes + 1)


@pytest.mark.parametrize("store", [GrowingStore(SAVED), ShrunkStore(SAVED)])
def test_a_file_that_changes_meanwhile_is_no_manifest(store: MemoryStore) -> None:
    with pytest.raises(StoreUnavailableError, match="changed while it was read"):
        make(store)


def test_a_link_out_of_the_store_is_no_manifest(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "__0_0.distcp").symlink_to(outside)
    with pytest.raises(PathEscapeError):
        make(LocalStore(folder))


def test_progress_ends_at_the_total() -> None:
    events: list[Progress] = []
    make_manifest(MemoryStore(SAVED), "", run="r", step=0, clock=FakeClock(), progress=events.append)
    total = sum(map(len, SAVED.values()))
    assert replace(events[-1], file=None) == Progress(
        phase="hashing",
        bytes_done=total,
        bytes_total=total,
        files_done=len(SAVED),
        files_total=len(SAVED),
    )


def test_a_written_manifest_is_read_back_equal_and_leaves_nothing_beside(tmp_path: Path) -> None:
    manifest = manifest_of(SAVED)
    write_manifest(tmp_path, manifest)
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST_NAME]
    assert load_manifest(tmp_path / MANIFEST_NAME) == manifest
    write_manifest(tmp_path / MANIFEST_NAME, replace(manifest, step=8))
    assert load_manifest(tmp_path / MANIFEST_NAME).step == 8


def test_a_folder_called_like_a_manifest_is_not_taken_for_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).mkdir()
    with pytest.raises(StoreError):
        write_manifest(tmp_path / MANIFEST_NAME, manifest_of({"a": b""}))
    assert [path.name for path in tmp_path.rglob("*")] == [MANIFEST_NAME]


def test_a_full_disk_leaves_the_old_manifest(tmp_path: Path) -> None:
    write_manifest(tmp_path, manifest_of({"a": b""}))
    before = (tmp_path / MANIFEST_NAME).read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), limits[1]))
    try:
        with pytest.raises(StoreUnavailableError):
            write_manifest(tmp_path, manifest_of(SAVED))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / MANIFEST_NAME).read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_manifest_that_cannot_be_put_in_place_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME / "x").mkdir(parents=True)
    with pytest.raises(StoreError):
        write_manifest(tmp_path, manifest_of(SAVED))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_manifest_is_deleted_before_a_new_save(tmp_path: Path) -> None:
    write_manifest(tmp_path, manifest_of(SAVED))
    delete_manifest(tmp_path / MANIFEST_NAME)
    delete_manifest(tmp_path / MANIFEST_NAME)
    assert list(tmp_path.iterdir()) == []


def test_a_named_manifest_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        load_manifest(tmp_path / "none.json")
    (tmp_path / "big.json").write_bytes(b" " * 101)
    with pytest.raises(LimitExceededError):
        load_manifest(tmp_path / "big.json", limits=ManifestLimits(max_bytes=100))


def beside(
    objects: dict[str, bytes], folder: str = "", limits: ManifestLimits | None = None
) -> ManifestBeside:
    store = MemoryStore(objects)
    return load_manifest_beside(store, list_folder(store, "", max_files=1000), folder=folder, limits=limits)


def test_no_manifest_beside_is_no_finding() -> None:
    assert beside(SAVED) == ManifestBeside()


def test_the_manifest_beside_is_found_in_its_folder() -> None:
    manifest = manifest_of(SAVED)
    objects = {f"optimizer_0/{MANIFEST_NAME}": to_json(manifest), "optimizer_0/x": b""}
    found = beside(objects, folder="optimizer_0")
    assert (found.manifest, found.findings) == (manifest, ())
    assert found.files == (f"optimizer_0/{MANIFEST_NAME}",)
    store = MemoryStore(objects)
    assert manifest_folders(list_folder(store, "", max_files=10)) == ("optimizer_0",)
    assert beside(objects).manifest is None


@pytest.mark.parametrize("data", [b"", b"{", to_json(manifest_of(SAVED))[:-10], b'{"manifest_version": 1}'])
def test_an_unreadable_manifest_beside_the_shards_is_damage(data: bytes) -> None:
    found = beside({MANIFEST_NAME: data})
    assert found.manifest is None
    (finding,) = found.findings
    assert (finding.code, finding.file) == (FindingCode.MANIFEST_UNREADABLE, MANIFEST_NAME)
    assert (finding.severity, finding.basis) == (Severity.ERROR, Basis.DAMAGE)
    assert finding.check is CheckName.EXISTENCE


@pytest.mark.parametrize(
    ("data", "limits", "code"),
    [
        (b'{"manifest_version": 2}', None, FindingCode.MANIFEST_UNREADABLE),
        (to_json(manifest_of(SAVED)), ManifestLimits(max_bytes=10), FindingCode.LIMIT_EXCEEDED),
        (to_json(manifest_of(SAVED)), ManifestLimits(max_files=1), FindingCode.LIMIT_EXCEEDED),
    ],
    ids=["later version", "too long", "too many files"],
)
def test_a_manifest_that_is_beyond_us_is_a_doubt(
    data: bytes, limits: ManifestLimits | None, code: FindingCode
) -> None:
    found = beside({MANIFEST_NAME: data}, limits=limits)
    assert found.manifest is None
    assert [(finding.code, finding.severity) for finding in found.findings] == [(code, Severity.UNKNOWN)]


class HealingStore(MemoryStore):
    """Gives a torn manifest once, then the whole one."""

    def open(self, path: str) -> RangeReader:
        """Open what is there, then put the whole one."""
        reader = super().open(path)
        self.put(path, to_json(manifest_of(SAVED)))
        return reader


def test_a_manifest_that_reads_differently_twice_is_a_doubt_that_time_may_lift() -> None:
    store = HealingStore({MANIFEST_NAME: b"{"})
    found = load_manifest_beside(store, list_folder(store, "", max_files=10))
    (finding,) = found.findings
    assert (finding.code, finding.severity) == (FindingCode.UNSTABLE_READ, Severity.UNKNOWN)
    assert finding.is_retryable


def test_a_denied_manifest_is_not_an_absent_one() -> None:
    store = MemoryStore({MANIFEST_NAME: b"{}"})
    listing = list_folder(store, "", max_files=10)
    store.deny(MANIFEST_NAME)
    with pytest.raises(AccessDeniedError):
        load_manifest_beside(store, listing)


def of_rank(rank: int, *, origin: Origin = Origin.SAVE, metadata: bytes = b"meta") -> Manifest:
    files = {f"__{rank}.metadata": metadata, f"__{rank}_0.distcp": b"%d" % rank}
    return replace(manifest_of(files, origin=origin, save_id=f"save-of-{rank}"), world_size=2)


def test_manifests_of_ranks_are_united() -> None:
    found = beside({rank_manifest_name(rank): to_json(of_rank(rank)) for rank in (0, 1)})
    assert found.findings == ()
    assert found.manifest is not None
    assert len(found.manifest.files) == 4
    assert found.manifest.origin is Origin.SAVE


def test_a_rank_without_manifest_is_a_doubt() -> None:
    found = beside({rank_manifest_name(1): to_json(of_rank(1))})
    assert [(finding.code, finding.severity) for finding in found.findings] == [
        (FindingCode.MANIFEST_MISMATCH, Severity.UNKNOWN)
    ]
    assert "1 of 2 ranks" in found.findings[0].message


def test_ranks_of_two_steps_are_not_one_save() -> None:
    found = beside(
        {
            rank_manifest_name(0): to_json(of_rank(0)),
            rank_manifest_name(1): to_json(replace(of_rank(1), step=8)),
        }
    )
    assert found.manifest is None
    assert [finding.code for finding in found.findings] == [FindingCode.MANIFEST_MISMATCH]


def test_one_rank_read_back_makes_the_union_read_back() -> None:
    found = beside(
        {
            rank_manifest_name(0): to_json(of_rank(0)),
            rank_manifest_name(1): to_json(of_rank(1, origin=Origin.READ_BACK)),
        }
    )
    assert found.manifest is not None
    assert found.manifest.origin is Origin.READ_BACK


def test_a_rank_that_contradicts_the_whole_is_a_doubt() -> None:
    whole = replace(manifest_of({"__0.metadata": b"other", "__0_0.distcp": b"0"}), world_size=2)
    found = beside(
        {
            MANIFEST_NAME: to_json(whole),
            rank_manifest_name(0): to_json(of_rank(0)),
            rank_manifest_name(1): to_json(of_rank(1)),
        }
    )
    assert found.manifest == whole
    assert [finding.code for finding in found.findings] == [FindingCode.MANIFEST_MISMATCH]
