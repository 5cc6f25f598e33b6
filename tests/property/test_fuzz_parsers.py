"""Every parser of foreign bytes against mutated real input: documented errors or findings, in bounded time.

Short here; `make fuzz` runs each for `CKPTGUARD_FUZZ_SECONDS`. A failure names seed and
input number: `ckptguard.testing.fuzz.input_of` makes the same bytes again.
"""

import io
import json
import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard

from ckptguard.canary.events import EventLines, parse_event
from ckptguard.canary.job import CanaryJob, read_job, write_job
from ckptguard.checks.coverage import check_coverage
from ckptguard.errors import (
    CanaryError,
    FormatError,
    LimitExceededError,
    ManifestFormatError,
    UnsupportedFormatError,
)
from ckptguard.formats.dcp_builders import BUILDERS
from ckptguard.formats.dcp_metadata import MetadataTables, read_metadata
from ckptguard.formats.integrity_json import parse_integrity
from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.formats.megatron import check_megatron
from ckptguard.formats.ocdbt import read_database
from ckptguard.formats.ocdbt_codec import MANIFEST_MAGIC, NODE_MAGIC, open_block
from ckptguard.formats.orbax import ADAPTER as ORBAX
from ckptguard.formats.pickle_reader import read_pickle
from ckptguard.formats.protocol import FormatAdapter, ItemReport
from ckptguard.formats.safetensors import ADAPTER as SAFETENSORS
from ckptguard.formats.safetensors_header import read_header
from ckptguard.formats.safetensors_index import read_index
from ckptguard.formats.torch_checkpointing import ADAPTER as TORCH_CHECKPOINTING
from ckptguard.formats.torch_save import ADAPTER as TORCH_SAVE
from ckptguard.formats.torch_zip import ZipVerifier
from ckptguard.formats.torchsnapshot import ADAPTER as TORCHSNAPSHOT
from ckptguard.model.checksum import Algorithm, Checksum
from ckptguard.model.finding import Finding
from ckptguard.model.layout import Encoding, Item, ItemKind, Layout, Slice
from ckptguard.model.policy import Limits
from ckptguard.scan.items import verify_item
from ckptguard.scan.result import FileScan, scan_to_json
from ckptguard.storage.listing import Listing, list_folder
from ckptguard.storage.memory import MemoryStore
from ckptguard.storage.protocol import ObjectStat
from ckptguard.testing.fuzz import Campaign, fresh_seed, fuzz, long_seconds
from ckptguard.testing.hostile_pickles import BAITS
from ckptguard.testing.torch_zip_bytes import build_zip
from tests.ocdbt_blocks import block, interior, leaf, manifest, table

SEED = 20261129
SHORT_S = 0.7
PIECE_BYTES = 37
MAX_SEED_BYTES = 40_000
LIMITS = Limits(max_object_bytes=1 << 24)
DATA = Path(__file__).resolve().parent.parent / "data" / "corpus"
GOLDEN = Path(__file__).resolve().parent.parent / "golden"

Target = Callable[[bytes], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parser:
    """One parser under fuzz.

    Args:
        target: Feeds it, and asserts what must hold of its answer.
        seeds: Well-formed input.
        expected: Its documented exceptions.
    """

    target: Target
    seeds: Callable[[], Sequence[bytes]]
    expected: tuple[type[Exception], ...] = ()


@cache
def files(pattern: str) -> tuple[bytes, ...]:
    """Return small files of the tests' own corpus."""
    found = [path.read_bytes() for path in sorted(DATA.rglob(pattern)) if path.is_file()]
    return tuple(content for content in found if len(content) <= MAX_SEED_BYTES)


@cache
def zip_items() -> tuple[bytes, ...]:
    """Return small torch zips, cut out of shards."""
    found = []
    for path in sorted(DATA.glob("*/**/*.distcp"))[::3]:
        content = path.read_bytes()
        starts = [
            match.start() for match in re.finditer(rb"PK\x03\x04.{26}\w+/data\.pkl", content, re.DOTALL)
        ]
        found += [content[start:end] for start, end in pairwise([*starts, len(content)])][:2]
    return tuple(item for item in found if len(item) <= MAX_SEED_BYTES)


def pickles() -> Sequence[bytes]:
    value = {"a": [1, 2.5, (3,), b"x", "y", 2**70, frozenset([1])], "b": None}
    baits = [b"\x80\x04" + bait(Path("/marker")) + b"." for bait in list(BAITS.values())[::4]]
    return [*files(".metadata"), *(pickle.dumps(value, protocol) for protocol in range(6)), *baits]


def item_pickles() -> Sequence[bytes]:
    """Return what stands as `data.pkl` in items: from the first content to its descriptor."""
    return [item[64 : item.index(b"PK\x07\x08")].lstrip(b"Z") for item in zip_items()]


def require_speakable(findings: Sequence[Finding]) -> None:
    """Findings must survive a pipe and a printer: any text, as ASCII JSON, of bounded length."""
    text = json.dumps([asdict(finding) for finding in findings])
    assert len(text.encode("ascii")) < 1 << 24


def read_any_pickle(data: bytes) -> None:
    """With and without shortcuts the same happens."""
    answers: list[tuple[object, object]] = []
    for has_shortcuts in (True, False):
        try:
            reading = read_pickle(
                data, builders=BUILDERS, persistent_load=lambda value: value, has_shortcuts=has_shortcuts
            )
            answers.append((reading.globals, reading.length_bytes))
        except FormatError as error:
            answers.append((type(error), str(error)))
    assert answers[0] == answers[1]


def read_any_metadata(data: bytes) -> None:
    tables = read_metadata(data, file=".metadata", limits=LIMITS)
    layout = Layout(
        format="dcp",
        shards=tables.shards,
        tensors=tables.tensors,
        objects=tables.objects,
        missing_items=tables.missing_items,
        orphan_items=tables.orphan_items,
    )
    require_speakable([*tables.findings, *check_coverage([layout])])


def verified(content: bytes, piece_bytes: int) -> ItemReport:
    verifier = ZipVerifier(len(content), max_pickle_bytes=1 << 20)
    for start in range(0, len(content), piece_bytes):
        for _ in verifier.feed(memoryview(content)[start : start + piece_bytes]):
            pass
    return verifier.finish()


def verify_zip(content: bytes) -> None:
    """Whole and streamed, the same is found; and nothing altered passes."""
    whole = verified(content, max(1, len(content)))
    assert whole == verified(content, PIECE_BYTES)
    assert whole.problems or content in zip_items()


def verify_stored(content: bytes) -> None:
    """As an item of a checkpoint, plain and through each transform, and as a whole file."""
    part = Slice((0,), (2,))
    for transforms in ((), ("stream.zstd",), ("stream.zstd/1",), ("stream.rot13",)):
        item = Item("w", ItemKind.TENSOR, 0, len(content), "float32", part, transforms)
        verify_item(item, [memoryview(content)], limits=LIMITS)
    whole = Item("w", ItemKind.BYTES, 0, len(content))
    verify_item(whole, [memoryview(content)], limits=LIMITS, encoding=Encoding.TORCH_SAVE)


def verify_around_pickle(data: bytes) -> None:
    """A zip that is right in every byte, around a pickle that need not be."""
    content = build_zip(data, {"0": bytes(64)})
    assert verified(content, len(content)) == verified(content, PIECE_BYTES)
    verify_stored(content)


def in_memory(name: str, read: Callable[[MemoryStore, Listing, str], object]) -> Target:
    def target(data: bytes) -> None:
        store = MemoryStore({name: data})
        read(store, list_folder(store, "", max_files=10), name)

    return target


def read_any_header(store: MemoryStore, listing: Listing, name: str) -> None:
    require_speakable(read_header(store, listing, name, LIMITS).findings)
    (layout,) = SAFETENSORS.open(store, listing, LIMITS)
    require_speakable([*layout.findings, *check_coverage([layout])])


def read_any_index(store: MemoryStore, listing: Listing, name: str) -> None:
    require_speakable(read_index(store, listing, name, LIMITS).findings)
    (layout,) = SAFETENSORS.open(store, listing, LIMITS)
    require_speakable([*layout.findings, *check_coverage([layout])])


def open_torch_save(store: MemoryStore, listing: Listing, _: str) -> None:
    for layout in TORCH_SAVE.open(store, listing, LIMITS):
        require_speakable(layout.findings)


def jobs() -> Sequence[bytes]:
    stream = io.BytesIO()
    stat = ObjectStat(path="a", length_bytes=3, version="1-2-3")
    listing = Listing(root="step-1", files={"a": stat}, escapes=("b",))
    write_job(CanaryJob(target="/somewhere", listing=listing, blobs={".metadata": b"abc"}), stream)
    return [stream.getvalue()]


def events() -> Sequence[bytes]:
    checksum = Checksum(algorithm=Algorithm.XXH3_128, hex_digits="0" * 32)
    findings = read_metadata(b"junk", file=".metadata", limits=LIMITS).findings
    scan = FileScan(
        path="a", length_bytes=3, checksums=(checksum,), findings=findings, object_globals={"o": ("a.b",)}
    )
    said = [
        {"event": "ready", "torch": "2.13.0", "python": "3.11.7", "device": "cpu", "import_seconds": 1.5},
        {"event": "progress", "bytes_done": 1, "files_done": 0, "file": None, "findings": 0},
        {"event": "file", "scan": scan_to_json(scan)},
        {"event": "failed", "message": "no", "is_about_bytes": True},
        {"event": "done", "loaded": 1, "load_seconds": 0.5},
    ]
    return [json.dumps(event).encode() + b"\n" for event in said]


def hear(data: bytes) -> None:
    for line in EventLines(max_bytes=1 << 20).feed(data):
        parse_event(line)


def manifests() -> Sequence[bytes]:
    return [path.read_bytes() for path in sorted(GOLDEN.glob("*manifest*.json"))] or [
        b'{"manifest_version":1,"run":"r","step":1,"save_id":"s","created_at":"2026-11-29T20:33:00Z",'
        b'"origin":"save","format":"dcp","writer":{"ckptguard":"0"},"files":[{"path":"a","role":"shard",'
        b'"length_bytes":1,"checksum":"xxh3-128:' + b"0" * 32 + b'","checksum_source":"memory"}]}'
    ]


def integrities() -> Sequence[bytes]:
    return [b'{"algorithm":"sha256","files":{"a.pt":"' + b"0" * 64 + b'","b":"' + b"f" * 64 + b'"}}']


def opened(adapter: FormatAdapter, name: str, **others: bytes) -> Target:
    """Open a folder in which one file is fuzzed; `others` by name, "__" for "/" and "_dot_" for "."."""
    beside = {key.replace("__", "/").replace("_dot_", "."): content for key, content in others.items()}

    def target(data: bytes) -> None:
        store = MemoryStore({name: data, **beside})
        layouts = adapter.open(store, list_folder(store, "", max_files=10), LIMITS)
        findings = [finding for layout in layouts for finding in layout.findings]
        require_speakable([*findings, *check_coverage(layouts)])

    return target


def read_any_node(body: bytes) -> None:
    """A block that is right in every byte, around a body that need not be."""
    node, files = block(NODE_MAGIC, body), table(("", "d/n"))
    for height in (0, 1):
        root = manifest(files, offset=0, length=len(node), height=height)
        store = MemoryStore({"manifest.ocdbt": root, "d/n": node})
        read_database(store, list_folder(store, "", max_files=10), LIMITS)


def read_any_manifest(body: bytes) -> None:
    store = MemoryStore({"manifest.ocdbt": block(MANIFEST_MAGIC, body), "d/n": bytes(64)})
    read_database(store, list_folder(store, "", max_files=10), LIMITS)


def node_bodies() -> Sequence[bytes]:
    files = table(("p/", "d/n"), ("p/", "d/o"))
    blocks = [leaf(files, {b"a/.zarray": b"{}", b"a/0.0": (1, 3, 5)}), interior(files, [(b"a", 1, 0, 0, 9)])]
    return [open_block(content, magic=NODE_MAGIC).data for content in blocks]


def manifest_bodies() -> Sequence[bytes]:
    real = files("manifest.ocdbt")
    return [open_block(content, magic=MANIFEST_MAGIC).data for content in real]


def snapshots() -> Sequence[bytes]:
    one: dict[str, object] = {
        "type": "Tensor",
        "location": "a",
        "serializer": "buffer_protocol",
        "dtype": "torch.float32",
    }
    one |= {"shape": [2], "replicated": True, "byte_range": [0, 8]}
    shards = [{"offsets": [0], "sizes": [2], "tensor": one}]
    entries = {
        "0/m": {"type": "dict", "keys": ["w", 1]},
        "0/m/w": one,
        "0/m/1": {"type": "DTensor", "shards": shards, "mesh": [0], "dim_map": [[0]]},
        "1/c": {"type": "ChunkedTensor", "chunks": shards, "shape": [2], "replicated": False},
        "1/o": {"type": "object", "location": "o", "serializer": "torch_save", "replicated": False},
    }
    return [json.dumps({"version": "0.1.0", "world_size": 2, "manifest": entries}).encode()]


def arrays() -> Sequence[bytes]:
    grid = {"name": "regular", "configuration": {"chunk_shape": [2, 2]}}
    version_3 = {"zarr_format": 3, "node_type": "array", "shape": [3, 2], "data_type": "float32"}
    version_3 |= {
        "chunk_grid": grid,
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes"}],
    }
    return [
        b'{"chunks":[2,2],"compressor":{"id":"zstd"},"dtype":"<f4","filters":null,"shape":[3,2],"zarr_format":2}',
        json.dumps(version_3).encode(),
    ]


def rank_metadata() -> Sequence[bytes]:
    ranks = {0: None, 1: {"file_path": "sub/m.pt"}}
    value = {"version": "2.0", "world_size": 2, "metadata": {"m": {"rank_to_layout_info": ranks}}}
    return [pickle.dumps(value, protocol) for protocol in range(6)]


def check_any_config(store: MemoryStore, listing: Listing, _: str) -> None:
    tables = MetadataTables(globals=frozenset({"torch.distributed.checkpoint.planner.SavePlan"}))
    require_speakable(check_megatron(store, listing, LIMITS, tables))


def chunks() -> Sequence[bytes]:
    return [zstandard.ZstdCompressor().compress(value) for value in (bytes(1024), bytes(range(256)) * 4)]


def verify_any_chunk(content: bytes) -> None:
    part = Slice((0,), (256,))
    for transforms in ((), ("stream.zstd",), ("zarr.codec",)):
        item = Item("w", ItemKind.TENSOR, 0, len(content), "float32", part, transforms)
        pieces = (memoryview(content)[start : start + 37] for start in range(0, len(content), 37))
        verify_item(item, pieces, limits=LIMITS, encoding=Encoding.ZARR_CHUNKS)


MANIFEST_ERRORS = (ManifestFormatError, UnsupportedFormatError, LimitExceededError)

PARSERS: dict[str, Parser] = {
    "pickle": Parser(target=read_any_pickle, seeds=pickles),
    "dcp_metadata": Parser(target=read_any_metadata, seeds=pickles, expected=(LimitExceededError,)),
    "torch_zip": Parser(target=verify_zip, seeds=zip_items),
    "stored_item": Parser(target=verify_stored, seeds=zip_items),
    "item_pickle": Parser(target=verify_around_pickle, seeds=item_pickles),
    "safetensors_header": Parser(
        target=in_memory("model.safetensors", read_any_header),
        seeds=lambda: files("*.safetensors"),
    ),
    "safetensors_index": Parser(
        target=in_memory("model.safetensors.index.json", read_any_index),
        seeds=lambda: files("*.index.json"),
        expected=(LimitExceededError,),
    ),
    "torch_save": Parser(target=in_memory("model.pt", open_torch_save), seeds=zip_items),
    "deepspeed": Parser(
        target=in_memory("zero_pp_rank_0_mp_rank_00_optim_states.pt", open_torch_save), seeds=zip_items
    ),
    "megatron_config": Parser(
        target=in_memory("metadata.json", check_any_config), seeds=lambda: files("metadata.json")
    ),
    "torchsnapshot": Parser(
        target=opened(TORCHSNAPSHOT, ".snapshot_metadata", a=bytes(8)),
        seeds=snapshots,
        expected=(LimitExceededError,),
    ),
    "torch_checkpointing": Parser(
        target=opened(TORCH_CHECKPOINTING, "metadata.pkl", m_0_dot_pt=b"PK"),
        seeds=rank_metadata,
        expected=(LimitExceededError,),
    ),
    "orbax_tree": Parser(target=opened(ORBAX, "_METADATA"), seeds=lambda: files("_METADATA")),
    "orbax_commit": Parser(
        target=opened(ORBAX, "_CHECKPOINT_METADATA"), seeds=lambda: files("_CHECKPOINT_METADATA")
    ),
    "zarr_array": Parser(
        target=opened(ORBAX, "w/.zarray", _METADATA=b'{"tree_metadata":{}}', w__0_dot_0=bytes(16)),
        seeds=arrays,
        expected=(LimitExceededError,),
    ),
    "zarr_chunk": Parser(target=verify_any_chunk, seeds=chunks),
    "ocdbt_node": Parser(target=read_any_node, seeds=node_bodies, expected=(LimitExceededError,)),
    "ocdbt_manifest": Parser(target=read_any_manifest, seeds=manifest_bodies, expected=(LimitExceededError,)),
    "manifest": Parser(target=parse_manifest, seeds=manifests, expected=MANIFEST_ERRORS),
    "integrity": Parser(target=parse_integrity, seeds=integrities, expected=MANIFEST_ERRORS),
    "canary_job": Parser(target=lambda data: read_job(io.BytesIO(data)), seeds=jobs, expected=(CanaryError,)),
    "canary_event": Parser(target=hear, seeds=events, expected=(CanaryError,)),
}


def run(name: str, *, seed: int, seconds: float) -> int:
    parser = PARSERS[name]
    campaign = Campaign(seed=seed, seconds=seconds, expected=parser.expected)
    return fuzz(parser.target, parser.seeds(), campaign)


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_a_short_fuzz_finds_no_way_to_break(name: str) -> None:
    assert run(name, seed=SEED, seconds=SHORT_S) > 0


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", sorted(PARSERS))
def test_a_long_fuzz_finds_no_way_to_break(name: str) -> None:
    seed = fresh_seed()
    print(f"{name}: seed {seed}, {run(name, seed=seed, seconds=long_seconds())} inputs")  # noqa: T201
