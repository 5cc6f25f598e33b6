"""Hostile files, names, numbers and folders through the real command: right verdict, bounded cost."""

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ckptguard.model.finding import Basis
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.verdict import Verdict
from ckptguard.operations.validate import validate
from ckptguard.testing import raw_pickles as raw
from ckptguard.testing.edits import set_times
from ckptguard.testing.raw_dcp import SHARD, TENSOR, RawCheckpoint, make_fifo, tensor_item
from ckptguard.testing.safetensors_bytes import encode
from ckptguard.testing.torch_zip_bytes import build_zip

MIB = 1 << 20
BASE_BYTES = 160 * MIB
"""What the command takes on a small checkpoint (65 MiB), and room for another interpreter's."""
FACTOR = 16
"""Further bytes allowed for each byte of metadata (design §12)."""
MAX_SECONDS = 120.0
"""For one answer on a machine that others use too; most take half a second, the largest ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the command said, and what it took."""

    code: int
    stdout: bytes
    stderr: str
    seconds: float
    peak_bytes: int

    @property
    def report(self) -> dict[str, Any]:
        """The one JSON object; its text must be ASCII, so that any reader and any terminal can take it."""
        value: dict[str, Any] = json.loads(self.stdout.decode("ascii"))
        return value

    @property
    def verdict(self) -> tuple[str, str | None]:
        """Verdict and basis."""
        return self.report["verdict"], self.report["basis"]

    @property
    def codes(self) -> set[str]:
        """Codes of all findings."""
        return {finding["code"] for finding in self.report["findings"]}


Check = Callable[..., Answer]


_MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w") as stream:
    stream.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""
"""A small process in between: a child's peak begins at that of the process that forked it."""


@pytest.fixture
def check(environment: dict[str, str], tmp_path: Path) -> Check:
    """Return a runner of `ckptguard check --json` that measures its child."""

    def run(folder: Path, *arguments: str, is_json: bool = True, metadata_bytes: int = 0) -> Answer:
        peak = tmp_path / "peak"
        command = [sys.executable, "-c", _MEASURED, str(peak), sys.executable, "-m", "ckptguard", "check"]
        command += [str(folder), "--settle", "0", *arguments, *(["--json"] if is_json else [])]
        command += [] if "--depth" in arguments else ["--depth", "content"]
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, check=False, env=environment, timeout=MAX_SECONDS)
        answer = Answer(
            code=done.returncode,
            stdout=done.stdout,
            stderr=done.stderr.decode(),
            seconds=time.monotonic() - started,
            peak_bytes=int(peak.read_text()) << 10,
        )
        assert "Traceback" not in answer.stderr, answer.stderr[-2000:]
        assert answer.seconds < MAX_SECONDS
        assert answer.peak_bytes < BASE_BYTES + FACTOR * metadata_bytes, answer.peak_bytes / MIB
        return answer

    return run


def judged(folder: Path) -> tuple[Verdict, Basis | None]:
    """Judge in this process, for many small cases."""
    judgement = validate(str(folder), policy=Policy(depth=Depth.CONTENT, settle_s=0)).judgement
    return judgement.verdict, judgement.basis


def in_proportion(check: Check, folder: Path, *arguments: str) -> Answer:
    """Check with the memory that a `.metadata` of this length may take."""
    return check(folder, *arguments, metadata_bytes=(folder / ".metadata").stat().st_size)


# -- paths


def with_path(written: str) -> RawCheckpoint:
    """Let a further object lie at a path."""
    place = raw.stored(raw.text(written), raw.number(0), raw.number(10))
    return RawCheckpoint(
        entries=[(raw.text("extra"), raw.bytes_entry())],
        storage_data=[(raw.index(raw.text("extra")), place)],
    )


@pytest.mark.parametrize(
    "written",
    [
        "../secret",
        "a/../../secret",
        "/etc/hostname",
        "..\\secret",
        "a\\..\\..\\secret",
        "C:\\secret",
        "\\\\host\\share\\secret",
        "..",
        "",
        ".",
        "a\0b",
        "x" * 100_000,
        "/".join("x" * 50_000),
    ],
    ids=lambda written: f"{len(written)}-{written[:12]!r}",
)
def test_a_path_out_of_the_checkpoint_is_refused_and_not_opened(
    written: str, tmp_path: Path, check: Check
) -> None:
    make_fifo(tmp_path / "secret")  # whoever opens it waits for ever
    answer = in_proportion(check, with_path(written).write(tmp_path / "step-1"))
    assert (answer.code, *answer.verdict) == (30, "INVALID", "damage")
    assert "path_escape" in answer.codes


def test_a_path_with_a_lone_surrogate_is_damage(tmp_path: Path, check: Check) -> None:
    answer = check(with_path("a\ud800.distcp").write(tmp_path / "step-1"))
    assert (answer.code, *answer.verdict) == (30, "INVALID", "damage")


@pytest.mark.parametrize("name", [SHARD, ".metadata"])
@pytest.mark.parametrize("target", ["fifo", "/dev/zero", "/etc/hostname", "socket"])
def test_a_link_to_what_lies_outside_is_not_opened(
    name: str, target: str, tmp_path: Path, check: Check
) -> None:
    folder = RawCheckpoint().write(tmp_path / "deep" / "er" / "run" / "step-1")
    outside = Path(target) if target.startswith("/") else tmp_path / target
    if target == "fifo":
        make_fifo(outside)
    (folder / name).unlink()
    (folder / name).symlink_to(outside)
    answer = check(folder, "--root", str(folder))
    assert answer.code in {20, 30}
    assert answer.verdict[0] != "VALID"
    assert "path_escape" in answer.codes


@pytest.mark.parametrize("name", [SHARD, ".metadata"])
def test_a_fifo_in_place_of_a_file_is_not_opened(name: str, tmp_path: Path, check: Check) -> None:
    folder = RawCheckpoint().write(tmp_path / "step-1")
    make_fifo(folder / name)
    answer = check(folder)
    assert answer.code in {20, 30}
    assert answer.verdict[0] != "VALID"


def test_a_device_in_place_of_a_shard_is_not_opened(tmp_path: Path, check: Check) -> None:
    folder = RawCheckpoint().write(tmp_path / "step-1")
    (folder / SHARD).unlink()
    try:
        os.mknod(folder / SHARD, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("device nodes need root")
    answer = check(folder)
    assert answer.verdict[0] != "VALID"
    assert "path_escape" in answer.codes


def test_a_hard_link_is_a_file_like_any_other(tmp_path: Path, check: Check) -> None:
    folder = RawCheckpoint().write(tmp_path / "step-1")
    (folder / SHARD).rename(tmp_path / "elsewhere")
    (folder / SHARD).hardlink_to(tmp_path / "elsewhere")
    assert check(folder).verdict == ("VALID", None)


def test_links_in_a_circle_end(tmp_path: Path, check: Check) -> None:
    folder = RawCheckpoint().write(tmp_path / "step-1")
    (folder / "loop").symlink_to(".")
    (folder / "one").symlink_to("two")
    (folder / "two").symlink_to("one")
    assert check(folder).code in {0, 20, 30}


# -- numbers

HUGE = 1 << (8 * 3000)
NUMBERS = {
    "10**15": raw.number(10**15),
    "-1": raw.number(-1),
    "2**63": raw.number(1 << 63),
    "2**64": raw.number(1 << 64),
    "2**24000": raw.number(HUGE),
    "-2**24000": raw.number(-HUGE),
    "True": raw.TRUE,
    "1.5": raw.decimal(1.5),
    "inf": raw.decimal(float("inf")),
    "nan": raw.decimal(float("nan")),
    "text": raw.text("12"),
    "None": raw.NONE,
    "4 MB integer": b"\x8b" + struct.pack("<i", 4_000_000) + b"\x7f" * 4_000_000,
    "digits": b"I" + b"9" * 100_000 + b"\n",
}
FIELDS = ("offset", "length", "size", "chunk offset", "chunk size", "corner")


def with_number(field: str, value: bytes) -> RawCheckpoint:
    """Let one number of a further tensor be this one."""
    part = {name: raw.number(0 if "offset" in name or name == "corner" else 4) for name in FIELDS}
    part |= {"length": raw.number(100), field: value}

    def size(name: str) -> bytes:
        return raw.call(raw.global_of("torch", "Size"), raw.tuple_of(part[name]))

    chunks = raw.list_of([raw.chunk(size("chunk offset"), size("chunk size"))])
    place = raw.stored(raw.text(SHARD), part["offset"], part["length"])
    return RawCheckpoint(
        entries=[(raw.text("extra"), raw.tensor_entry(size("size"), chunks))],
        storage_data=[(raw.index(raw.text("extra"), size("corner")), place)],
    )


@pytest.mark.parametrize("name", sorted(NUMBERS))
@pytest.mark.parametrize("field", FIELDS)
def test_no_number_of_the_metadata_does_harm(field: str, name: str, tmp_path: Path) -> None:
    folder = with_number(field, NUMBERS[name]).write(tmp_path / "step-1")
    assert judged(folder) == (Verdict.INVALID, Basis.DAMAGE)


@pytest.mark.parametrize("name", ["10**15", "4 MB integer", "digits"])
def test_a_number_takes_the_command_no_time_and_no_memory(name: str, tmp_path: Path, check: Check) -> None:
    answer = in_proportion(check, with_number("length", NUMBERS[name]).write(tmp_path / "step-1"))
    assert (answer.code, *answer.verdict) == (30, "INVALID", "damage")


def tensor_with(part: str, value: bytes) -> bytes:
    """Return the opcodes of a stored tensor of which one number is this one."""
    parts = {"count": raw.number(4), "offset": raw.number(0), "size": raw.number(4), "stride": raw.number(1)}
    parts[part] = value
    storage = raw.tuple_of(
        raw.text("storage"),
        raw.global_of("torch", "FloatStorage"),
        raw.text("0"),
        raw.text("cpu"),
        parts["count"],
    )
    hooks = raw.call(raw.global_of("collections", "OrderedDict"))
    size, stride = raw.tuple_of(parts["size"]), raw.tuple_of(parts["stride"])
    rebuild = raw.global_of("torch._utils", "_rebuild_tensor_v2")
    return raw.call(rebuild, storage + b"Q", parts["offset"], size, stride, raw.FALSE, hooks)


@pytest.mark.parametrize("name", sorted(NUMBERS))
@pytest.mark.parametrize("part", ["count", "offset", "size", "stride"])
def test_no_number_of_a_stored_tensor_does_harm(part: str, name: str, tmp_path: Path) -> None:
    item = build_zip(raw.finished(tensor_with(part, NUMBERS[name]), protocol=2), {"0": bytes(16)})
    write_with_item(tmp_path / "step-1", item)
    verdict, _ = judged(tmp_path / "step-1")
    assert verdict is not Verdict.VALID


def write_with_item(folder: Path, item: bytes, *, transforms: bytes = raw.NONE) -> None:
    """Write a checkpoint whose only tensor is stored as this item."""
    folder.mkdir()
    (folder / SHARD).write_bytes(item)
    size = raw.size_of([4])
    entry = raw.tensor_entry(size, raw.list_of([raw.chunk(raw.size_of([0]), size)]))
    place = raw.stored(raw.text(SHARD), raw.number(0), raw.number(len(item)), transforms)
    index = raw.index(raw.text(TENSOR), raw.size_of([0]))
    (folder / ".metadata").write_bytes(
        raw.finished(raw.metadata([(raw.text(TENSOR), entry)], [(index, place)]))
    )
    set_times(folder)


def test_a_storage_key_that_no_zip_can_name_is_no_crash(tmp_path: Path, check: Check) -> None:
    item = build_zip(
        raw.finished(raw.float_tensor(4).replace(raw.text("0"), raw.text("\ud800")), protocol=2),
        {"0": bytes(16)},
    )
    write_with_item(tmp_path / "step-1", item)
    answer = check(tmp_path / "step-1")
    assert (answer.code, answer.verdict[0]) == (30, "UNKNOWN")


# -- bombs


def test_a_zstd_bomb_is_cut_off(tmp_path: Path, check: Check) -> None:
    zstandard = pytest.importorskip("zstandard")
    compressor = zstandard.ZstdCompressor().compressobj()
    block = bytes(64 * MIB)
    bomb = b"".join(compressor.compress(block) for _ in range(64)) + compressor.flush()  # 4 GiB
    assert len(bomb) < MIB
    write_with_item(tmp_path / "step-1", bomb, transforms=raw.list_of([raw.text("stream.zstd")]))
    answer = check(tmp_path / "step-1")
    assert answer.verdict[0] != "VALID"


def test_a_directory_of_a_million_records_is_not_built(tmp_path: Path, check: Check) -> None:
    item = bytearray(build_zip(raw.finished(raw.float_tensor(4), protocol=2), {"0": bytes(16)}))
    item[-14:-10] = struct.pack("<HH", 0xFFFF, 0xFFFF)
    at = item.rindex(b"PK\x06\x06")
    item[at + 24 : at + 40] = struct.pack("<QQ", 10**6, 10**6)
    write_with_item(tmp_path / "step-1", bytes(item))
    answer = check(tmp_path / "step-1")
    assert (answer.code, *answer.verdict) == (30, "INVALID", "damage")
    assert "zip_malformed" in answer.codes


def test_an_object_nested_a_million_deep_is_read(tmp_path: Path, check: Check) -> None:
    pickle = raw.finished(b"]" * 10**6 + b"a" * (10**6 - 1), protocol=2)
    folder = RawCheckpoint(object_pickle=pickle).write(tmp_path / "step-1")
    assert check(folder, metadata_bytes=2 * len(pickle)).verdict[0] in {"VALID", "UNKNOWN"}


def test_metadata_nested_a_million_deep_is_read(tmp_path: Path, check: Check) -> None:
    nested = b"]" * 10**6 + b"a" * (10**6 - 1)
    folder = RawCheckpoint(planner_data=nested).write(tmp_path / "step-1")
    assert in_proportion(check, folder).verdict[0] in {"VALID", "UNKNOWN"}


def test_shared_references_are_not_unfolded(tmp_path: Path, check: Check) -> None:
    """A list of ten lists of ten lists …: a few hundred bytes that stand for 10**40 elements."""
    level = raw.list_of([raw.text("x")]) + b"\x94"
    for depth in range(40):
        level += b"](" + b"j" + struct.pack("<I", depth) + (b"2" * 9) + b"e\x94"
    folder = RawCheckpoint(planner_data=level).write(tmp_path / "step-1")
    answer = check(folder)
    assert answer.verdict[0] in {"VALID", "INVALID", "UNKNOWN"}


def safetensors_folder(folder: Path, content: bytes) -> Path:
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(content)
    return folder


@pytest.mark.parametrize(
    ("content", "codes"),
    [
        (struct.pack("<Q", 10**12) + b"{}" + bytes(100), {"header_malformed"}),
        (struct.pack("<Q", (1 << 64) - 1) + b"{}" + bytes(100), {"header_malformed"}),
        (struct.pack("<Q", 10**6) + b"[" * 10**6, {"header_malformed"}),
        (
            struct.pack("<Q", 6 * 10**6 + 8) + b'{"a":' * 10**6 + b"{" + b"}" * (10**6 + 7),
            {"header_malformed"},
        ),
        (
            encode({"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
            {"header_malformed"},
        ),
        (
            encode({"a": {"dtype": "F32", "shape": [10**15], "data_offsets": [0, 4]}}, bytes(4)),
            {"header_malformed"},
        ),
        (
            encode({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, bytes(4)),
            {"header_malformed"},
        ),
        (
            encode({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1e400]}}, bytes(4)),
            {"header_malformed"},
        ),
        (encode({"a": {"dtype": "F32", "shape": [1] * 10**5, "data_offsets": [0, 4]}}, bytes(4)), set()),
        (
            struct.pack("<Q", 2004001) + b'{"a":' + b"1" * 2_003_995 + b"}",
            {"header_malformed"},
        ),
    ],
    ids=["10**12", "2**64", "deep-list", "deep-object", "dtype", "10**15", "bool", "inf", "dims", "digits"],
)
def test_a_hostile_safetensors_header_is_bounded(
    content: bytes, codes: set[str], tmp_path: Path, check: Check
) -> None:
    answer = check(safetensors_folder(tmp_path / "step-1", content), metadata_bytes=len(content))
    if codes:
        assert answer.verdict == ("INVALID", "damage")
    assert codes <= answer.codes


def test_a_header_of_a_hundred_thousand_repeated_keys_is_refused(tmp_path: Path, check: Check) -> None:
    entry = b'"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    text = b"{" + b",".join([entry] * 100_000) + b"}"
    content = struct.pack("<Q", len(text)) + text
    answer = check(safetensors_folder(tmp_path / "step-1", content), metadata_bytes=len(content))
    assert answer.verdict == ("INVALID", "damage")


# -- manifests


@pytest.mark.parametrize("name", ["ckptguard.manifest.json", "integrity.json"])
@pytest.mark.parametrize(
    "content",
    [
        b"{" + b",".join(b'"k%d":0' % at for at in range(200_000)) + b',"k0":1}',
        b'{"files":[' + b",".join([b"{}"] * 100_000) + b"]}",
        b'{"files":{' + b",".join(b'"../%d":"x"' % at for at in range(200_000)) + b"}}",
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
        b'"' * 1_000_001,
        b'{"files":' + b"9" * 1_000_000 + b"}",
        b"\xff\xfe{}",
        b"",
        b'{"algorithm":"sha256","files":{"\\ud800":"' + b"0" * 64 + b'"}}',
    ],
    ids=[
        "repeated",
        "empty",
        "escapes",
        "deep",
        "deep-objects",
        "quotes",
        "digits",
        "utf16",
        "nothing",
        "surrogate",
    ],
)
def test_a_hostile_manifest_is_bounded_and_never_blesses(
    name: str, content: bytes, tmp_path: Path, check: Check
) -> None:
    folder = RawCheckpoint().write(tmp_path / "step-1")
    (folder / name).write_bytes(content)
    answer = check(folder, metadata_bytes=8 * MIB)
    assert answer.verdict[0] != "VALID" or name == "integrity.json"
    assert answer.report["provenance"] != "proven"


# -- quadratic traps


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_overlapping_slices_of_one_tensor_are_judged(count: int, tmp_path: Path, check: Check) -> None:
    whole = raw.size_of([2 * count])
    chunks = raw.list_of(raw.chunk(raw.size_of([at]), raw.size_of([count])) for at in range(count))
    folder = RawCheckpoint(entries=[(raw.text("big"), raw.tensor_entry(whole, chunks))]).write(
        tmp_path / "step-1"
    )
    answer = in_proportion(check, folder)
    assert answer.verdict == ("INVALID", "damage")
    assert "coverage_overlap" in answer.codes


def test_slices_that_overlap_along_every_axis_but_one_end_in_a_limit(tmp_path: Path, check: Check) -> None:
    """Each pair of bars meets along one axis and misses along the other: no order prunes the pairs."""
    count = 20_000
    whole = raw.size_of([count, 2 * count])
    bars = [raw.chunk(raw.size_of([0, 2 * at]), raw.size_of([count, 1])) for at in range(count)]
    folder = RawCheckpoint(entries=[(raw.text("big"), raw.tensor_entry(whole, raw.list_of(bars)))]).write(
        tmp_path / "step-1"
    )
    assert in_proportion(check, folder).verdict == ("INVALID", "damage")


@pytest.mark.parametrize("count", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_many_items_in_one_place_are_judged(count: int, tmp_path: Path, check: Check) -> None:
    length = raw.number(len(tensor_item()))
    entries, stored = [], []
    for at in range(count):
        fqn = raw.text(f"object-{at}")
        entries.append((fqn, raw.bytes_entry()))
        stored.append((raw.index(fqn), raw.stored(raw.text(SHARD), raw.number(0), length)))
    folder = RawCheckpoint(entries=entries, storage_data=stored).write(tmp_path / "step-1")
    answer = in_proportion(check, folder, "--depth", "structure")
    assert answer.verdict[0] in {"INVALID", "VALID"}
    content = in_proportion(check, folder)
    assert content.verdict[0] != "VALID"


def test_ten_thousand_globals_with_many_dots_are_judged(tmp_path: Path, check: Check) -> None:
    module = raw.text("a" + ".a" * 490)
    many = b"".join(module + raw.text(f"b{at}" + ".b" * 400) + b"\x930" for at in range(9_000))
    folder = RawCheckpoint(planner_data=many + raw.NONE).write(tmp_path / "step-1")
    answer = in_proportion(check, folder)
    assert answer.verdict[0] != "VALID"
    assert answer.seconds < MAX_SECONDS / 2


def test_ten_thousand_dimensions_are_refused(tmp_path: Path, check: Check) -> None:
    size = raw.size_of([1] * 10_000)
    entry = raw.tensor_entry(size, raw.list_of([raw.chunk(size, size)]))
    folder = RawCheckpoint(entries=[(raw.text("deep"), entry)]).write(tmp_path / "step-1")
    assert in_proportion(check, folder).verdict == ("INVALID", "damage")


# -- names

NAMES = {
    "control": "w\x00\x07\x1b[2J\x1b]0;owned\x07\x9b31m\r\n",
    "markup": "[bold red]w[/bold red] [link=file:///etc]x[/link] {0} %s",
    "right to left": "w\u202egnp.exe\u2066",
    "surrogate": "w\udcff\ud800",
    "astral": "w\U0001f4a3\u0301\u0301",
    "ten megabytes": "w" * 10_000_000,
}


@pytest.mark.parametrize("name", sorted(NAMES))
@pytest.mark.parametrize("is_json", [True, False], ids=["json", "text"])
def test_a_name_is_only_ever_shown(name: str, is_json: bool, tmp_path: Path, check: Check) -> None:  # noqa: FBT001
    fqn = raw.text(NAMES[name])
    place = raw.stored(raw.text("gone.distcp"), raw.number(0), raw.number(10))
    extra = RawCheckpoint(
        entries=[(fqn, raw.bytes_entry()), (fqn + b"0" + raw.text("x"), raw.bytes_entry())],
        storage_data=[(raw.index(fqn), place)],
    )
    answer = check(extra.write(tmp_path / "step-1"), is_json=is_json, metadata_bytes=2 * len(fqn))
    assert answer.code == 30
    said = answer.stdout + answer.stderr.encode()
    assert not any(byte < 0x20 and byte != 0x0A for byte in said)
    assert all(word not in said for word in (b"\x1b", b"\xe2\x80\xae", b"\xc2\x9b"))
    said.decode("utf-8")
    assert len(said) < 2 * MIB
    if is_json:
        assert answer.verdict[0] != "VALID"


def test_file_names_are_only_ever_shown(tmp_path: Path, check: Check) -> None:
    folder = RawCheckpoint().write(tmp_path / "step-1")
    for name in (b"\x1b[31mred", b"line\nbreak", b"\xff\xfe", b"\xe2\x80\xaegnp", b"[bold]"):
        (Path(os.fsdecode(bytes(folder) + b"/" + name + b".distcp"))).write_bytes(b"x")
    for is_json in (True, False):
        answer = check(folder, is_json=is_json)
        said = answer.stdout + answer.stderr.encode()
        assert b"\x1b" not in said
        assert answer.code in {0, 30}


# -- folders


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_files_are_listed(count: int, tmp_path: Path, check: Check) -> None:
    folder = RawCheckpoint().write(tmp_path / "step-1")
    inside = folder / "litter"
    inside.mkdir()
    for at in range(count):
        os.close(os.open(inside / str(at), os.O_CREAT | os.O_WRONLY))
    answer = check(folder, metadata_bytes=count * 100)
    shutil.rmtree(inside)
    assert answer.verdict == ("VALID", None)


def test_folders_nested_deeper_than_the_limit_are_unknown(tmp_path: Path, check: Check) -> None:
    folder = RawCheckpoint().write(tmp_path / "step-1")
    deep = folder
    for _ in range(200):
        deep = deep / "d"
        deep.mkdir()
    answer = check(folder)
    assert (answer.code, answer.verdict[0]) == (30, "UNKNOWN")
    assert "limit_exceeded" in answer.codes


# -- what a real unpickler refuses


def changed_metadata(folder: Path, before: bytes, after: bytes) -> RawCheckpoint:
    """Write a healthy checkpoint with these opcodes in place of those."""
    whole = (RawCheckpoint().write(folder / "healthy") / ".metadata").read_bytes()
    assert before in whole
    return RawCheckpoint(metadata=whole.replace(before, after))


def test_a_memory_format_that_torch_lacks_is_damage(tmp_path: Path) -> None:
    encoding = raw.global_of(raw.DCP_METADATA, "_MEM_FORMAT_ENCODING")
    before, after = raw.call(encoding, raw.number(0)), raw.call(encoding, raw.number(9))
    folder = changed_metadata(tmp_path, before, after).write(tmp_path / "step-1")
    assert judged(folder) == (Verdict.INVALID, Basis.DAMAGE)


def test_a_layout_that_torch_lacks_is_damage(tmp_path: Path) -> None:
    before, after = raw.text("torch.strided"), raw.text("torch.stridex")
    folder = changed_metadata(tmp_path, before, after).write(tmp_path / "step-1")
    assert judged(folder) == (Verdict.INVALID, Basis.DAMAGE)


def test_a_key_that_python_cannot_hash_is_damage(tmp_path: Path) -> None:
    planner_data = raw.dict_of([(raw.bytes_entry(), raw.NONE)])
    folder = RawCheckpoint(planner_data=planner_data).write(tmp_path / "step-1")
    assert judged(folder) == (Verdict.INVALID, Basis.DAMAGE)
