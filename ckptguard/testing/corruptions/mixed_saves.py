"""DCP: files of two saves, or of part of one, in one folder."""

import shutil
from collections.abc import Callable
from typing import Final

from ckptguard.model.finding import FindingCode as Code
from ckptguard.testing import edits
from ckptguard.testing.case import Case, Damage, Expectation, Scene, invalid, unknown, valid
from ckptguard.testing.edits import COMMITTED_AT_S
from ckptguard.testing.own_metadata import METADATA
from ckptguard.testing.saves import BASE, BASE_NEWER, BASE_NEWER_WORLD_2, BASE_NEWEST, BASE_OLDER

_REWRITTEN_AT_S: Final = COMMITTED_AT_S + 60
_SHARDS: Final = tuple(f"__{rank}_0.distcp" for rank in range(4))


def _take(scene: Scene, save: str, files: tuple[str, ...], *, moment_s: float | None = None) -> Damage:
    for file in files:
        edits.replace(scene.folder, file, scene.saves / save / file, modified_at_s=moment_s)
    return Damage(kind="replace", file=files[0], note=f"{len(files)} shards of {save}")


def _stale(scene: Scene) -> Damage:
    """One rank's write was lost; its file is still that of the step before."""
    return _take(scene, BASE_OLDER, _SHARDS[2:3])


def _torn(scene: Scene) -> Damage:
    """A save over an older one died half-way: two new shards, old metadata."""
    return _take(scene, BASE_NEWER, _SHARDS[:2], moment_s=_REWRITTEN_AT_S)


def _torn_times_lost(scene: Scene) -> Damage:
    """The same, after a copy that kept no times."""
    return _take(scene, BASE_NEWER, _SHARDS[:2])


def _torn_other_layout(scene: Scene) -> Damage:
    """A save by two ranks over one by four died before its metadata."""
    return _take(scene, BASE_NEWER_WORLD_2, _SHARDS[:2], moment_s=_REWRITTEN_AT_S)


def _all_older(scene: Scene) -> Damage:
    return _take(scene, BASE_OLDER, _SHARDS)


def _all_rewritten(scene: Scene) -> Damage:
    """Every shard of the next save is there, its metadata not yet."""
    return _take(scene, BASE_NEWER, _SHARDS, moment_s=_REWRITTEN_AT_S)


def _swap_equal(scene: Scene) -> Damage:
    return edits.swap(scene.folder, "__0_0.distcp", "__2_0.distcp")


def _swap_unequal(scene: Scene) -> Damage:
    return edits.swap(scene.folder, "__0_0.distcp", "__1_0.distcp")


def _first_node(scene: Scene) -> Damage:
    """What node 0 of two sees without a shared file system."""
    edits.remove(scene.folder, _SHARDS[2])
    return edits.remove(scene.folder, _SHARDS[3])


def _second_node(scene: Scene) -> Damage:
    """What node 1 of two sees without a shared file system."""
    edits.remove(scene.folder, _SHARDS[0])
    edits.remove(scene.folder, _SHARDS[1])
    return edits.remove(scene.folder, METADATA)


def _three_steps(scene: Scene) -> Damage:
    """Build a run whose step 3 was lost at power-off and whose step 2 is torn; step 1 is good."""
    root = scene.folder
    _become_step(scene, BASE, "step-1")
    for save, step in ((BASE_NEWER, "step-2"), (BASE_NEWEST, "step-3")):
        edits.copy_checkpoint(scene.saves / save, root / step)
    for shard in _SHARDS:
        edits.truncate(root, f"step-3/{shard}", length_bytes=0)
    edits.truncate(root, "step-2/__1_0.distcp", length_bytes=0)
    (root / "step-2" / "__3_0.distcp.tmp").write_bytes(b"")
    return edits.truncate_by(root, "step-2/__2_0.distcp", removed_bytes=100)


def _become_step(scene: Scene, save: str, step: str) -> None:
    """Turn the scene's folder into a root with one step in it."""
    shutil.rmtree(scene.folder)
    scene.folder.mkdir()
    edits.copy_checkpoint(scene.saves / save, scene.folder / step)


def _as_saved(_scene: Scene) -> Damage:
    """Change nothing: what is wrong was already wrong in memory."""
    return Damage(kind="as_saved")


def _two_writers(scene: Scene) -> Damage:
    """A second job, also believing to be everybody, wrote into the same folder; it won every file."""
    for file in (*_SHARDS, METADATA):
        edits.replace(scene.folder, file, scene.saves / BASE_NEWER / file)
    return Damage(kind="two_writers", file=_SHARDS[0])


def _case(
    name: str,
    arrange: Callable[[Scene], Damage],
    expected: Expectation,
    *,
    source: str,
    with_manifest: Expectation | None = None,
    base: str = BASE,
    target: str = "",
) -> Case:
    return Case(
        name=f"dcp/{name}",
        source=source,
        base=base,
        arrange=arrange,
        expected=expected,
        with_manifest=with_manifest,
        target=target,
    )


def _changed(file: str) -> Expectation:
    return invalid(Code.CHECKSUM_MISMATCH, file=file)


MIXED_SAVES: Final[tuple[Case, ...]] = (
    _case("limit_stale_shard", _stale, valid(), source="B10", with_manifest=_changed(_SHARDS[2])),
    _case(
        "torn_same_layout",
        _torn,
        unknown(Code.REWRITTEN_AFTER_COMMIT, file=_SHARDS[0]),
        source="B10; corpus_broken/dcp_killed_overwriting",
        with_manifest=_changed(_SHARDS[0]),
    ),
    _case(
        "limit_torn_times_lost", _torn_times_lost, valid(), source="B10", with_manifest=_changed(_SHARDS[1])
    ),
    _case(
        "torn_other_layout",
        _torn_other_layout,
        invalid(any_codes=(Code.ZIP_MALFORMED, Code.SHORT_SHARD), file=_SHARDS[0]),
        source="B11",
        with_manifest=invalid(any_codes=(Code.LONG_SHARD, Code.CHECKSUM_MISMATCH), file=_SHARDS[0]),
    ),
    _case(
        "limit_all_shards_older", _all_older, valid(), source="facts c", with_manifest=_changed(_SHARDS[3])
    ),
    _case(
        "all_shards_rewritten",
        _all_rewritten,
        unknown(Code.REWRITTEN_AFTER_COMMIT),
        source="design 3, Times",
        with_manifest=_changed(_SHARDS[3]),
    ),
    _case(
        "limit_swapped_equal_shards",
        _swap_equal,
        valid(),
        source="M5",
        with_manifest=_changed(_SHARDS[0]),
        base="model_only",
    ),
    _case(
        "swapped_unequal_shards",
        _swap_unequal,
        invalid(Code.SHORT_SHARD, file=_SHARDS[1]),
        source="facts c",
        with_manifest=invalid(any_codes=(Code.SHORT_SHARD, Code.CHECKSUM_MISMATCH), file=_SHARDS[1]),
    ),
    _case("first_node_only", _first_node, invalid(Code.MISSING_SHARD, file=_SHARDS[2]), source="B05"),
    _case("second_node_only", _second_node, invalid(Code.NOT_COMMITTED), source="B05"),
    _case(
        "step_3_of_run_empty",
        _three_steps,
        invalid(Code.SHORT_SHARD, file=_SHARDS[0]),
        source="B06",
        target="step-3",
    ),
    _case(
        "step_2_of_run_short",
        _three_steps,
        invalid(Code.SHORT_SHARD, file=_SHARDS[2]),
        source="B06",
        target="step-2",
    ),
    _case(
        "newest_step_of_run_empty",
        _three_steps,
        invalid(Code.SHORT_SHARD, step=3),
        source="B06; design 5: the newest committed step is checked",
    ),
    _case("step_1_of_run_good", _three_steps, valid(), source="B06", target="step-1"),
    _case("limit_moving_target", _as_saved, valid(), source="B14", base="moving_target"),
    _case("limit_per_rank_values", _as_saved, valid(), source="B16", base="per_rank_values"),
    _case("limit_two_writers", _two_writers, valid(), source="B13", with_manifest=_changed(_SHARDS[0])),
)
