"""Which store holds a place, and what lies above and below it: by the text alone."""

import pytest

from ckptguard.errors import LocationRefusedError
from ckptguard_api.domain.locations import AskedLocation, Root, ancestors_of, place, range_below

ROOTS = (
    Root(store_id=1, name="demo", url="file:///data/ckpts"),
    Root(store_id=2, name="inner", url="file:///data/ckpts/fast"),
    Root(store_id=3, name="bucket", url="s3://bucket/runs"),
)


@pytest.mark.parametrize(
    ("url", "store", "path"),
    [
        ("/data/ckpts/run-7/step-1", "demo", "run-7/step-1"),
        ("/data/ckpts//run-7/./step-1/", "demo", "run-7/step-1"),
        ("file:///data/ckpts/a", "demo", "a"),
        ("/data/ckpts/fast/a", "inner", "a"),
        ("/data/ckpts/faster/a", "demo", "faster/a"),
        ("s3a://bucket/runs/a b%20c", "bucket", "a b%20c"),
        ("/data/ckpts/R/Step", "demo", "R/Step"),
    ],
)
def test_a_url_goes_to_the_innermost_store_that_holds_it(url: str, store: str, path: str) -> None:
    found = place(AskedLocation(url=url), ROOTS)
    assert (found.store, found.path) == (store, path)
    assert found == place(AskedLocation(store=store, path=path), ROOTS)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (AskedLocation(url="/data/ckpts"), "the root of store 'demo' itself"),
        (AskedLocation(url="/data/ckpts/../secret"), r"'\.\.' segment"),
        (AskedLocation(url="http://169.254.169.254/x"), "stores of kind http"),
        (AskedLocation(url="simplecache::s3://bucket/runs/x"), "chained"),
        (AskedLocation(url="s3://user:pw@bucket/runs/x"), "user or password"),
        (AskedLocation(store="demo", path=""), "empty path"),
        (AskedLocation(store="demo", path="/etc"), "not relative"),
        (AskedLocation(store="demo", path="a/../../etc"), "segment"),
        (AskedLocation(store="demo", path="a//b"), "segment"),
        (AskedLocation(store="demo", path="."), "segment"),
        (AskedLocation(store="bucket", path="a?versionId=1"), "a query"),
        (AskedLocation(store="nope", path="a"), "no store 'nope'"),
        (AskedLocation(store="demo", path="a", url="/data/ckpts/a"), "either store and path, or url"),
        (AskedLocation(store="demo"), "either store and path, or url"),
        (AskedLocation(), "either store and path, or url"),
    ],
)
def test_an_unsafe_or_unclear_location_is_refused(asked: AskedLocation, reason: str) -> None:
    with pytest.raises(LocationRefusedError, match=reason) as raised:
        place(asked, ROOTS)
    assert raised.value.problems


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(LocationRefusedError) as raised:
        place(AskedLocation(store="nope", path="/a/../b"), ROOTS)
    assert len(raised.value.problems) == 2


@pytest.mark.parametrize(
    "url", ["/home/me/run/step-1", "/data/ckpts-old/a", "/data/ckptsx", "s3://other/runs/a"]
)
def test_a_place_outside_every_store_names_what_would_allow_it(url: str) -> None:
    with pytest.raises(LocationRefusedError) as raised:
        place(AskedLocation(url=url), ROOTS)
    parent = url.rpartition("/")[0]
    assert f"`ckptguard serve --store NAME={parent}`" in str(raised.value)
    assert "POST /v1/stores" in str(raised.value)
    assert "demo=/data/ckpts" in str(raised.value)


def test_ancestors_are_the_folders_above_and_stop_at_the_bucket() -> None:
    assert ancestors_of("s3://b/x/y/z") == ("s3://b/x/y", "s3://b/x", "s3://b")
    assert ancestors_of("file:///a/b") == ("file:///a", "file://")


@pytest.mark.parametrize(
    "other", ["s3://b/step-10", "s3://b/step-1", "s3://b/step-1.bak", "s3://b/Step-1/x", "s3://b/step-1 /x"]
)
def test_a_neighbour_with_a_longer_name_is_not_below(other: str) -> None:
    low, high = range_below("s3://b/step-1")
    assert not low.encode() <= other.encode() < high.encode()


@pytest.mark.parametrize(
    "below", ["s3://b/step-1/x", "s3://b/step-1/\u00fc", "s3://b/step-1/\U0001f600/x", "s3://b/step-1/ "]
)
def test_everything_below_is_in_the_range(below: str) -> None:
    low, high = range_below("s3://b/step-1")
    assert low.encode() <= below.encode() < high.encode()
