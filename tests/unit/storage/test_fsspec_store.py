"""FsspecStore: names, folders, and listings that leave something out."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ckptguard.errors import (
    AccessDeniedError,
    ConfigError,
    ObjectNotFoundError,
    PathEscapeError,
    StoreError,
    StoreUnavailableError,
)
from ckptguard.storage.fsspec_driver import make_filesystem
from ckptguard.storage.fsspec_listing import describe, is_folder
from ckptguard.storage.fsspec_store import FsspecStore


def _set_filesystem(store: FsspecStore, **methods: Any) -> None:  # noqa: ANN401 - driver methods
    for name, method in methods.items():
        setattr(store._filesystem, name, method)


def test_keys_that_are_no_plain_path_are_escapes_and_never_asked_for() -> None:
    store = FsspecStore("memory://odd-keys")
    names = ["ok", "a//b", "a/../b", "a/./b", "k?versionId=1"]
    infos = {f"/odd-keys/{name}": {"name": f"/odd-keys/{name}", "size": 1, "type": "file"} for name in names}
    _set_filesystem(store, find=lambda *_, **__: infos)
    assert [stat.path for stat in store.walk()] == ["ok"]
    assert list(store.escapes()) == names[1:]
    for name in names[1:]:
        with pytest.raises(PathEscapeError):
            store.open(name)


def test_unreadable_folder_below_is_refused_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    store = FsspecStore(f"file://{tmp_path}")
    real = store._filesystem.ls

    def ls(path: str, **options: object) -> Any:  # noqa: ANN401 - a driver's answer
        if path.endswith("/a"):
            raise PermissionError(path)
        return real(path, **options)

    _set_filesystem(store, ls=ls)
    with pytest.raises(AccessDeniedError):
        list(store.walk())


def test_link_through_fsspec_is_an_escape(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to("target")
    store = FsspecStore(f"file://{tmp_path}")
    assert [stat.path for stat in store.walk()] == ["target"]
    assert list(store.escapes()) == ["link"]
    with pytest.raises(PathEscapeError):
        store.stat("link")


@pytest.mark.parametrize(
    ("answer", "kind", "is_retryable"),
    [(b"123", StoreUnavailableError, True), (b"123456", StoreError, False)],
    ids=["short", "whole object instead of a range"],
)
def test_answer_of_another_length_is_never_taken(
    answer: bytes, kind: type[StoreError], *, is_retryable: bool
) -> None:
    store = FsspecStore("memory://lengths")
    info = {"name": "/lengths/a", "size": 5, "type": "file"}
    _set_filesystem(store, info=lambda *_, **__: info, cat_file=lambda *_, **__: answer)
    with store.open("a") as reader, pytest.raises(kind) as caught:
        reader.readinto(memoryview(bytearray(5)), 0)
    assert caught.value.is_retryable is is_retryable


def test_listing_that_fails_half_way_is_not_a_short_listing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "d").mkdir()
    store = FsspecStore(f"file://{tmp_path}")
    real = store._filesystem.ls

    def ls(path: str, **options: object) -> Any:  # noqa: ANN401 - a driver's answer
        if path.endswith("/d"):
            raise TimeoutError
        return real(path, **options)

    _set_filesystem(store, ls=ls)
    with pytest.raises(StoreUnavailableError):
        list(store.walk())


def test_version_prefers_the_version_id_and_falls_back_to_time_and_length() -> None:
    info: dict[str, object] = {
        "size": 3,
        "ETag": '"abc"',
        "VersionId": "v1",
        "LastModified": datetime(2026, 1, 2, tzinfo=UTC),
    }
    assert describe(info, "k").version == "v1"
    assert describe({**info, "VersionId": "null"}, "k").version == "abc"
    assert describe({**info, "VersionId": None, "ETag": ""}, "k").version == "2026-01-02T00:00:00+00:00-3"
    assert describe({"size": 3}, "k").version is None
    assert describe({"size": 3, "mtime": "2026-01-02T00:00:00Z"}, "k").modified_at == info["LastModified"]


def test_object_of_unknown_length_is_an_error() -> None:
    with pytest.raises(StoreError):
        describe({"size": None}, "k")


def test_placeholder_of_a_folder_is_a_folder() -> None:
    assert is_folder({"name": "b/step/", "size": 0, "type": "file"})
    assert not is_folder({"name": "b/step", "size": 0, "type": "file"})


def test_url_never_shows_credentials() -> None:
    store = FsspecStore("memory://user:secret@host")
    assert store.url == "memory://host"


def test_unknown_protocol_and_missing_driver_say_what_to_do() -> None:
    with pytest.raises(ConfigError, match="unknown kind of store nosuch://"):
        make_filesystem("nosuch://x", {})
    with pytest.raises(ConfigError, match="pip install gcsfs"):
        make_filesystem("gs://bucket", {})


def test_options_that_the_driver_refuses_are_a_config_error() -> None:
    with pytest.raises(ConfigError, match="max_concurrency"):
        make_filesystem("s3://bucket", {"max_concurrency": 0})


def test_instances_and_their_credentials_are_not_shared() -> None:
    first, _ = make_filesystem("memory://a", {})
    second, _ = make_filesystem("memory://a", {})
    assert first is not second


def test_folder_is_no_object() -> None:
    store = FsspecStore("memory://folders")
    store._filesystem.pipe_file("/folders/d/a", b"1")
    with pytest.raises(ObjectNotFoundError):
        store.open("d")
