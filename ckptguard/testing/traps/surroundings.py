"""DCP: what copies, tools and people leave around a good save."""

import shutil
import sys
from types import ModuleType
from typing import Any, Final

from ckptguard.model.finding import FindingCode as Code
from ckptguard.model.policy import Depth, Policy, Reader, StoreTimes
from ckptguard.model.verdict import Assurance
from ckptguard.testing import edits
from ckptguard.testing.case import Case, Damage, Scene, unknown, valid
from ckptguard.testing.edits import COMMITTED_AT_S
from ckptguard.testing.own_metadata import METADATA, edit_metadata
from ckptguard.testing.saves import BASE
from ckptguard.testing.traps.trap import as_saved, trap

_LITTER: Final = (
    ".DS_Store",
    "._.metadata",
    "train.log",
    "tokenizer.json",
    ".nfs0000000000000001",
    ".__0_0.distcp.swp",
    "__9_0.distcp.tmp",
    f"{METADATA}.tmp",
    ".cache/huggingface/download/x.lock",
)
_COPIED: Final = Policy(settle_s=0, depth=Depth.CONTENT, times=StoreTimes.COPIED)
_IGNORED: Final = Policy(settle_s=0, depth=Depth.CONTENT, is_mtime_ignored=True)
_READ_BY_311: Final = Policy(settle_s=0, depth=Depth.LOAD, reader=Reader(torch=(2, 13), python=(3, 11)))
_NO_TIMES: Final = (Code.REWRITTEN_AFTER_COMMIT,)


def _litter(scene: Scene) -> Damage:
    for name in _LITTER:
        path = scene.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not a checkpoint")
    return Damage(kind="unrelated_files", file=_LITTER[0])


def _odd_path(scene: Scene) -> Damage:
    inner = scene.folder / "g dir ünï ☃"
    inner.mkdir()
    for path in list(scene.folder.iterdir()):
        if path != inner:
            path.rename(inner / path.name)
    return Damage(kind="odd_path", file=inner.name)


def _link_folder(scene: Scene) -> Damage:
    _odd_path(scene)
    (scene.folder / "link").symlink_to("g dir ünï ☃", target_is_directory=True)
    return Damage(kind="linked_folder", file="link")


def _link_shards(scene: Scene) -> Damage:
    """Lay the folder out as a hub cache does: names that link to blobs beside them."""
    snapshot, blobs = scene.folder / "snapshots" / "abc", scene.folder / "blobs"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for path in [path for path in scene.folder.iterdir() if path.is_file()]:
        path.rename(blobs / f"blob{path.name}")
        (snapshot / path.name).symlink_to(f"../../blobs/blob{path.name}")
    return Damage(kind="linked_shards", file="snapshots/abc")


def _older_fields(scene: Scene) -> Damage:
    """Take away what torch before 2.4 and 2.9 did not write."""

    def change(metadata: Any) -> None:  # noqa: ANN401 - torch's Metadata
        del metadata.version
        del metadata.storage_meta

    edit_metadata(scene.folder, change)
    return Damage(kind="older_fields", file=METADATA)


def _newer_field(scene: Scene) -> Damage:
    """Add a field that some later torch may write."""

    def change(metadata: Any) -> None:  # noqa: ANN401 - torch's Metadata
        metadata.planned_field = {"a": 1}

    edit_metadata(scene.folder, change)
    return Damage(kind="newer_field", file=METADATA)


def _python_313_path(scene: Scene) -> Damage:
    """Let the metadata name the class under which Python 3.13 pickles paths; 3.11 has no such module."""
    module = ModuleType("pathlib._local")
    path_class = type(
        "PosixPath", (), {"__module__": module.__name__, "__reduce__": lambda self: (type(self), ("/run",))}
    )
    module.__dict__["PosixPath"] = path_class

    def change(metadata: Any) -> None:  # noqa: ANN401 - torch's Metadata
        metadata.storage_meta.checkpoint_id = path_class()

    known = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        edit_metadata(scene.folder, change)
    finally:
        sys.modules.pop(module.__name__)
        if known is not None:
            sys.modules[module.__name__] = known
    return Damage(kind="python_313_path", file=METADATA)


def _unfinished_marker(scene: Scene) -> Damage:
    step = scene.folder / "step-100"
    step.mkdir()
    for path in [path for path in scene.folder.iterdir() if path.is_file()]:
        path.rename(step / path.name)
    (scene.folder / "step-100-unfinished").write_bytes(b"")
    return Damage(kind="unfinished_marker", file="step-100-unfinished")


def _scramble_times(scene: Scene) -> Damage:
    """Give every shard a later time than the metadata, as a copy in reverse order does."""
    for number in range(4):
        edits.set_time(scene.folder / f"__{number}_0.distcp", COMMITTED_AT_S + 100 - number)
    return Damage(kind="scrambled_times", file="__0_0.distcp")


def _move(scene: Scene) -> Damage:
    """Nothing to do: a copy already stands elsewhere than its metadata says."""
    return as_saved(scene)


def _only_folder(scene: Scene) -> Damage:
    shutil.rmtree(scene.folder)
    scene.folder.mkdir()
    (scene.folder / "model.bin.part").write_bytes(b"x" * 100)
    return Damage(kind="unknown_layout", file="model.bin.part")


SURROUNDINGS: Final[tuple[Case, ...]] = (
    trap("F08 unrelated files", BASE, valid(absent=(Code.NOT_COMMITTED,)), arrange=_litter),
    trap("F09 finished re-save by fewer ranks", "resaved_smaller", valid(Code.UNREFERENCED_FILE)),
    trap("F21 odd path", BASE, valid(), arrange=_odd_path, target="g dir ünï ☃"),
    trap("F21 linked folder", BASE, valid(), arrange=_link_folder, target="link"),
    trap(
        "F21 linked shards",
        BASE,
        valid(Code.LINK_FOLLOWED),
        arrange=_link_shards,
        target="snapshots/abc",
    ),
    trap("F22 moved", BASE, valid(), arrange=_move),
    trap("F23 fields of older torch", BASE, valid(), arrange=_older_fields),
    trap("F23 field of newer torch", BASE, valid(), arrange=_newer_field),
    trap(
        "M10 path of Python 3.13",
        BASE,
        valid(Code.NEEDS_OTHER_READER, at_most=Assurance.CONTENT),
        arrange=_python_313_path,
        policy=_READ_BY_311,
    ),
    trap(
        "F33 unfinished marker",
        BASE,
        unknown(Code.UNFINISHED_MARKER),
        arrange=_unfinished_marker,
        target="step-100",
    ),
    trap("F38 times lost, store copies", BASE, valid(*_NO_TIMES), arrange=_scramble_times, policy=_COPIED),
    trap("F38 times lost, told so", BASE, valid(absent=_NO_TIMES), arrange=_scramble_times, policy=_IGNORED),
    trap("F38 times lost, nobody knows", BASE, unknown(*_NO_TIMES), arrange=_scramble_times),
    trap("F30 nothing recognised", BASE, unknown(Code.UNKNOWN_LAYOUT), arrange=_only_folder),
)
