"""From what a user types to a store and a prefix."""

from pathlib import Path

import pytest

from ckptguard.errors import ConfigError, ObjectNotFoundError
from ckptguard.storage.local import LocalStore
from ckptguard.storage.open_url import open_location, split_url
from ckptguard.storage.retry import RetryingStore


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket/run/step-1/", ("s3://bucket", "run/step-1")),
        ("s3://bucket", ("s3://bucket", "")),
        ("s3://bucket/a#b?c%20d", ("s3://bucket", "a#b?c%20d")),
        ("https://host/a%20b/model.safetensors", ("https://host", "a b/model.safetensors")),
        ("memory:///a/b", ("memory://", "a/b")),
        (
            "abfs://container@account.dfs.core.windows.net/x",
            ("abfs://container@account.dfs.core.windows.net", "x"),
        ),
    ],
)
def test_url_is_split_at_its_bucket_or_host(url: str, expected: tuple[str, str]) -> None:
    assert split_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///key",
        "s3://bucket/a/../b",
        "s3://bucket//a",
        "https://host/x?X-Amz-Signature=secret",
        "https://h/x#y",
    ],
)
def test_unusable_url_is_a_config_error_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "target", ["nosuch://x/y", "gs://bucket/x", "simplecache::s3://bucket/x", "s3://bucket/a/../b"]
)
def test_unusable_location_is_a_config_error(target: str) -> None:
    with pytest.raises(ConfigError):
        open_location(target)


@pytest.mark.parametrize("form", ["{}", "file://{}", "local://{}"])
def test_every_local_form_is_a_contained_store(form: str, tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    store, prefix = open_location(form.format(tmp_path / "step-1"))
    assert isinstance(store, RetryingStore)
    assert isinstance(store.inner, LocalStore)
    assert (store.url, prefix) == (str(tmp_path), "step-1")


def test_local_name_with_url_characters_is_local(tmp_path: Path) -> None:
    (tmp_path / "a::b#c?d").mkdir()
    assert open_location(str(tmp_path / "a::b#c?d"))[1] == "a::b#c?d"


def test_nothing_at_a_local_path_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        open_location(str(tmp_path / "gone"))


def test_root_is_for_local_paths(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="local paths"):
        open_location("memory://a/b", root=tmp_path)


def test_remote_location_lists_its_prefix() -> None:
    store, prefix = open_location("memory://open-url/step-1")
    assert (store.url, prefix, list(store.walk(prefix))) == ("memory://open-url", "step-1", [])
