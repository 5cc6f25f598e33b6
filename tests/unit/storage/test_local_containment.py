"""LocalStore: nothing outside the root is opened, nothing but regular files is opened."""

import os
import socket
from pathlib import Path

import pytest

from ckptguard.errors import LimitExceededError, ObjectNotFoundError, PathEscapeError, StoreError
from ckptguard.storage.contained import opened_folder
from ckptguard.storage.local import LocalStore
from ckptguard.storage.local_walk import MAX_DEPTH
from ckptguard.storage.protocol import read_whole


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_bytes(b"outside")
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def accessed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the name of everything that is opened."""
    opened: list[str] = []
    real = os.open

    def recording(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        opened.append(str(path))
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", recording)
    return opened


@pytest.mark.parametrize(
    "target", ["../secret", "../outside/file", "/etc/hostname", "../outside", "/", "/gone"]
)
def test_link_out_of_the_root_is_an_escape_and_never_opened(
    root: Path, target: str, accessed: list[str]
) -> None:
    (root / "link").symlink_to(target)
    store = LocalStore(root)
    assert list(store.walk()) == []
    assert list(store.escapes()) == ["link"]
    for operation in (store.stat, store.open):
        with pytest.raises(PathEscapeError):
            operation("link")
    assert set(accessed) <= {str(root)}


def test_escape_through_a_linked_folder_is_refused(root: Path, accessed: list[str]) -> None:
    (root / "folder").symlink_to("../outside")
    with pytest.raises(PathEscapeError):
        LocalStore(root).open("folder/file")
    assert accessed == []


def test_link_inside_the_root_is_a_link_and_opens_its_target(root: Path) -> None:
    (root / "blobs").mkdir()
    (root / "blobs/abc").write_bytes(b"tensor")
    (root / "step").mkdir()
    (root / "step/model").symlink_to("../blobs/abc")
    (root / "step/absolute").symlink_to(root / "blobs/abc")
    store = LocalStore(root)
    stats = {stat.path: stat for stat in store.walk()}
    assert {path: stat.is_link for path, stat in stats.items()} == {
        "blobs/abc": False,
        "step/model": True,
        "step/absolute": True,
    }
    assert stats["step/model"].length_bytes == 6
    assert store.stat("step/model") == stats["step/model"]
    assert read_whole(store, "step/absolute", max_bytes=6) == b"tensor"


def test_linked_folder_is_walked_and_its_files_are_links(root: Path) -> None:
    (root / "real/deep").mkdir(parents=True)
    (root / "real/deep/x").write_bytes(b"x")
    (root / "latest").symlink_to("real")
    assert sorted((stat.path, stat.is_link) for stat in LocalStore(root).walk()) == [
        ("latest/deep/x", True),
        ("real/deep/x", False),
    ]
    assert [stat.path for stat in LocalStore(root).walk("latest")] == ["latest/deep/x"]


def test_folder_cycles_end(root: Path) -> None:
    (root / "a").mkdir()
    (root / "b").mkdir()
    (root / "a/file").write_bytes(b"x")
    (root / "a/self").symlink_to(".")
    (root / "a/up").symlink_to("..")
    (root / "a/to-b").symlink_to("../b")
    (root / "b/to-a").symlink_to("../a")
    paths = {stat.path for stat in LocalStore(root).walk()}
    assert "a/file" in paths
    assert "b/to-a/file" in paths
    assert list(LocalStore(root).escapes()) == []


def test_link_loop_is_an_escape(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    store = LocalStore(root)
    assert list(store.walk()) == []
    assert sorted(store.escapes()) == ["a", "b"]
    with pytest.raises(PathEscapeError):
        store.open("a")


def test_dangling_link_inside_the_root_is_not_found(root: Path) -> None:
    (root / "shard").symlink_to("blobs/gone")
    store = LocalStore(root)
    assert list(store.walk()) == []
    assert list(store.escapes()) == []
    for operation in (store.stat, store.open):
        with pytest.raises(ObjectNotFoundError):
            operation("shard")


def test_fifo_device_and_socket_are_escapes_and_never_opened(root: Path, accessed: list[str]) -> None:
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
        (root / "device").symlink_to("/dev/zero")
        (root / "to-fifo").symlink_to("fifo")
        names = ["device", "fifo", "socket", "to-fifo"]
        store = LocalStore(root)
        assert sorted(store.escapes()) == names
        assert list(store.walk()) == []
        for name in names:
            for operation in (store.stat, store.open):
                with pytest.raises(PathEscapeError):
                    operation(name)
    assert set(accessed) <= {str(root)}


def test_link_swapped_in_after_resolving_is_refused_by_the_kernel(root: Path) -> None:
    """`resolve` saw a folder; before it is opened it is a link to the outside."""
    (root / "folder").symlink_to("../outside")
    with pytest.raises(OSError, match="folder"), opened_folder(root, ("folder",)):
        pass


def test_root_given_through_a_link_is_resolved_once(root: Path, tmp_path: Path) -> None:
    (root / "a").write_bytes(b"a")
    alias = tmp_path / "alias"
    alias.symlink_to(root)
    store = LocalStore(alias)
    alias.unlink()
    alias.symlink_to(tmp_path / "outside")
    assert [stat.path for stat in store.walk()] == ["a"]


def test_folders_beyond_the_depth_limit_are_an_error_not_an_omission(root: Path) -> None:
    deep = root.joinpath(*["d"] * (MAX_DEPTH + 1))
    deep.mkdir(parents=True)
    (deep / "x").write_bytes(b"x")
    with pytest.raises(LimitExceededError):
        list(LocalStore(root).walk())


def test_a_vanished_root_is_unknown_not_empty(root: Path) -> None:
    store = LocalStore(root)
    root.rmdir()
    with pytest.raises(StoreError) as caught:
        list(store.walk())
    assert not isinstance(caught.value, ObjectNotFoundError)


def test_name_that_is_no_text_is_listed_and_opened(root: Path) -> None:
    name = os.fsdecode(b"shard-\xff")
    (root / name).write_bytes(b"x")
    store = LocalStore(root)
    assert [stat.path for stat in store.walk()] == [name]
    assert read_whole(store, name, max_bytes=1) == b"x"


def test_time_out_of_any_calendar_is_none(root: Path) -> None:
    (root / "a").write_bytes(b"a")
    try:
        os.utime(root / "a", (0, 300_000_000_000))
    except OverflowError:
        pytest.skip("this file system keeps no such time")
    stat = LocalStore(root).stat("a")
    assert stat.modified_at is None or stat.modified_at.year < 9999
