"""Is it still what was validated? Lengths always, times and versions where both sides know them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ckptguard.client.answers import FileSeen
from ckptguard.operations.recheck import MAX_DIFFERENCES, differences, total_differences
from ckptguard.storage.listing import Listing
from ckptguard.storage.protocol import ObjectStat

TIME = datetime(2026, 11, 29, 12, 0, 0, 123456, UTC)
NS = 1_780_000_000_123_456_789


def listing(*stats: ObjectStat) -> Listing:
    return Listing(root="", files={stat.path: stat for stat in stats})


def local(path: str, *, inode: int, mtime_ns: int = NS, length: int = 5) -> ObjectStat:
    return ObjectStat(
        path=path, length_bytes=length, modified_at=TIME, version=f"{inode}-{mtime_ns}-{length}"
    )


def seen(stat: ObjectStat) -> FileSeen:
    return FileSeen(
        path=stat.path, length_bytes=stat.length_bytes, version=stat.version, modified_at=stat.modified_at
    )


ONE, TWO = local("a", inode=1), local("b", inode=2)
EVIDENCE = (seen(ONE), seen(TWO))
OBJECT = ObjectStat(path="a", length_bytes=5, modified_at=TIME, version='"etag"')


def test_the_same_files_are_the_same() -> None:
    assert differences(EVIDENCE, listing(ONE, TWO)) == ()


def test_a_file_that_was_not_there_is_no_difference() -> None:
    assert differences(EVIDENCE, listing(ONE, TWO, local("new", inode=3))) == ()


@pytest.mark.parametrize(
    ("now", "what"),
    [
        (listing(ONE), "is gone"),
        (listing(ONE, local("b", inode=2, length=6)), "6 bytes"),
        (listing(ONE, local("b", inode=2, mtime_ns=NS + 1)), "was written"),
        (listing(ONE, local("b", inode=9)), "was replaced"),
    ],
)
def test_a_change_is_found_and_named(now: Listing, what: str) -> None:
    (found,) = differences(EVIDENCE, now)
    assert found.path == "b"
    assert what in found.what


def test_another_mount_may_number_inodes_anew() -> None:
    assert differences(EVIDENCE, listing(local("a", inode=101), local("b", inode=102))) == ()


def test_another_mount_may_keep_whole_seconds_only() -> None:
    whole = NS // 10**9 * 10**9
    assert differences(EVIDENCE, listing(*(local(path, inode=7, mtime_ns=whole) for path in "ab"))) == ()
    later = whole + 10**9
    assert len(differences(EVIDENCE, listing(*(local(path, inode=7, mtime_ns=later) for path in "ab")))) == 2


def test_on_one_mount_a_write_within_the_same_second_is_found() -> None:
    whole = NS // 10**9 * 10**9
    before = (seen(ONE), seen(local("b", inode=2, mtime_ns=whole)))
    assert differences(before, listing(ONE, local("b", inode=2, mtime_ns=whole))) == ()
    (found,) = differences(before, listing(ONE, local("b", inode=2, mtime_ns=whole + 5)))
    assert found.what == "was written since"


@pytest.mark.parametrize(
    ("now", "is_same"),
    [
        (OBJECT, True),
        (replace(OBJECT, version='"other"'), False),
        (replace(OBJECT, version=None), True),
        (replace(OBJECT, version=None, modified_at=TIME + timedelta(seconds=1)), False),
        (replace(OBJECT, version=None, modified_at=TIME.replace(microsecond=0)), True),
        (replace(OBJECT, version=None, modified_at=None), True),
        (replace(OBJECT, version=None, modified_at=None, length_bytes=4), False),
        (replace(ONE, modified_at=TIME), True),  # the same bytes through a mount, not the object store
        (replace(ONE, modified_at=TIME + timedelta(hours=1)), False),
    ],
)
def test_objects_compare_by_version_else_by_time(now: ObjectStat, *, is_same: bool) -> None:
    assert (differences((seen(OBJECT),), listing(now)) == ()) == is_same


def test_differences_are_bounded() -> None:
    evidence = tuple(seen(local(str(number), inode=number)) for number in range(1000))
    assert len(differences(evidence, listing())) == MAX_DIFFERENCES


def test_totals_find_what_is_missing() -> None:
    assert not list(total_differences(num_files=2, bytes_total=10, listing=listing(ONE, TWO)))
    assert not list(total_differences(num_files=2, bytes_total=10, listing=listing(ONE, TWO, OBJECT)))
    assert list(total_differences(num_files=3, bytes_total=10, listing=listing(ONE, TWO)))
    assert list(total_differences(num_files=None, bytes_total=11, listing=listing(ONE, TWO)))
    assert list(total_differences(num_files=None, bytes_total=None, listing=listing()))
