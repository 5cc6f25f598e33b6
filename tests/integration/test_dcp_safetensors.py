"""DCP shards that are safetensors files: what loads, and what is said of them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, SerializationFormat
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageReader

from ckptguard.integrations.dcp import GuardedWriter
from ckptguard.model.finding import FindingCode, Severity
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.verdict import Provenance, Verdict
from ckptguard.operations.validate import validate

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]

_POLICY = Policy(depth=Depth.CONTENT, settle_s=0.0)
_FORMAT = SerializationFormat.SAFETENSORS


def _state() -> dict[str, Any]:
    return {"w": torch.arange(6.0).view(2, 3), "b": torch.ones(4)}


def _why_not(reader: StorageReader) -> str:
    loaded = {name: torch.zeros_like(tensor) for name, tensor in _state().items()}
    with pytest.raises(CheckpointException) as caught:
        load(loaded, storage_reader=reader, no_dist=True)
    return str(caught.value.failures[0][0])


def test_tensors_behind_objects_load_by_no_reader_of_torch_and_the_verdict_says_why(tmp_path: Path) -> None:
    folder, as_files = tmp_path / "mixed", tmp_path / "as-files"
    writer = FileSystemWriter(folder, serialization_format=_FORMAT)
    save({**_state(), "progress": {"step": 1}}, storage_writer=writer, no_dist=True)
    as_files.mkdir()
    (as_files / "model.safetensors").write_bytes((folder / "__0_0.distcp").read_bytes())
    assert "Weights only load failed" in _why_not(FileSystemReader(folder))
    assert "header too large" in _why_not(HuggingFaceStorageReader(str(as_files)))

    report = validate(str(folder), policy=_POLICY)
    (finding,) = (each for each in report.findings if each.severity is Severity.ERROR)
    assert FindingCode.LONG_SHARD not in {each.code for each in report.findings}
    assert (report.judgement.verdict, finding.code) == (Verdict.INVALID, FindingCode.HEADER_MALFORMED)
    assert "pickled objects stand before its safetensors header" in finding.message


def test_an_empty_file_of_a_thread_is_not_called_left_over_where_a_manifest_lists_it(tmp_path: Path) -> None:
    for name, writer in (
        ("stock", FileSystemWriter(tmp_path / "stock", serialization_format=_FORMAT, thread_count=3)),
        (
            "guarded",
            GuardedWriter(tmp_path / "guarded", step=1, serialization_format=_FORMAT, thread_count=3),
        ),
    ):
        save(_state(), storage_writer=writer, no_dist=True)
        assert (tmp_path / name / "__0_2.distcp").stat().st_size > 0
    left_over = {
        name: [
            finding.file
            for finding in validate(str(tmp_path / name), policy=_POLICY).findings
            if finding.code is FindingCode.UNREFERENCED_FILE
        ]
        for name in ("stock", "guarded")
    }
    assert left_over == {"stock": ["__0_2.distcp"], "guarded": []}
    assert validate(str(tmp_path / "guarded"), policy=_POLICY).provenance is Provenance.PROVEN
