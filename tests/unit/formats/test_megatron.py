"""What Megatron's loader would miss beside a DCP save, and what is none of its business."""

import pytest

from ckptguard.formats.dcp_metadata import MetadataTables
from ckptguard.formats.megatron import check_megatron
from ckptguard.model.finding import Severity
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import list_folder
from ckptguard.storage.memory import MemoryStore

PLANS = frozenset({"torch.distributed.checkpoint.planner.SavePlan"})
OLD = b'{"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch"}'
NEW = b'{"sharded_backend": "torch_dist", "sharded_backend_version": 1}'


def told(
    files: dict[str, bytes], *, plans: bool = True, objects: tuple[str, ...] = ()
) -> list[tuple[str, Severity, str | None]]:
    store = MemoryStore({".metadata": b"x", **files})
    tables = MetadataTables(objects=objects, globals=PLANS if plans else frozenset())
    findings = check_megatron(store, list_folder(store, "", max_files=10), Limits(), tables)
    return [(finding.code.value, finding.severity, finding.file) for finding in findings]


@pytest.mark.parametrize(
    "files",
    [
        {"metadata.json": OLD, "common.pt": b"zip"},
        {"metadata.json": NEW},
        {"metadata.json": b'{"somebody": "else"}'},
        {"metadata.json": b"x" * 100_000},
    ],
)
def test_a_whole_checkpoint_is_not_complained_about(files: dict[str, bytes]) -> None:
    assert told(files) == []


@pytest.mark.parametrize("files", [{}, {"metadata.json": b""}, {"metadata.json": b"{"}])
def test_folders_of_others_are_left_alone(files: dict[str, bytes]) -> None:
    assert told(files, plans=False) == []


def test_common_pt_may_be_an_item() -> None:
    """Newer Megatron keeps it in the shards (modelscope/ms-swift#9908)."""
    assert told({"metadata.json": OLD}) == [("missing_shard", Severity.ERROR, "common.pt")]
    assert told({"metadata.json": OLD}, objects=("common_state/shard_0_1",)) == []


@pytest.mark.parametrize("plans", [True, False])
def test_without_its_config_it_is_no_checkpoint_to_megatron(plans: bool) -> None:  # noqa: FBT001 - a case
    assert told({"common.pt": b"zip"}, plans=plans) == [("not_committed", Severity.UNKNOWN, "metadata.json")]


@pytest.mark.parametrize(
    ("config", "code"),
    [(b"", "empty_metadata"), (b'{"a', "malformed_metadata"), (bytes(9), "malformed_metadata")],
)
def test_a_config_that_does_not_parse_condemns(config: bytes, code: str) -> None:
    assert told({"metadata.json": config}) == [(code, Severity.ERROR, "metadata.json")]
