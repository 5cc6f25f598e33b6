"""Check 2: short, long, and what is none of either."""

from ckptguard.checks.byte_count import check_byte_counts
from ckptguard.model.finding import Basis, Finding, FindingCode, Severity
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, Shard
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import ObjectStat

PATH = "__2_0.distcp"
ITEMS = (
    Item("model.w", ItemKind.BYTES, 0, 4000),
    Item("optim.exp_avg", ItemKind.BYTES, 4000, 4000),
    Item("optim.step", ItemKind.BYTES, 8000, 827),
)


def _check(
    length_bytes: int, *, exact: int | None = None, items: tuple[Item, ...] = ITEMS
) -> tuple[Finding, ...]:
    least = items[-1].offset + items[-1].length_bytes if items else 0
    shard = Shard(
        path=PATH,
        encoding=Encoding.TORCH_ZIP_ITEMS,
        items=items,
        min_length_bytes=least,
        exact_length_bytes=exact,
    )
    listing = Listing(root="", files={PATH: ObjectStat(path=PATH, length_bytes=length_bytes)})
    return check_byte_counts([Layout(format="dcp", shards=(shard,))], listing)


def test_the_exact_length_is_fine() -> None:
    assert _check(8827) == ()
    assert _check(8827, exact=8827) == ()


def test_a_short_shard_names_the_first_item_that_is_cut() -> None:
    (finding,) = _check(8727)
    assert (finding.code, finding.severity, finding.basis) == (
        FindingCode.SHORT_SHARD,
        Severity.ERROR,
        Basis.DAMAGE,
    )
    assert finding.message == "__2_0.distcp is short by 100 bytes: optim.step ends at 8827"
    assert (finding.file, finding.fqn, finding.offset, finding.length_bytes) == (
        PATH,
        "optim.step",
        8727,
        100,
    )
    assert (finding.expected, finding.observed) == ("at least 8827 bytes", "8727 bytes")


def test_a_shard_short_by_one_byte_is_found() -> None:
    (finding,) = _check(8826)
    assert finding.message == "__2_0.distcp is short by 1 byte: optim.step ends at 8827"


def test_a_half_shard_counts_the_items_beyond() -> None:
    (finding,) = _check(4400)
    assert finding.message.endswith("optim.exp_avg ends at 8000, and 1 more item end later")


def test_an_empty_shard_is_told_in_one_breath() -> None:
    (finding,) = _check(0)
    assert finding.message == "__2_0.distcp is 0 bytes, 3 items expected"


def test_an_empty_shard_without_items_is_legal() -> None:
    assert _check(0, items=()) == ()


def test_a_tail_is_a_warning_where_the_metadata_only_bounds() -> None:
    (finding,) = _check(8828)
    assert (finding.code, finding.severity) == (FindingCode.LONG_SHARD, Severity.WARNING)
    assert finding.message == "__2_0.distcp has 1 byte after its last item, which no load reads"
    assert finding.offset == 8827


def test_a_tail_is_an_error_where_the_format_fixes_the_length() -> None:
    (finding,) = _check(8835, exact=8827)
    assert (finding.code, finding.basis) == (FindingCode.LONG_SHARD, Basis.DAMAGE)
    assert "8 bytes longer" in finding.message


def test_a_short_file_of_fixed_length_is_short_even_if_all_items_fit() -> None:
    (finding,) = _check(8830, exact=8831)
    assert finding.message == "__2_0.distcp is short by 1 byte: 8831 expected"


def test_a_missing_file_is_left_to_the_first_check() -> None:
    shard = Shard(path=PATH, encoding=Encoding.TORCH_ZIP_ITEMS, items=ITEMS, min_length_bytes=8827)
    assert check_byte_counts([Layout(format="dcp", shards=(shard,))], Listing(root="", files={})) == ()
