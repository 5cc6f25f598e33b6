"""Where a checkpoint is on this machine: nothing outside its store, nothing that a line cannot hold."""

from pathlib import Path

import pytest

from ckptguard.errors import ConfigError, ObjectNotFoundError, PathEscapeError, StoreUnavailableError
from ckptguard.operations.store_view import StoreView, parse_stores

HOSTILE_PATHS = [
    "..",
    "../x",
    "run/../../x",
    "/etc",
    "run//x",
    "./run",
    "run/",
    "run/\n/etc/passwd",
    "run/\x1b[2J",
    "run/\u202estep",
    "run/\x00",
    "run/\ud800",
]


@pytest.mark.parametrize("path", HOSTILE_PATHS)
@pytest.mark.parametrize("roots", [{}, {"demo": "/data"}], ids=["unmapped", "mapped"])
def test_a_hostile_folder_is_refused(path: str, roots: dict[str, str]) -> None:
    with pytest.raises(PathEscapeError):
        StoreView(roots=roots).spot("demo", path, f"file:///data/{path}")


@pytest.mark.parametrize(
    "url",
    [
        "file:///data/run/other",
        "file:///data/../etc/run/step",
        "http://169.254.169.254/run/step",
        "https://evil.example/run/step",
        "simplecache::s3://bucket/run/step",
        "data/run/step",
        "file://host/data/run/step",
        "s3://user:secret@bucket/run/step",
        "",
        "memory://run/step",
    ],
)
def test_an_address_that_the_service_may_not_choose_is_refused(url: str) -> None:
    with pytest.raises(PathEscapeError) as caught:
        StoreView().spot("demo", "run/step", url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("roots", "url", "text"),
    [
        ({}, "file:///data/ckpts/run/step", "/data/ckpts/run/step"),
        ({}, "/data/ckpts/run/step", "/data/ckpts/run/step"),
        ({}, "s3://bucket/pre/run/step", "s3://bucket/pre/run/step"),
        ({"demo": "/mnt/x/"}, "s3://bucket/run/step", "/mnt/x/run/step"),
        ({"demo": "file:///mnt/x"}, "s3://bucket/run/step", "/mnt/x/run/step"),
        ({"demo": "s3://mirror/x"}, "file:///data/run/step", "s3://mirror/x/run/step"),
        ({"other": "/mnt/x"}, "file:///data/run/step", "/data/run/step"),
    ],
)
def test_a_store_is_where_this_machine_has_it(roots: dict[str, str], url: str, text: str) -> None:
    assert StoreView(roots=roots).spot("demo", "run/step", url).text == text


def test_a_store_that_is_not_mounted_is_unavailable_and_not_a_loss(tmp_path: Path) -> None:
    spot = StoreView(roots={"demo": str(tmp_path / "not-mounted")}).spot("demo", "run", "")
    with pytest.raises(StoreUnavailableError, match="--store"):
        spot.list()


def test_a_folder_that_is_gone_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        StoreView(roots={"demo": str(tmp_path)}).spot("demo", "run", "").list()


def test_a_link_out_of_the_store_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_text("x")
    (tmp_path / "store" / "run").symlink_to(tmp_path / "outside")
    with pytest.raises(PathEscapeError):
        StoreView(roots={"demo": str(tmp_path / "store")}).spot("demo", "run", "").list()


def test_one_file_is_listed_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.pt").write_bytes(b"x")
    listing = StoreView(roots={"demo": str(tmp_path)}).spot("demo", "run/model.pt", "").list()
    assert list(listing.files) == ["model.pt"]


def test_stores_are_pairs() -> None:
    assert parse_stores("a=/x, b=s3://y/z=1,") == {"a": "/x", "b": "s3://y/z=1"}
    for text in ("a", "=x", "a=", "a=1,a=2"):
        with pytest.raises(ConfigError):
            parse_stores(text)
