"""Check 1: what is missing, what is left over, and what only looks missing."""

from ckptguard.checks.existence import check_existence
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.finding import Basis, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, MetadataFile, Shard, Slice
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import ObjectStat

METADATA = MetadataFile(
    path=".metadata",
    length_bytes=2000,
    checksum=Checksum(algorithm=Algorithm.XXH3_128, hex_digits="0" * 32),
)


def _shard(path: str, *items: Item) -> Shard:
    return Shard(path=path, encoding=Encoding.TORCH_ZIP_ITEMS, items=items, min_length_bytes=100)


def _item(fqn: str, rows: slice | None = None) -> Item:
    if rows is None:
        return Item(fqn, ItemKind.BYTES, 0, 50)
    return Item(fqn, ItemKind.TENSOR, 0, 50, "float32", Slice((rows.start, 0), (rows.stop - rows.start, 32)))


def _layout(*shards: Shard, sidecars: tuple[str, ...] = ()) -> Layout:
    return Layout(format="dcp", metadata_files=(METADATA,), shards=shards, sidecars=sidecars)


def _listing(
    *paths: str,
    empty: tuple[str, ...] = (),
    links: tuple[str, ...] = (),
    escapes: tuple[str, ...] = (),
) -> Listing:
    files = {
        path: ObjectStat(path=path, length_bytes=0 if path in empty else 100, is_link=path in links)
        for path in (".metadata", *paths, *empty, *links)
    }
    return Listing(root="", files=files, escapes=escapes)


def _ranks(count: int) -> list[Shard]:
    return [_shard(f"__{rank}_0.distcp") for rank in range(count)]


def _codes(findings: tuple[Finding, ...]) -> list[tuple[FindingCode, Severity]]:
    return [(finding.code, finding.severity) for finding in findings]


def test_nothing_is_said_of_a_whole_folder() -> None:
    assert check_existence([_layout(*_ranks(2))], _listing("__0_0.distcp", "__1_0.distcp")) == ()


def test_what_a_manifest_lists_is_left_over_from_no_other_save() -> None:
    listing = _listing("__0_0.distcp", "__0_1.distcp", "__0_2.distcp")
    left = [finding.file for finding in check_existence([_layout(*_ranks(1))], listing)]
    assert left == ["__0_1.distcp", "__0_2.distcp"]
    (finding,) = check_existence([_layout(*_ranks(1))], listing, listed=["__0_0.distcp", "__0_1.distcp"])
    assert finding.file == "__0_2.distcp"


def test_a_missing_shard_names_what_it_takes_along() -> None:
    shard = _shard(
        "__2_0.distcp",
        _item("model.w", slice(32, 48)),
        _item("optim.exp_avg.w", slice(32, 48)),
        _item("optim.step"),
    )
    (finding,) = check_existence([_layout(shard)], _listing())
    assert finding.code is FindingCode.MISSING_SHARD
    assert (finding.severity, finding.basis) == (Severity.ERROR, Basis.DAMAGE)
    assert finding.message == (
        "missing __2_0.distcp; affects model.w[32:48, 0:32], optim.exp_avg.w[32:48, 0:32], optim.step"
    )
    assert (finding.file, finding.fqn, finding.slice_offsets) == ("__2_0.distcp", "model.w", (32, 0))
    assert not finding.is_retryable


def test_many_affected_items_are_counted() -> None:
    shard = _shard("__0_0.distcp", *(_item(f"m.{index}") for index in range(9)))
    (finding,) = check_existence([_layout(shard)], _listing())
    assert finding.message == "missing __0_0.distcp; affects m.0, m.1, m.2, m.3 and 5 more items"


def test_a_name_in_another_case_is_mentioned() -> None:
    findings = check_existence([_layout(_shard("__2_0.distcp"))], _listing("__2_0.DISTCP"))
    missing = next(finding for finding in findings if finding.code is FindingCode.MISSING_SHARD)
    assert "__2_0.DISTCP is there, and names are case-sensitive" in missing.message


def test_one_nodes_part_of_a_save_is_recognised() -> None:
    findings = check_existence([_layout(*_ranks(4))], _listing("__0_0.distcp", "__1_0.distcp"))
    assert _codes(findings) == [
        (FindingCode.MISSING_SHARD, Severity.ERROR),
        (FindingCode.MISSING_SHARD, Severity.ERROR),
        (FindingCode.MISSING_SHARD, Severity.WARNING),
    ]
    assert findings[-1].message.startswith(
        "looks like one node's part of a multi-node save: all files of 2 ranks"
    )


def test_lost_files_here_and_there_are_not_called_a_node() -> None:
    listing = _listing("__1_0.distcp", "__3_0.distcp", "__5_0.distcp")
    findings = check_existence([_layout(*_ranks(6))], listing)
    assert {finding.severity for finding in findings} == {Severity.ERROR}


def test_a_rank_with_one_file_left_is_not_a_lost_node() -> None:
    shards = [*_ranks(4), _shard("__3_1.distcp")]
    findings = check_existence([_layout(*shards)], _listing("__0_0.distcp", "__1_0.distcp", "__3_1.distcp"))
    assert {finding.severity for finding in findings} == {Severity.ERROR}


def test_more_missing_files_than_the_bound_are_counted_as_errors() -> None:
    findings = check_existence([_layout(*_ranks(100))], _listing())
    assert len(findings) == 21
    assert findings[-1].severity is Severity.ERROR
    assert findings[-1].message == "and 80 more findings of this kind (missing_shard)"


def test_empty_files_that_nothing_refers_to_are_legal() -> None:
    listing = _listing("__0_0.distcp", empty=("__1_0.distcp", "__2_0.distcp"))
    assert check_existence([_layout(*_ranks(1))], listing) == ()


def test_files_of_a_larger_world_are_a_warning_each() -> None:
    listing = _listing("__0_0.distcp", "__2_0.distcp", "__3_0.distcp")
    findings = check_existence([_layout(*_ranks(1))], listing)
    assert _codes(findings) == [(FindingCode.UNREFERENCED_FILE, Severity.WARNING)] * 2
    assert [finding.file for finding in findings] == ["__2_0.distcp", "__3_0.distcp"]


def test_junk_is_one_info_and_manifests_and_other_folders_are_nothing() -> None:
    listing = _listing("__0_0.distcp", ".DS_Store", "train.log", "ckptguard.manifest.json", "logs/a.txt")
    (finding,) = check_existence([_layout(*_ranks(1))], listing)
    assert (finding.code, finding.severity) == (FindingCode.UNREFERENCED_FILE, Severity.INFO)
    assert (
        finding.message == "2 other files beside the shards, not part of this verdict: .DS_Store, train.log"
    )


def test_a_link_out_of_the_root_is_in_doubt_and_not_missing() -> None:
    findings = check_existence([_layout(*_ranks(1))], _listing(escapes=("__0_0.distcp",)))
    assert _codes(findings) == [(FindingCode.PATH_ESCAPE, Severity.UNKNOWN)]


def test_a_folder_that_is_a_link_out_of_the_root_hides_its_files() -> None:
    findings = check_existence([_layout(_shard("part/__0_0.distcp"))], _listing(escapes=("part",)))
    assert _codes(findings) == [(FindingCode.PATH_ESCAPE, Severity.UNKNOWN)]


def test_links_inside_the_root_are_one_info() -> None:
    findings = check_existence([_layout(*_ranks(2))], _listing(links=("__0_0.distcp", "__1_0.distcp")))
    assert _codes(findings) == [(FindingCode.LINK_FOLLOWED, Severity.INFO)]


def test_an_absent_sidecar_is_an_info() -> None:
    findings = check_existence([_layout(*_ranks(1), sidecars=("common.pt",))], _listing("__0_0.distcp"))
    assert _codes(findings) == [(FindingCode.MISSING_SHARD, Severity.INFO)]
