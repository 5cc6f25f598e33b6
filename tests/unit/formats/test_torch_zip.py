"""`ZipVerifier` against items that torch itself writes, and against named faults in them."""

import io
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.utils.serialization import config

from ckptguard.formats.protocol import CrcState, ItemReport, Problem
from ckptguard.formats.torch_dtypes import ITEMSIZES
from ckptguard.formats.torch_zip import ZipVerifier
from ckptguard.model.finding import FindingCode

pytestmark = pytest.mark.torch


def saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def verify(
    content: bytes,
    *,
    piece_bytes: int | None = None,
    max_pickle_bytes: int = 1 << 20,
    has_zero_tail: bool = False,
) -> ItemReport:
    report, _ = verify_with_payload(
        content, piece_bytes=piece_bytes, max_pickle_bytes=max_pickle_bytes, has_zero_tail=has_zero_tail
    )
    return report


def verify_with_payload(
    content: bytes,
    *,
    piece_bytes: int | None = None,
    max_pickle_bytes: int = 1 << 20,
    has_zero_tail: bool = False,
) -> tuple[ItemReport, dict[str, bytes]]:
    verifier = ZipVerifier(
        len(content), max_pickle_bytes=max_pickle_bytes, is_zero_tail_allowed=has_zero_tail
    )
    storages: dict[str, bytearray] = {}
    step = piece_bytes or max(len(content), 1)
    for start in range(0, len(content), step):
        for payload in verifier.feed(memoryview(content)[start : start + step]):
            storage = storages.setdefault(payload.storage_key, bytearray())
            assert payload.start == len(storage)
            storage += payload.view
    return verifier.finish(), {key: bytes(storage) for key, storage in storages.items()}


def only_problem(report: ItemReport) -> Problem:
    assert len(report.problems) == 1, report.problems
    return report.problems[0]


def flipped(content: bytes, offset: int, bit: int = 0) -> bytes:
    changed = bytearray(content)
    changed[offset] ^= 1 << bit
    return bytes(changed)


def raw_bytes(tensor: torch.Tensor) -> bytes:
    storage = tensor.untyped_storage()
    return bytes(torch.empty(0, dtype=torch.uint8).set_(storage).tolist())


@contextmanager
def saving_with(**settings: object) -> Iterator[None]:
    # `patch` is put there by install_config_module
    with config.patch({f"save.{name}": value for name, value in settings.items()}):  # type: ignore[attr-defined]
        yield


def every_dtype() -> list[torch.dtype]:
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    return sorted(found, key=str)


def tensor_of(dtype: torch.dtype) -> torch.Tensor | None:
    if re.fullmatch(r"torch\.(q.*|bits.*|u?int[1-7])", str(dtype)):  # torch itself cannot save these plainly
        return None
    return torch.arange(48, dtype=torch.uint8).view(dtype)


@pytest.mark.parametrize("dtype", every_dtype(), ids=str)
def test_a_tensor_of_every_dtype_is_proven(dtype: torch.dtype) -> None:
    tensor = tensor_of(dtype)
    if tensor is None:
        assert str(dtype).removeprefix("torch.") in ITEMSIZES
        return
    report, storages = verify_with_payload(saved(tensor))
    assert report.problems == ()
    assert report.tensor is not None
    assert report.tensor.dtype == str(dtype).removeprefix("torch.")
    assert report.tensor.sizes == tuple(tensor.shape)
    assert storages == {"0": bytes(range(48))}


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32], ids=str)
def test_a_quantised_tensor_is_proven(dtype: torch.dtype) -> None:
    with warnings.catch_warnings(action="ignore"):  # torch announces the end of quantised dtypes, once
        tensor = torch.quantize_per_tensor(torch.arange(6.0), 0.5, 1, dtype)
    report = verify(saved(tensor))
    assert report.problems == ()
    assert report.tensor is not None
    assert (report.tensor.dtype, report.tensor.sizes) == (str(dtype).removeprefix("torch."), (6,))


@pytest.mark.parametrize(
    "value",
    [
        torch.empty(0),
        torch.empty(0, 4),
        torch.tensor(3.5),
        torch.arange(24.0).view(4, 6).t(),
        torch.arange(24.0)[3:9:2],
        torch.nn.Parameter(torch.ones(2, 3)),
        torch.ones(3, dtype=torch.bool),
    ],
    ids=["empty", "empty rows", "scalar", "transposed", "strided view", "parameter", "bool"],
)
@pytest.mark.parametrize("piece_bytes", [None, 1, 61])
def test_unusual_tensors_are_proven(value: torch.Tensor, piece_bytes: int | None) -> None:
    report, storages = verify_with_payload(saved(value), piece_bytes=piece_bytes)
    assert report.problems == ()
    assert report.crc is CrcState.CHECKED
    assert report.tensor is not None
    assert report.tensor.sizes == tuple(value.shape)
    assert report.tensor.stride == value.stride()
    assert report.tensor.storage_offset == value.storage_offset()
    assert report.tensor.requires_grad == value.requires_grad
    assert storages.get("0", b"") == raw_bytes(value.detach())


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"step": 3, "betas": (0.9, 0.95)},
        {"a": torch.ones(3), "b": [torch.zeros(0), torch.arange(4)]},
        [torch.full((1,), float(i)) for i in range(40)],
        {"text": "PK\x03\x04PK\x07\x08PK\x01\x02" * 50},
        {"raw": b"PK\x03\x04" * 300},
    ],
    ids=[
        "none",
        "dict",
        "numbers",
        "several storages",
        "forty storages",
        "text like a zip",
        "bytes like a zip",
    ],
)
@pytest.mark.parametrize("piece_bytes", [None, 1, 61])
def test_objects_are_proven(value: object, piece_bytes: int | None) -> None:
    assert verify(saved(value), piece_bytes=piece_bytes).problems == ()


def test_an_object_that_holds_a_whole_saved_file_is_proven() -> None:
    inner = saved({"w": torch.arange(9.0)})
    report = verify(saved({"_extra_state": io.BytesIO(inner), "raw": inner}))
    assert report.problems == ()


def test_storages_shared_by_several_tensors_are_seen_once() -> None:
    base = torch.arange(10.0)
    report, storages = verify_with_payload(saved([base[:5], base[5:]]))
    assert report.problems == ()
    assert storages == {"0": raw_bytes(base)}


def test_a_storage_with_a_broken_last_element_is_proven() -> None:
    tensor = torch.arange(11, dtype=torch.uint8)[:8].view(torch.int32)
    report, storages = verify_with_payload(saved(tensor))
    assert report.problems == ()
    assert storages == {"0": bytes(range(11))}


def test_content_that_begins_like_a_descriptor_is_proven() -> None:
    tensor = torch.frombuffer(bytearray(b"PK\x07\x08" + bytes(range(28))), dtype=torch.uint8)
    assert verify(saved(tensor)).problems == ()


@pytest.mark.parametrize("alignment", [1, 8, 64, 128, 4096, 16384])
def test_every_storage_alignment_is_proven(alignment: int) -> None:
    with saving_with(storage_alignment=alignment):
        content = saved({"w": torch.arange(100.0), "b": torch.ones(3)})
    assert verify(content).problems == ()


def test_a_wrong_alignment_is_reported() -> None:
    with saving_with(storage_alignment=4096):
        content = saved(torch.ones(3))
    at = content.index(b"4096PK")
    problems = verify(content[:at] + b"2048" + content[at + 4 :]).problems
    assert {problem.record for problem in problems} >= {".storage_alignment"}


def test_switched_off_crcs_are_absent_and_no_problem() -> None:
    with saving_with(compute_crc32=False):
        content = saved({"w": torch.arange(5.0), "e": torch.empty(0)})
    report = verify(content)
    assert report.problems == ()
    assert report.crc is CrcState.ABSENT


def test_without_crcs_every_bit_outside_pickle_and_payload_is_still_proven() -> None:
    with saving_with(compute_crc32=False):
        content = saved(torch.arange(8.0))
    free = {b"data.pkl", b"data/0"}
    unproven = set()
    for extent in verify(content).extents:
        if extent.name in free:
            unproven |= set(range(extent.payload_offset, extent.payload_offset + extent.length_bytes))
    missed = [at for at in range(len(content)) if not verify(flipped(content, at, at % 8)).problems]
    assert set(missed) <= unproven


def test_payload_damage_names_record_and_both_crcs() -> None:
    content = saved(torch.arange(8.0))
    extent = verify(content).extents[4]
    problem = only_problem(verify(flipped(content, extent.payload_offset + 5)))
    assert problem.code is FindingCode.CRC_MISMATCH
    assert problem.record == "data/0"
    assert (problem.offset, problem.length_bytes) == (extent.payload_offset, 32)
    assert problem.expected == f"{extent.crc:08x}"
    assert problem.observed is not None
    assert re.fullmatch("[0-9a-f]{8}", problem.observed)


def test_an_altered_crc_field_is_not_taken_for_damaged_payload() -> None:
    content = saved(torch.arange(8.0))
    extent = verify(content).extents[4]
    in_descriptor = extent.payload_offset + extent.length_bytes + 5
    in_directory = content.rindex(struct.pack("<I", extent.crc)) + 1
    for offset in (in_descriptor, in_directory):
        problem = only_problem(verify(flipped(content, offset)))
        assert problem.code is FindingCode.ZIP_MALFORMED
        assert (problem.record, problem.offset) == ("data/0", offset)


def test_a_difference_shows_expected_and_observed_bytes() -> None:
    content = saved(torch.arange(8.0))
    problem = only_problem(verify(flipped(content, 8, 3)))
    assert problem.code is FindingCode.ZIP_MALFORMED
    assert (problem.record, problem.offset, problem.length_bytes) == ("data.pkl", 8, 1)
    assert (problem.expected, problem.observed) == ("00", "08")


def test_damage_in_the_pickle_is_one_problem() -> None:
    content = saved({"w": torch.arange(8.0), "b": torch.ones(4)})
    pickle = verify(content).extents[0]
    for at in range(pickle.payload_offset, pickle.payload_offset + pickle.length_bytes):
        problem = only_problem(verify(flipped(content, at, 1)))
        assert (problem.code, problem.record) == (FindingCode.CRC_MISMATCH, "data.pkl")


def test_an_altered_descriptor_does_not_hide_the_end_of_the_pickle() -> None:
    content = saved(torch.arange(8.0))
    pickle = verify(content).extents[0]
    at = pickle.payload_offset + pickle.length_bytes
    gone = content[:at] + bytes(16) + content[at + 16 :]
    problems = verify(gone).problems
    assert problems[0].offset == at
    assert {problem.record for problem in problems} == {"data.pkl"}


def test_every_truncation_is_found() -> None:
    content = saved(torch.arange(8.0))
    for length in range(len(content)):
        report = verify(content[:length])
        assert report.problems, length
        assert {problem.code for problem in report.problems} <= {
            FindingCode.ZIP_MALFORMED,
            FindingCode.CRC_MISMATCH,
        }


def test_an_item_whose_bytes_never_came_is_found() -> None:
    content = saved(torch.arange(8.0))
    for length in (0, 1, 200, len(content) - 1):
        verifier = ZipVerifier(len(content))
        list(verifier.feed(memoryview(content)[:length]))
        problem = verifier.finish().problems[-1]
        assert problem.message == "the item ends early"


def test_bytes_behind_the_zip_are_found_unless_zeros_are_allowed() -> None:
    content = saved(torch.arange(8.0))
    for tail in (b"\0", bytes(100), b"x"):
        assert verify(content + tail).problems
    assert verify(content + bytes(100), has_zero_tail=True).problems == ()
    assert verify(content + bytes(100), has_zero_tail=True, piece_bytes=7).problems == ()
    assert verify(content + b"\0x", has_zero_tail=True).problems


def test_an_item_of_unknown_length_is_proven_to_its_end() -> None:
    content = saved({"w": torch.arange(8.0)})
    for end, is_sound in ((len(content), True), (len(content) - 1, False), (100, False), (0, False)):
        verifier = ZipVerifier(None)
        for start in range(0, end, 100):
            list(verifier.feed(memoryview(content)[start : min(start + 100, end)]))
        assert (verifier.finish().problems == ()) is is_sound


def test_a_pickle_beyond_the_limit_is_a_limit_not_damage() -> None:
    content = saved({"text": "x" * 5000, "w": torch.ones(2)})
    problem = only_problem(verify(content, max_pickle_bytes=1000))
    assert problem.code is FindingCode.LIMIT_EXCEEDED
    assert verify(content, max_pickle_bytes=6000).problems == ()


def test_a_pickle_that_we_cannot_read_is_not_damage_if_its_crc_holds() -> None:
    buffer = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(buffer)
    writer.write_record("data.pkl", b"\xff no pickle.", 12)
    writer.write_end_of_file()
    problem = only_problem(verify(buffer.getvalue()))
    assert problem.code is FindingCode.OBJECT_NOT_BUILT


def test_a_record_that_the_pickle_does_not_name_is_found() -> None:
    content = saved([torch.ones(2), torch.zeros(2)])
    assert verify(content.replace(b"archive/data/1", b"archive/data/7")).problems
    assert verify(content.replace(b"archive/data/1", b"archive/data/0")).problems


def test_a_storage_without_record_is_found() -> None:
    pickled = saved([torch.ones(2), torch.zeros(2)])
    extent = verify(pickled).extents[0]
    data = pickled[extent.payload_offset : extent.payload_offset + extent.length_bytes]
    buffer = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(buffer)
    writer.write_record("data.pkl", data, len(data))
    writer.write_record("data/0", bytes(8), 8)
    writer.write_end_of_file()
    problem = only_problem(verify(buffer.getvalue()))
    assert (problem.record, problem.message) == ("data/1", "data/1: the storage is missing")


def test_globals_are_named_and_nothing_is_built() -> None:
    report = verify(saved({"when": re.compile("x"), "w": torch.ones(1)}))
    assert report.problems == ()
    assert "re._compile" in report.globals
    assert report.tensor is None


def test_memory_does_not_follow_the_payload() -> None:
    length = 8 << 20
    content = saved(torch.zeros(length, dtype=torch.uint8))
    verifier = ZipVerifier(len(content))
    most = 0
    for start in range(0, len(content), 1 << 20):
        for _ in verifier.feed(memoryview(content)[start : start + (1 << 20)]):
            pass
        most = max(most, len(verifier._tape._held))
    assert verifier.finish().problems == ()
    assert most < 4096
