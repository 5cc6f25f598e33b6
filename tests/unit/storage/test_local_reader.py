"""LocalReader: errors of the medium, short answers, caches."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ckptguard.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    PathEscapeError,
    StoreError,
    StoreUnavailableError,
)
from ckptguard.storage.local import LocalStore
from ckptguard.storage.os_errors import from_os_error


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, ObjectNotFoundError),
        (errno.ENOTDIR, ObjectNotFoundError),
        (errno.ENAMETOOLONG, ObjectNotFoundError),
        (errno.EACCES, AccessDeniedError),
        (errno.EPERM, AccessDeniedError),
        (errno.ELOOP, PathEscapeError),
        (errno.EIO, StoreUnavailableError),
        (errno.ESTALE, StoreUnavailableError),
        (errno.ETIMEDOUT, StoreUnavailableError),
        (errno.EMFILE, StoreUnavailableError),
        (errno.ENOTCONN, StoreUnavailableError),
        (None, StoreUnavailableError),
    ],
)
def test_only_an_answer_of_the_kernel_means_absent_or_refused(
    number: int | None, kind: type[StoreError]
) -> None:
    error = OSError(number, "why") if number is not None else OSError("why")
    translated = from_os_error(error, "a/b")
    assert type(translated) is kind
    assert translated.key == "a/b"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    (tmp_path / "a").write_bytes(bytes(range(256)) * 64)
    return LocalStore(tmp_path)


def test_failing_medium_is_unavailable_and_keeps_its_cause(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with store.open("a") as reader:
        monkeypatch.setattr(os, "preadv", fail)
        with pytest.raises(StoreUnavailableError, match="Input/output error: a") as caught:
            reader.readinto(memoryview(bytearray(1)), 0)
    assert isinstance(caught.value.__cause__, OSError)


def test_short_answers_of_the_kernel_are_continued(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.preadv

    def grudging(descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        return real(descriptor, [buffers[0][:1000]], offset)

    monkeypatch.setattr(os, "preadv", grudging)
    buffer = bytearray(20_000)
    with store.open("a") as reader:
        assert reader.readinto(memoryview(buffer), 0) == 16_384
    assert buffer[:16_384] == bytes(range(256)) * 64


def test_forget_covers_the_pages_that_the_range_touches_in_part(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int, int]] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda _, offset, length, advice: asked.append((offset, length, advice))
    )
    page = os.sysconf("SC_PAGE_SIZE")
    with store.open("a") as reader:
        reader.forget(page + 1, page)
    assert asked == [(page, 2 * page, os.POSIX_FADV_DONTNEED)]


def test_closed_reader_takes_hints_in_silence_and_answers_no_read(store: LocalStore) -> None:
    reader = store.open("a")
    reader.close()
    reader.close()
    reader.will_need(0, 10)
    reader.forget(0, 10)
    with pytest.raises(StoreUnavailableError):
        reader.readinto(memoryview(bytearray(1)), 0)


def test_opening_leaves_no_descriptor_behind(store: LocalStore) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names only
    for path in ("a", "gone", "a/b"):
        try:
            store.open(path).close()
        except ObjectNotFoundError:
            continue
    list(store.walk())
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
