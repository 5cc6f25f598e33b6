"""Which folder a bare path allows to be read from (design §10 Links)."""

from pathlib import Path

import pytest

from ckptguard.errors import ConfigError, ObjectNotFoundError
from ckptguard.storage.local_root import resolve_local
from ckptguard.storage.protocol import read_whole


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a folder at least five levels below `/`."""
    folder = tmp_path / "models" / "run"
    folder.mkdir(parents=True)
    return folder


def test_without_links_the_root_is_the_folder_above(base: Path) -> None:
    (base / "step-1").mkdir()
    store, prefix = resolve_local(str(base / "step-1"))
    assert (store.root, prefix) == (base, "step-1")


def test_hub_cache_gets_the_models_own_folder(base: Path) -> None:
    (base / "blobs").mkdir()
    (base / "blobs/hash").write_bytes(b"weights")
    (base / "snapshots/rev").mkdir(parents=True)
    (base / "snapshots/rev/model.safetensors").symlink_to("../../blobs/hash")
    store, prefix = resolve_local(str(base / "snapshots/rev"))
    assert (store.root, prefix) == (base, "snapshots/rev")
    assert list(store.escapes(prefix)) == []
    assert read_whole(store, f"{prefix}/model.safetensors", max_bytes=10) == b"weights"


def test_single_linked_file_keeps_its_name(base: Path) -> None:
    (base / "blobs").mkdir()
    (base / "blobs/hash").write_bytes(b"weights")
    (base / "snapshots/rev").mkdir(parents=True)
    (base / "snapshots/rev/model.safetensors").symlink_to("../../blobs/hash")
    store, prefix = resolve_local(str(base / "snapshots/rev/model.safetensors"))
    assert prefix.endswith("model.safetensors")
    assert [stat.path for stat in store.walk(prefix)] == [prefix]


def test_target_four_levels_up_is_an_escape_and_widens_nothing(base: Path) -> None:
    (base.parent.parent / "far").write_bytes(b"x")
    (base / "near").write_bytes(b"x")
    step = base / "a/b/step"
    step.mkdir(parents=True)
    (step / "bad").symlink_to(base.parent.parent / "far")
    (step / "evil").symlink_to("/etc/hostname")
    (step / "good").symlink_to(base / "near")
    store, prefix = resolve_local(str(step))
    assert (store.root, prefix) == (base, "a/b/step")
    assert sorted(store.escapes(prefix)) == ["a/b/step/bad", "a/b/step/evil"]
    assert [stat.path for stat in store.walk(prefix)] == ["a/b/step/good"]


def test_link_to_the_root_directory_is_not_searched(base: Path) -> None:
    (base / "step").mkdir()
    (base / "step/all").symlink_to("/")
    store, prefix = resolve_local(str(base / "step"))
    assert (store.root, prefix) == (base, "step")
    assert list(store.escapes(prefix)) == ["step/all"]


def test_links_in_linked_folders_count(base: Path) -> None:
    (base / "blobs").mkdir()
    (base / "blobs/x").write_bytes(b"x")
    (base / "a/shards").mkdir(parents=True)
    (base / "a/shards/x").symlink_to("../../blobs/x")
    (base / "a/step").mkdir()
    (base / "a/step/shards").symlink_to("../shards")
    store, prefix = resolve_local(str(base / "a/step"))
    assert store.root == base
    assert [stat.path for stat in store.walk(prefix)] == ["a/step/shards/x"]


def test_link_given_as_path_is_resolved(base: Path) -> None:
    (base / "step-7").mkdir()
    (base / "latest").symlink_to("step-7")
    assert resolve_local(str(base / "latest"))[1] == "step-7"


def test_root_given_by_the_user_wins(base: Path) -> None:
    (base / "step-1").mkdir()
    store, prefix = resolve_local(str(base / "step-1"), root=base.parent)
    assert (store.root, prefix) == (base.parent, "run/step-1")
    assert resolve_local(str(base), root=base)[1] == ""


def test_path_outside_the_given_root_is_a_usage_error(base: Path) -> None:
    (base / "step-1").mkdir()
    (base / "step-2").mkdir()
    with pytest.raises(ConfigError):
        resolve_local(str(base / "step-1"), root=base / "step-2")


def test_the_whole_machine_is_never_a_root() -> None:
    with pytest.raises(ConfigError):
        resolve_local("/")
    store, prefix = resolve_local("/etc")
    assert (str(store.root), prefix) == ("/etc", "")


@pytest.mark.parametrize("name", ["gone", "gone/deeper", "loop", "dangling"])
def test_nothing_at_the_path_is_not_found(base: Path, name: str) -> None:
    (base / "loop").symlink_to("loop")
    (base / "dangling").symlink_to("gone")
    with pytest.raises(ObjectNotFoundError):
        resolve_local(str(base / name))
