"""The rule about times (design §3)."""

from datetime import UTC, datetime, timedelta

import pytest

from ckptguard.checks.times import check_times
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.finding import CheckName, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Layout, MetadataFile, Shard
from ckptguard.model.policy import Policy, StoreTimes
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import ObjectStat

COMMIT = datetime(2026, 11, 1, 3, 0, tzinfo=UTC)
CHECKSUM = Checksum(algorithm=Algorithm.XXH3_128, hex_digits="0" * 32)
ORIGINAL, COPIED = Policy(times=StoreTimes.ORIGINAL), Policy(times=StoreTimes.COPIED)


def _layout(*paths: str, metadata: str = ".metadata", part: str = "", is_rank_local: bool = False) -> Layout:
    return Layout(
        format="dcp",
        part=part,
        metadata_files=(MetadataFile(path=metadata, length_bytes=9, checksum=CHECKSUM),),
        shards=tuple(
            Shard(path=path, encoding=Encoding.TORCH_ZIP_ITEMS, items=(), min_length_bytes=1)
            for path in paths
        ),
        is_rank_local=is_rank_local,
    )


def _listing(late_s: dict[str, float | None], *, empty: tuple[str, ...] = ()) -> Listing:
    files = {
        path: ObjectStat(
            path=path,
            length_bytes=0 if path in empty else 100,
            modified_at=None if late is None else COMMIT + timedelta(seconds=late),
        )
        for path, late in late_s.items()
    }
    return Listing(root="", files=files)


def _check(
    late_s: dict[str, float | None], policy: Policy, *, empty: tuple[str, ...] = ()
) -> tuple[Finding, ...]:
    paths = [path for path in late_s if path.endswith(".distcp")]
    return check_times([_layout(*paths)], _listing({".metadata": 0} | late_s, empty=empty), policy)


@pytest.mark.parametrize("policy", [ORIGINAL, COPIED])
def test_some_shards_newer_than_the_commit_leave_it_in_doubt(policy: Policy) -> None:
    (finding,) = _check({"0.distcp": 60, "1.distcp": -2}, policy)
    assert (finding.code, finding.severity) == (FindingCode.REWRITTEN_AFTER_COMMIT, Severity.UNKNOWN)
    assert finding.check is CheckName.PROVENANCE
    assert finding.message == (
        "1 of 2 shards written up to 60 s after the metadata that committed them: 0.distcp;"
        " a save that died while overwriting this one looks exactly so"
    )
    assert finding.file == "0.distcp"


@pytest.mark.parametrize(("policy", "severity"), [(ORIGINAL, Severity.UNKNOWN), (COPIED, Severity.WARNING)])
def test_all_shards_newer_depend_on_whether_times_are_copied(policy: Policy, severity: Severity) -> None:
    (finding,) = _check({"0.distcp": 60, "1.distcp": 20}, policy)
    assert finding.severity is severity
    assert "all 2 shards" in finding.message


def test_ignoring_times_says_nothing() -> None:
    assert _check({"0.distcp": 60, "1.distcp": -2}, Policy(is_mtime_ignored=True)) == ()


@pytest.mark.parametrize("late", [-3600.0, 0.0, 4.0, 5.0])
def test_within_the_tolerance_is_in_order(late: float) -> None:
    assert _check({"0.distcp": late, "1.distcp": -2}, ORIGINAL) == ()


def test_the_tolerance_is_a_setting() -> None:
    assert _check({"0.distcp": 8, "1.distcp": -2}, Policy(mtime_tolerance_s=10)) == ()
    assert _check({"0.distcp": 6, "1.distcp": -2}, Policy(mtime_tolerance_s=5)) != ()


def test_empty_shards_have_no_say() -> None:
    assert _check({"0.distcp": 60, "1.distcp": -2}, ORIGINAL, empty=("0.distcp",)) == ()
    (finding,) = _check({"0.distcp": 60, "1.distcp": -2}, COPIED, empty=("1.distcp",))
    assert finding.severity is Severity.WARNING


def test_a_store_without_times_says_nothing() -> None:
    assert _check({"0.distcp": None, "1.distcp": None}, ORIGINAL) == ()
    listing = _listing({".metadata": None, "0.distcp": 60})
    assert check_times([_layout("0.distcp")], listing, ORIGINAL) == ()


def test_an_index_is_not_a_commit() -> None:
    """Hubs deliver a small index before large shards; nothing promises an order."""
    layout = _layout("a.safetensors", "b.safetensors", metadata="model.safetensors.index.json")
    late: dict[str, float | None] = {
        "model.safetensors.index.json": 0,
        "a.safetensors": 60,
        "b.safetensors": -60,
    }
    assert check_times([layout], _listing(late), ORIGINAL) == ()


def test_ranks_with_their_own_metadata_are_judged_together() -> None:
    ranks = [
        _layout(f"{rank}.distcp", metadata=f"__{rank}.metadata", is_rank_local=True) for rank in range(2)
    ]
    late: dict[str, float | None] = {
        "__0.metadata": 0,
        "0.distcp": 60,
        "__1.metadata": 0,
        "1.distcp": -2,
    }
    (finding,) = check_times(ranks, _listing(late), COPIED)
    assert (finding.severity, finding.message[:15]) == (Severity.UNKNOWN, "1 of 2 shards w")


def test_each_part_is_judged_by_its_own_commit() -> None:
    parts = [
        _layout(f"{part}/0.distcp", metadata=f"{part}/.metadata", part=part) for part in ("model", "optim")
    ]
    late: dict[str, float | None] = {
        "model/.metadata": 0,
        "model/0.distcp": -1,
        "optim/.metadata": 500,
        "optim/0.distcp": 499,
    }
    assert check_times(parts, _listing(late), ORIGINAL) == ()
