"""The folder in which registrations wait."""

import os
from pathlib import Path

import pytest

from ckptguard.errors import FormatError
from ckptguard.integrations.registration.entry import parse_entry, to_json
from ckptguard.integrations.registration.spool import Spool, spool_folder
from tests.unit.integrations.registration.entries import entry


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """Return a spool whose folder is not there yet."""
    return Spool(tmp_path / "state" / "spool", max_entries=3)


def test_an_entry_is_the_same_after_a_trip_through_json(tmp_path: Path) -> None:
    full = entry(
        tmp_path, branch=2, is_branch_inherited=True, service="http://127.0.0.1:1", project="p", refused="no"
    )
    assert parse_entry(to_json(full)) == full
    assert parse_entry(to_json(entry(tmp_path))) == entry(tmp_path)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"schema":2}', b'{"schema":1}', b"\xff"])
def test_what_is_no_entry_is_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse_entry(data)


def test_entries_wait_oldest_first(spool: Spool, tmp_path: Path) -> None:
    for step in (2, 1, 3):
        spool.put(entry(tmp_path, step))
    waiting = [spool.read(name) for name in spool.names()]
    assert [one.step for one in waiting if one is not None] == [1, 2, 3]


def test_the_oldest_makes_room_for_the_newest(spool: Spool, tmp_path: Path) -> None:
    dropped = [spool.put(entry(tmp_path, step))[1] for step in (1, 2, 3, 4)]
    assert dropped == [0, 0, 0, 1]
    waiting = [spool.read(name) for name in spool.names()]
    assert [one.step for one in waiting if one is not None] == [2, 3, 4]


def test_bytes_are_bounded_too(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=1000)
    for step in (1, 2, 3):
        spool.put(entry(tmp_path, step))
    assert sum(file.stat().st_size for file in spool.folder.iterdir()) <= 1000


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_nobody_else_can_read_it(spool: Spool, tmp_path: Path) -> None:
    waiting, aside = (spool.put(entry(tmp_path, step))[0] for step in (1, 2))
    spool.refuse(aside, "no")
    assert [_mode(spool.folder), _mode(spool.folder / "refused")] == [0o700, 0o700]
    assert [_mode(spool.folder / waiting), _mode(spool.folder / "refused" / aside)] == [0o600, 0o600]


def test_what_is_put_aside_goes_through_no_link_that_somebody_laid(spool: Spool, tmp_path: Path) -> None:
    name, _ = spool.put(entry(tmp_path))
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (spool.folder / f".draft-{name}").symlink_to(precious)
    spool.refuse(name, "no")
    assert precious.read_text() == "mine"


def test_a_folder_that_is_named_as_an_entry_is_put_aside(spool: Spool) -> None:
    (spool.folder / "0.json").mkdir(parents=True)
    spool.refuse("0.json", "cannot be read")
    assert (spool.names(), spool.refused()) == ([], ["0.json"])


def test_a_pipe_that_is_named_as_an_entry_hangs_nobody(spool: Spool) -> None:
    spool.folder.mkdir(parents=True)
    os.mkfifo(spool.folder / "0.json")
    with pytest.raises(FormatError):
        spool.read("0.json")


def test_what_is_put_aside_keeps_its_reason(spool: Spool, tmp_path: Path) -> None:
    name, _ = spool.put(entry(tmp_path))
    spool.refuse(name, "conflict: another content")
    assert spool.names() == []
    aside = spool.read_refused(spool.refused()[0])
    assert aside is not None
    assert (aside.step, aside.refused) == (1, "conflict: another content")


def test_what_cannot_be_read_is_put_aside_as_it_is(spool: Spool) -> None:
    spool.folder.mkdir(parents=True)
    (spool.folder / "broken.json").write_bytes(b"{")
    spool.refuse("broken.json", "cannot be read")
    assert (spool.names(), spool.refused()) == ([], ["broken.json"])


def test_a_link_is_never_followed(spool: Spool, tmp_path: Path) -> None:
    spool.folder.mkdir(parents=True)
    (tmp_path / "elsewhere.json").write_bytes(to_json(entry(tmp_path)))
    (spool.folder / "link.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(OSError, match="symbolic link"):
        spool.read("link.json")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to somebody else")
def test_an_entry_of_another_user_is_not_taken(spool: Spool, tmp_path: Path) -> None:
    name, _ = spool.put(entry(tmp_path))
    os.chown(spool.folder / name, 12345, 12345)
    with pytest.raises(FormatError, match="another user"):
        spool.read(name)


def test_the_folder_is_the_users_state_unless_told_otherwise() -> None:
    assert spool_folder({"CKPTGUARD_SPOOL": "/s", "HOME": "/h"}) == Path("/s")
    assert spool_folder({"XDG_STATE_HOME": "/x", "HOME": "/h"}) == Path("/x/ckptguard/spool")
    assert spool_folder({"HOME": "/h"}) == Path("/h/.local/state/ckptguard/spool")
