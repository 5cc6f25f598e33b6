"""The law: any change of any bit of a torch.save zip is found, on every path that verifies it."""

import functools
import io
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ckptguard.formats.protocol import CrcState, ItemReport
from ckptguard.formats.torch_zip import ZipVerifier
from ckptguard.formats.torch_zip_template import TemplateCache
from ckptguard.model.layout import Item, ItemKind, Slice

SEED = 20261107
MAX_SAMPLED_BYTES = 3000
PIECES = (1, 2, 15, 16, 17, 63, 64, 65, 500, 5000)

WRITERS = (
    "dcp_torch2_1_2_nodist",
    "dcp_torch2_1_2_shardedtensor_ws2",
    "dcp_torch2_3_1_dtypes_nodist",
    "dcp_torch2_6_0_fsdp1_ws2",
    "dcp_torch2_8_0_nodist",
    "dcp_torch2_9_1_fsdp2_ws2",
    "dcp_torch2_13_0_dtypes_nodist",
    "dcp_torch2_13_0_uneven_ws4",
    "dcp_torch2_14_1_fsdp2_ws2",
    "megatron_dp_fullpar_ws2",
    "megatron0_19_py313_dp_fullpar_ws2",
    "torchtitan_sync_ws2",
    "olmo_core_ws2",
    "lightning_modelparallel_ws2",
)


def seeded(what: object = "") -> Random:
    return Random(f"{SEED} {what}")  # noqa: S311 - a test that can be repeated, not a secret


def items_of(content: bytes) -> Iterator[bytes]:
    """Cut a `.distcp` file into its zips: each ends with an end record that points at its own directory."""
    start = 0
    for match in re.finditer(rb"PK\x05\x06", content):
        end = match.start()
        length = int.from_bytes(content[end + 12 : end + 16], "little")
        offset = int.from_bytes(content[end + 16 : end + 20], "little")
        if start + offset + length + 56 + 20 == end:
            yield content[start : end + 22]
            start = end + 22
    assert start == len(content)


def decoded(content: bytes) -> bytes:
    """Undo zstd, frame by frame."""
    zstandard = pytest.importorskip("zstandard")
    frames = []
    while content:
        decoder = zstandard.ZstdDecompressor().decompressobj()
        frames.append(decoder.decompress(content))
        content = decoder.unused_data
    return b"".join(frames)


@functools.cache
def items_below(folder: Path) -> tuple[bytes, ...]:
    """Return every zip item of a checkpoint, and every whole torch.save file."""
    found = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix not in {".distcp", ".pt", ".bin", ".pkl"}:
            continue
        content = path.read_bytes()
        if path.suffix == ".distcp" and content.startswith(b"\x28\xb5\x2f\xfd"):
            content = decoded(content)
        if content.startswith(b"PK\x03\x04"):
            found += list(items_of(content)) if path.suffix == ".distcp" else [content]
    return tuple(found)


def verify(content: bytes, *, pieces: Random | None = None) -> ItemReport:
    verifier = ZipVerifier(len(content))
    view, at = memoryview(content), 0
    while at < len(content):
        step = len(content) if pieces is None else pieces.choice(PIECES)
        for _ in verifier.feed(view[at : at + step]):
            pass
        at += step
    return verifier.finish()


def flipped(content: bytes, offset: int, bit: int) -> bytes:
    changed = bytearray(content)
    changed[offset] ^= 1 << bit
    return bytes(changed)


def sample(folder: Path, rng: Random, count: int) -> list[bytes]:
    """Choose small items of different lengths."""
    by_length = {len(item): item for item in items_below(folder) if len(item) <= MAX_SAMPLED_BYTES}
    return [by_length[length] for length in rng.sample(sorted(by_length), min(count, len(by_length)))]


def tensor_items(folder: Path) -> list[bytes]:
    return [item for item in items_below(folder) if verify(item).tensor is not None]


def item_of(report: ItemReport, content: bytes) -> Item:
    assert report.tensor is not None
    sizes = report.tensor.sizes
    whole = Slice((0,) * len(sizes), sizes)
    return Item("w", ItemKind.TENSOR, 0, len(content), report.tensor.dtype, whole)


def checkpoints(corpus_dir: Path) -> list[Path]:
    # torch_checkpointing's `.pt` files only look like torch.save files.
    return [
        path
        for path in sorted(corpus_dir.iterdir())
        if path.is_dir() and "torch_checkpointing" not in path.name
    ]


def test_every_healthy_item_of_the_corpus_is_proven(corpus_dir: Path) -> None:
    num_items = 0
    for folder in checkpoints(corpus_dir):
        is_without_crc = "nocrc32" in folder.name
        for item in items_below(folder):
            report = verify(item)
            assert report.problems == (), (folder.name, report.problems)
            assert (report.crc is CrcState.ABSENT) is is_without_crc
            num_items += 1
    assert num_items > 10_000


@pytest.mark.parametrize("writer", WRITERS)
def test_pieces_do_not_change_what_is_found(corpus_dir: Path, writer: str) -> None:
    rng = seeded()
    for item in sample(corpus_dir / writer, rng, 10):
        assert verify(item, pieces=rng) == verify(item), f"seed {SEED}"


@pytest.mark.parametrize("writer", ["dcp_torch2_3_1_dtypes_nodist", "dcp_torch2_13_0_nodist"])
def test_every_single_bit_of_a_tensor_item_is_guarded(corpus_dir: Path, writer: str) -> None:
    content = min(tensor_items(corpus_dir / writer), key=len)
    missed = [
        (at, bit)
        for at in range(len(content))
        for bit in range(8)
        if not verify(flipped(content, at, bit)).problems
    ]
    assert missed == []


def test_every_byte_of_an_object_item_is_guarded(corpus_dir: Path) -> None:
    rng = seeded()
    content = next(
        item for item in items_below(corpus_dir / "torchtitan_sync_ws2") if verify(item).tensor is None
    )
    missed = [at for at in range(len(content)) if not verify(flipped(content, at, rng.randrange(8))).problems]
    assert missed == [], f"seed {SEED}"


@pytest.mark.parametrize("writer", WRITERS)
def test_sampled_bits_of_every_writer_are_guarded_whole_and_streamed(corpus_dir: Path, writer: str) -> None:
    rng = seeded(writer)
    for content in sample(corpus_dir / writer, rng, 8):
        for _ in range(40):
            at, bit = rng.randrange(len(content)), rng.randrange(8)
            changed = flipped(content, at, bit)
            assert verify(changed).problems, f"seed {SEED}: byte {at} bit {bit} of {len(content)}"
            assert verify(changed, pieces=rng).problems, f"seed {SEED}: byte {at} bit {bit} streamed"


@pytest.mark.parametrize("writer", WRITERS)
def test_lost_inserted_and_zeroed_bytes_are_guarded(corpus_dir: Path, writer: str) -> None:
    rng = seeded(writer)
    for content in sample(corpus_dir / writer, rng, 3):
        for at in rng.sample(range(len(content)), 40):
            inserted = content[:at] + b"\0" + content[at:]
            removed = content[:at] + content[at + 1 :]
            shifted = inserted[: len(content)]
            zeroed = content[:at] + bytes(len(content[at : at + 64])) + content[at + 64 :]
            for changed in {content[:at], inserted, removed, shifted, zeroed} - {content}:
                assert verify(changed).problems, f"seed {SEED}: at {at}"
                assert verify(changed, pieces=rng).problems, f"seed {SEED}: at {at} streamed"


@pytest.mark.parametrize("writer", WRITERS)
def test_a_template_guards_every_single_bit(corpus_dir: Path, writer: str) -> None:
    contents = sorted(tensor_items(corpus_dir / writer), key=len)
    content = next(item for item in contents if verify(item).extents and _has_payload(verify(item)))
    report = verify(content)
    item, cache = item_of(report, content), TemplateCache()
    payload = cache.learn(memoryview(content), item, report)
    proven = cache.verify(memoryview(content), item)
    assert proven == (payload, report.tensor)
    changed = bytearray(content)
    for at in range(len(content)):
        for bit in range(8):
            changed[at] ^= 1 << bit
            assert cache.verify(memoryview(changed), item) is None, f"byte {at} bit {bit}"
            changed[at] ^= 1 << bit


def test_templates_agree_with_the_generic_path_over_the_corpus(corpus_dir: Path) -> None:
    num_proven = num_tensors = 0
    for folder in checkpoints(corpus_dir):
        cache = TemplateCache()
        for content in items_below(folder)[::3]:
            report = verify(content)
            if report.tensor is None or report.problems:
                continue
            num_tensors += 1
            item, view = item_of(report, content), memoryview(content)
            proven = cache.verify(view, item)
            payload = cache.learn(view, item, report)
            if proven is not None:
                num_proven += 1
                assert proven == (payload, report.tensor)
    assert num_proven > 0.6 * num_tensors


def _has_payload(report: ItemReport) -> bool:
    return report.tensor is not None and report.tensor.storage_bytes > 0


@pytest.mark.torch
def test_no_change_hides_behind_another_in_random_structures() -> None:
    torch = pytest.importorskip("torch")
    rng = seeded()
    for _ in range(40):
        value = {
            f"k{number}": torch.full((rng.randrange(5), rng.randrange(1, 4)), float(number))
            for number in range(rng.randrange(6))
        }
        buffer = io.BytesIO()
        torch.save(value, buffer)
        content = buffer.getvalue()
        assert verify(content, pieces=rng).problems == (), f"seed {SEED}"
        for _ in range(20):
            changed = flipped(content, rng.randrange(len(content)), rng.randrange(8))
            assert verify(changed).problems, f"seed {SEED}"
