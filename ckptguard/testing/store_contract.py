"""What every store must do, as checks that any store can be put through.

Each check takes a fresh, empty `StoreUnderTest` and fails by AssertionError. No test
framework is imported; `CHECKS` is all of them, by name:

    @pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
    def test_store_keeps_the_contract(check, subject): check(subject)
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Protocol

from ckptguard.errors import (
    AccessDeniedError,
    CkptGuardError,
    LimitExceededError,
    ObjectNotFoundError,
    PathEscapeError,
    StoreError,
)
from ckptguard.storage.listing import list_folder
from ckptguard.storage.protocol import Store, read_whole

PAGE_OBJECTS = 1_000
"""S3 lists this many objects in one answer."""

ODD_NAMES = (
    "a name with spaces",
    "ünïcode ☃/größe",
    "sharp#sign",
    "ask?me",
    "per%20cent%",
    "plus+and&equals=",
    "colon:semi;comma,",
    "quote'quote",
    "__0_0.distcp",
    ".metadata",
    "~tilde",
    "[bracket]*star",
)


class StoreUnderTest(Protocol):
    """A store, and the means to change what is in it by another way than the store itself."""

    @property
    def store(self) -> Store:
        """The store, at a root of its own that is empty at first."""
        ...

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Write objects, over those that are there."""
        ...

    def delete(self, path: str) -> None:
        """Delete one object."""
        ...

    def denied(self, path: str) -> AbstractContextManager[Store] | None:
        """Give a store at the same root in which `path` is refused; None where nothing can be."""
        ...

    def without_root(self) -> Store | None:
        """Return a store whose bucket or root folder does not exist; None where there are no roots."""
        ...


Check = Callable[[StoreUnderTest], None]
CHECKS: dict[str, Check] = {}


def _contract(check: Check) -> Check:
    CHECKS[check.__name__.removeprefix("check_")] = check
    return check


@_contract
def check_an_empty_root_lists_nothing(subject: StoreUnderTest) -> None:
    """An empty root is no error."""
    assert list(subject.store.walk()) == []
    assert list(subject.store.escapes()) == []
    assert list(subject.store.walk("no/such/folder")) == []


@_contract
def check_walk_yields_every_object_once(subject: StoreUnderTest) -> None:
    """Nested objects too, with their lengths, and no folders."""
    subject.put({"a": b"1", "d/b": b"22", "d/e/c": b"333"})
    stats = list(subject.store.walk())
    assert sorted((stat.path, stat.length_bytes) for stat in stats) == [("a", 1), ("d/b", 2), ("d/e/c", 3)]
    assert list(subject.store.escapes()) == []


@_contract
def check_a_prefix_is_a_folder_not_a_string(subject: StoreUnderTest) -> None:
    """`step-1` does not list `step-10`; a closing `/` changes nothing."""
    subject.put({"step-1/x": b"1", "step-10/x": b"10", "step-1.bak": b"b", "z/step-1/x": b"z"})
    for prefix in ("step-1", "step-1/"):
        assert [stat.path for stat in subject.store.walk(prefix)] == ["step-1/x"]
    assert list(subject.store.walk("step")) == []


@_contract
def check_a_file_as_prefix_is_yielded_alone(subject: StoreUnderTest) -> None:
    """A prefix that names an object is that object."""
    subject.put({"d/model.safetensors": b"123", "d/model.safetensors.index": b"4"})
    stats = list(subject.store.walk("d/model.safetensors"))
    assert [(stat.path, stat.length_bytes) for stat in stats] == [("d/model.safetensors", 3)]


@_contract
def check_stat_and_walk_agree(subject: StoreUnderTest) -> None:
    """Length, version and (to the second: HTTP dates have no more) time are the same by both ways."""
    subject.put({"d/a": b"12345", "d/empty": b""})
    for listed in subject.store.walk():
        asked = subject.store.stat(listed.path)
        assert asked.length_bytes == listed.length_bytes
        assert asked.version == listed.version, (asked, listed)
        assert (asked.modified_at is None) == (listed.modified_at is None)
        if asked.modified_at is not None and listed.modified_at is not None:
            assert asked.modified_at.tzinfo is not None
            assert abs(asked.modified_at - listed.modified_at) < timedelta(seconds=1)


@_contract
def check_other_bytes_have_another_version(subject: StoreUnderTest) -> None:
    """Same length, other bytes: stat and walk both tell, without a cached listing."""
    subject.put({"a": b"before"})
    before, listed_before = subject.store.stat("a"), next(subject.store.walk())
    subject.put({"a": b"after!"})
    assert before.version is not None
    assert subject.store.stat("a").version != before.version
    assert next(subject.store.walk()).version != listed_before.version


@_contract
def check_listings_are_never_cached(subject: StoreUnderTest) -> None:
    """What is written, grown or deleted by another way is seen by the next request."""
    store = subject.store
    subject.put({"d/a": b"1"})
    assert [stat.path for stat in store.walk("d")] == ["d/a"]
    subject.put({"d/a": b"1234", "d/b": b"2"})
    assert sorted((stat.path, stat.length_bytes) for stat in store.walk("d")) == [("d/a", 4), ("d/b", 1)]
    assert store.stat("d/a").length_bytes == 4  # noqa: PLR2004 - as written above
    subject.delete("d/a")
    assert [stat.path for stat in store.walk("d")] == ["d/b"]
    with _raises(ObjectNotFoundError):
        store.stat("d/a")


@_contract
def check_absent_objects_are_not_found(subject: StoreUnderTest) -> None:
    """Never there, deleted, or only a folder: ObjectNotFoundError with the key."""
    subject.put({"d/a": b"1", "d/b": b"1"})
    subject.delete("d/a")
    for path in ("x", "d/a", "d", "d/b/c"):
        with _raises(ObjectNotFoundError) as caught:
            subject.store.stat(path)
        assert caught[0].key == path
        with _raises(ObjectNotFoundError), subject.store.open(path) as reader:
            reader.readinto(memoryview(bytearray(1)), 0)


@_contract
def check_an_object_deleted_while_open_is_never_short(subject: StoreUnderTest) -> None:
    """Its bytes are read in full, or a StoreError says why not."""
    subject.put({"a": b"x" * 100})
    with subject.store.open("a") as reader:
        subject.delete("a")
        buffer = bytearray(100)
        try:
            got = reader.readinto(memoryview(buffer), 0)
        except StoreError:
            return
    assert (got, bytes(buffer)) == (100, b"x" * 100)


@_contract
def check_every_range_reads_its_own_bytes(subject: StoreUnderTest) -> None:
    """Ranges at, before, behind and across the end; nothing is written behind what was read."""
    content = _pattern(10_000)
    subject.put({"a": content})
    with subject.store.open("a") as reader:
        for offset in (0, 1, 4095, 4096, 9_999, 10_000, 10_001, 1 << 40):
            for length in (0, 1, 2, 4096, 10_000, 20_000):
                buffer = bytearray(b"\xee" * (length + 8))
                got = reader.readinto(memoryview(buffer)[:length], offset)
                expected = content[offset : offset + length]
                assert buffer[:got] == expected, (offset, length, got)
                assert buffer[got:] == b"\xee" * (length + 8 - got), (offset, length, got)


@_contract
def check_large_ranges_are_whole(subject: StoreUnderTest) -> None:
    """Ranges of many parts, at every boundary of 1, 4 and 8 MiB and one byte beside it."""
    content = _pattern((12 << 20) + 3)
    subject.put({"a": content})
    edges = [at + beside for at in (1 << 20, 4 << 20, 8 << 20) for beside in (-1, 0, 1)]
    with subject.store.open("a") as reader:
        for start in (0, edges[3], edges[5]):
            for end in (*edges, len(content), len(content) + 5):
                if start < end:
                    _require_range(reader.readinto, content, start, end)


@_contract
def check_hints_change_no_bytes(subject: StoreUnderTest) -> None:
    """`will_need` and `forget`, in and out of order and out of bounds, never raise or alter a read."""
    content = _pattern((9 << 20) + 1)
    subject.put({"a": content})
    with subject.store.open("a") as reader:
        reader.will_need(0, len(content))
        _require_range(reader.readinto, content, 5, 6 << 20)
        reader.forget(1 << 20, 3 << 20)
        reader.will_need(len(content) - 10, 1 << 30)
        reader.will_need(1 << 40, 1)
        reader.forget(1 << 40, 1)
        reader.will_need(0, 0)
        _require_range(reader.readinto, content, 0, len(content) + 1)
        _require_range(reader.readinto, content, 3, 7)
    reader.close()


@_contract
def check_empty_objects_are_objects(subject: StoreUnderTest) -> None:
    """Listed, described, opened; they have no bytes."""
    subject.put({"d/empty": b""})
    assert [(stat.path, stat.length_bytes) for stat in subject.store.walk()] == [("d/empty", 0)]
    assert subject.store.stat("d/empty").length_bytes == 0
    with subject.store.open("d/empty") as reader:
        assert reader.readinto(memoryview(bytearray(4)), 0) == 0


@_contract
def check_odd_names_are_plain_names(subject: StoreUnderTest) -> None:
    """Spaces, unicode, `#`, `?`, `%`: listed as written, and each opens its own bytes."""
    objects = {f"d {name}/{name}": name.encode() for name in ODD_NAMES}
    subject.put(objects)
    assert sorted(stat.path for stat in subject.store.walk()) == sorted(objects)
    for path, content in objects.items():
        assert [stat.path for stat in subject.store.walk(path.rsplit("/", 1)[0])], path
        assert read_whole(subject.store, path, max_bytes=100) == content, path


@_contract
def check_more_objects_than_one_page_are_all_listed(subject: StoreUnderTest) -> None:
    """More than one page of 1,000, none lost, none twice."""
    paths = [f"p/{number:05d}" for number in range(PAGE_OBJECTS + 3)]
    subject.put(dict.fromkeys(paths, b"x"))
    assert sorted(stat.path for stat in subject.store.walk("p")) == paths
    with _raises(LimitExceededError):
        list_folder(subject.store, "p", max_files=PAGE_OBJECTS)


@_contract
def check_paths_out_of_the_root_are_refused(subject: StoreUnderTest) -> None:
    """Absolute, `..`, `.`, empty segments, NUL: PathEscapeError before anything is opened."""
    subject.put({"d/a": b"1"})
    for path in ("../a", "d/../a", "/etc/hostname", "d//a", "./d/a", "d/.", "", "..", "d/a\0b"):
        for operation in (subject.store.stat, subject.store.open):
            with _raises(PathEscapeError):
                operation(path)
        if path:
            with _raises(PathEscapeError):
                list(subject.store.walk(path))


@_contract
def check_refused_is_neither_empty_nor_absent(subject: StoreUnderTest) -> None:
    """AccessDeniedError from every operation; never an empty listing, never not-found."""
    subject.put({"d/a": b"1", "d/b": b"1"})
    refusing = subject.denied("d")
    if refusing is None:
        return
    with refusing as store:
        with _raises(AccessDeniedError):
            list(store.walk("d"))
        with _raises(AccessDeniedError):
            list(store.walk())
        with _raises(AccessDeniedError):
            store.stat("d/a")
        with _raises(AccessDeniedError), store.open("d/a") as reader:
            reader.readinto(memoryview(bytearray(1)), 0)


@_contract
def check_a_missing_root_is_neither_empty_nor_absent(subject: StoreUnderTest) -> None:
    """A bucket or root folder that does not exist says nothing about its objects: StoreError."""
    store = subject.without_root()
    if store is None:
        return
    for operation in (
        lambda: list(store.walk()),
        lambda: list(store.walk("d")),
        lambda: store.stat("d/a"),
        lambda: store.open("d/a"),
    ):
        with _raises(StoreError) as caught:
            operation()
        assert not isinstance(caught[0], ObjectNotFoundError), caught[0]
        assert not caught[0].is_retryable


@_contract
def check_read_whole_is_bounded(subject: StoreUnderTest) -> None:
    """One byte over the limit is LimitExceededError."""
    subject.put({"a": b"12345"})
    assert read_whole(subject.store, "a", max_bytes=5) == b"12345"
    with _raises(LimitExceededError):
        read_whole(subject.store, "a", max_bytes=4)


@contextmanager
def _raises(kind: type[CkptGuardError]) -> Iterator[list[StoreError]]:
    caught: list[StoreError] = []
    try:
        yield caught
    except kind as error:
        if isinstance(error, StoreError):
            caught.append(error)
        return
    msg = f"no {kind.__name__}"
    raise AssertionError(msg)


def _require_range(readinto: Callable[[memoryview, int], int], content: bytes, start: int, end: int) -> None:
    buffer = bytearray(end - start)
    got = readinto(memoryview(buffer), start)
    expected = content[start:end]
    assert got == len(expected), (start, end, got)
    assert memoryview(buffer)[:got] == expected, (start, end)


def _pattern(length_bytes: int) -> bytes:
    """Return bytes in which every aligned word is another one, so that a shift shows."""
    return array("I", range(length_bytes // 4 + 1)).tobytes()[:length_bytes]
