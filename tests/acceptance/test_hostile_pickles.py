"""Hostile pickles wherever a checkpoint keeps pickles: nothing runs, and the verdict is INVALID, unsafe."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckptguard.model.finding import Basis, FindingCode, Severity
from ckptguard.model.policy import Depth, Policy
from ckptguard.model.report import Report
from ckptguard.model.verdict import Verdict
from ckptguard.operations.validate import validate
from ckptguard.testing import raw_pickles as raw
from ckptguard.testing.hostile_pickles import BAITS, FIRING
from ckptguard.testing.raw_dcp import RawCheckpoint

Ckptguard = Callable[..., "subprocess.CompletedProcess[str]"]

CONTENT = Policy(depth=Depth.CONTENT, settle_s=0)
FORBIDDEN_EVENTS = frozenset(
    {
        "ctypes.dlopen",
        "os.exec",
        "os.fork",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "pickle.find_class",
        "shutil.rmtree",
        "socket.connect",
        "subprocess.Popen",
    }
)
"""Audit events (PEP 578) that only code of the checkpoint could cause at depth `content`."""


def at_top(bait: bytes) -> RawCheckpoint:
    return RawCheckpoint(metadata=raw.finished(bait))


def in_planner_data(bait: bytes) -> RawCheckpoint:
    return RawCheckpoint(planner_data=raw.dict_of([(raw.text("w"), bait)]))


def in_an_entry(bait: bytes) -> RawCheckpoint:
    return RawCheckpoint(entries=[(raw.text("extra"), bait)])


def in_a_storage_key(bait: bytes) -> RawCheckpoint:
    return RawCheckpoint(storage_data=[(bait, raw.NONE)])


def in_a_storage_value(bait: bytes) -> RawCheckpoint:
    return RawCheckpoint(storage_data=[(raw.index(raw.text("extra")), bait)])


def in_a_path(bait: bytes) -> RawCheckpoint:
    place = raw.stored(bait, raw.number(0), raw.number(1))
    return RawCheckpoint(storage_data=[(raw.index(raw.text("extra")), place)])


def before_nonsense(bait: bytes) -> RawCheckpoint:
    """A real unpickler runs the bait before it meets the bytes that it refuses."""
    return RawCheckpoint(metadata=raw.finished(bait + b"\xff"))


def in_an_object(bait: bytes) -> RawCheckpoint:
    return RawCheckpoint(object_pickle=raw.finished(bait, protocol=2))


def in_an_object_before_nonsense(bait: bytes) -> RawCheckpoint:
    return RawCheckpoint(object_pickle=raw.finished(bait + b"\xff", protocol=2))


PLACES: tuple[Callable[[bytes], RawCheckpoint], ...] = (
    at_top,
    in_planner_data,
    in_an_entry,
    in_a_storage_key,
    in_a_storage_value,
    in_a_path,
    before_nonsense,
    in_an_object,
    in_an_object_before_nonsense,
)


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "executed"


@pytest.fixture(scope="module")
def audited() -> Iterator[list[str]]:
    """Record the names of forbidden audit events; a hook stays for ever, so it listens only while asked."""
    events: list[str] = []
    is_listening = [True]

    def hook(event: str, _: object) -> None:
        if is_listening[0] and event in FORBIDDEN_EVENTS:
            events.append(event)

    sys.addaudithook(hook)
    yield events
    is_listening[0] = False


def codes_of(report: Report) -> set[FindingCode]:
    return {finding.code for check in report.checks for finding in check.findings}


@pytest.mark.parametrize("name", sorted(FIRING))
def test_the_bait_works_on_a_reader_that_falls_for_it(name: str, marker: Path, tmp_path: Path) -> None:
    (tmp_path / "bait.pkl").write_bytes(raw.finished(FIRING[name](marker)))
    program = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
    subprocess.run(
        [sys.executable, "-c", program, tmp_path / "bait.pkl"], capture_output=True, check=False, timeout=60
    )
    assert marker.exists() or name == "subprocess_popen"  # whose child may still be on its way


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("name", sorted(BAITS))
def test_a_bait_is_unsafe_and_never_runs(
    name: str, place: Callable[[bytes], RawCheckpoint], marker: Path, tmp_path: Path, audited: list[str]
) -> None:
    folder = place(BAITS[name](marker)).write(tmp_path / "step-1")
    audited.clear()
    report = validate(str(folder), policy=CONTENT)
    assert (audited, marker.exists()) == ([], False)
    assert (report.judgement.verdict, report.judgement.basis) == (Verdict.INVALID, Basis.UNSAFE)
    assert FindingCode.UNSAFE_PICKLE in codes_of(report)


@pytest.mark.parametrize("depth", list(Depth), ids=str)
@pytest.mark.parametrize("place", [in_planner_data, in_an_object], ids=lambda place: place.__name__)
def test_the_command_runs_no_bait_at_any_depth(
    depth: Depth,
    place: Callable[[bytes], RawCheckpoint],
    marker: Path,
    tmp_path: Path,
    ckptguard: Ckptguard,
) -> None:
    folder = place(FIRING["os_system"](marker)).write(tmp_path / "step-1")
    answer = ckptguard("check", folder, "--depth", depth, "--settle", "0", "--load", "own", "--json")
    report = json.loads(answer.stdout)
    assert not marker.exists()
    if depth is Depth.STRUCTURE and place is in_an_object:  # its bytes were not asked for
        assert (answer.returncode, report["verdict"]) == (0, "VALID")
    else:
        assert (answer.returncode, report["verdict"], report["basis"]) == (30, "INVALID", "unsafe")


def test_stock_is_not_let_near_an_unsafe_checkpoint(
    marker: Path, tmp_path: Path, ckptguard: Ckptguard
) -> None:
    folder = in_an_object(FIRING["os_system"](marker)).write(tmp_path / "step-1")
    answer = ckptguard("check", folder, "--load", "stock", "--settle", "0", "--json")
    assert (answer.returncode, marker.exists()) == (30, False)


def test_what_follows_the_end_of_a_pickle_is_not_read(marker: Path, tmp_path: Path) -> None:
    folder = RawCheckpoint().write(tmp_path / "step-1")
    with (folder / ".metadata").open("ab") as stream:
        stream.write(raw.finished(FIRING["os_system"](marker)))
    report = validate(str(folder), policy=Policy(depth=Depth.CONTENT, settle_s=0, is_mtime_ignored=True))
    assert not marker.exists()
    assert report.judgement.verdict is Verdict.VALID
    warnings = {finding.severity for check in report.checks for finding in check.findings}
    assert warnings == {Severity.WARNING}


def test_names_of_python_2_are_denied_with_those_that_pickle_makes_of_them() -> None:
    import _compat_pickle  # noqa: PLC0415 - private, so only where it is needed

    from ckptguard.formats.denied_globals import is_denied  # noqa: PLC0415

    modules = {f"{old}.any": f"{new}.any" for old, new in _compat_pickle.IMPORT_MAPPING.items()}
    names = {".".join(old): ".".join(new) for old, new in _compat_pickle.NAME_MAPPING.items()}
    harmless = {"__builtin__.intern"}
    missed = [old for old, new in (modules | names).items() if is_denied(new) and not is_denied(old)]
    assert set(missed) - harmless <= {"commands.any"}  # whose dangerous names are listed one by one
