"""Guarded saves to a real S3 server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import s3fs
import torch
import xxhash
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader
from torch.distributed.checkpoint.filesystem import SerializationFormat
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save, save

from ckptguard.integrations import incidents
from ckptguard.integrations.dcp import GuardedWriter, counters
from ckptguard.integrations.registration import sender
from ckptguard.model.manifest import MANIFEST_NAME
from ckptguard.model.saving_marker import is_saving_marker
from tests.integration.s3_server import S3Server

pytestmark = [
    pytest.mark.torch,
    pytest.mark.s3,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
    pytest.mark.filterwarnings("ignore:Detected an existing checkpoint"),
    pytest.mark.filterwarnings("ignore:os.sync"),
]


@pytest.fixture(autouse=True)
def _fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CKPTGUARD_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("CKPTGUARD_DATA_DIR", str(tmp_path / "no-service"))
    incidents.forget()
    sender._OF_PROCESS.reset()
    yield
    sender._OF_PROCESS.reset()


def _options(server: S3Server) -> dict[str, Any]:
    return {"endpoint_url": server.endpoint, **server.options()}


def _state(step: int) -> dict[str, Any]:
    return {"w": torch.full((1000, 100), float(step)), "b": torch.arange(7.0) + step}


def _stored(server: S3Server, folder: str) -> dict[str, bytes]:
    filesystem = s3fs.S3FileSystem(skip_instance_cache=True, **server.options())
    return {path.rpartition("/")[2]: filesystem.cat_file(path) for path in filesystem.find(folder)}


def _assert_listed(stored: dict[str, bytes]) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(stored.pop(MANIFEST_NAME))
    assert {file["path"]: (file["length_bytes"], file["checksum"]) for file in manifest["files"]} == {
        name: (len(data), f"xxh3-128:{xxhash.xxh3_128(data).hexdigest()}") for name, data in stored.items()
    }
    return manifest


def test_the_manifest_lists_exactly_the_objects(s3_server: S3Server) -> None:
    folder = f"{s3_server.bucket}/guarded/step-1"
    writer = GuardedWriter(f"s3://{folder}", run="r", thread_count=2, **_options(s3_server))
    save(_state(1), storage_writer=writer)
    first = _assert_listed(_stored(s3_server, folder))
    future: Any = async_save(
        _state(2), storage_writer=writer, async_checkpointer_type=AsyncCheckpointerType.THREAD
    )
    future.result()
    second = _assert_listed(_stored(s3_server, folder))
    assert first["save_id"] != second["save_id"]
    loaded = {"w": torch.zeros(1000, 100), "b": torch.zeros(7)}
    load(loaded, storage_reader=FsspecReader(f"s3://{folder}", **_options(s3_server)))
    assert torch.equal(loaded["w"], _state(2)["w"])
    assert counters()["saves_guarded"] == 2


def test_a_writer_that_is_sent_to_another_folder_keeps_its_credentials(s3_server: S3Server) -> None:
    folder = f"{s3_server.bucket}/guarded-more/step"
    writer = GuardedWriter(
        f"s3://{folder}-1", serialization_format=SerializationFormat.SAFETENSORS, **_options(s3_server)
    )
    for step in (1, 2):
        save(_state(step), storage_writer=writer, checkpoint_id=f"s3://{folder}-{step}")
        assert _assert_listed(_stored(s3_server, f"{folder}-{step}"))["step"] == step


def test_a_save_over_another_removes_manifest_and_metadata_first(s3_server: S3Server) -> None:
    folder = f"{s3_server.bucket}/guarded-torn/step-1"
    writer = GuardedWriter(f"s3://{folder}", **_options(s3_server))
    save(_state(1), storage_writer=writer)
    writer.prepare_global_plan([])
    marker, shard = sorted(_stored(s3_server, folder), reverse=True)
    assert (is_saving_marker(marker), shard) == (True, "__0_0.distcp")
    save(_state(2), storage_writer=writer)
    assert set(_stored(s3_server, folder)) == {"__0_0.distcp", ".metadata", MANIFEST_NAME}
