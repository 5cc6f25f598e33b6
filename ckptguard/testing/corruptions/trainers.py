"""What trainers put around a save: pointers, sidecars, several parts, several steps."""

from collections.abc import Callable
from typing import Final

from ckptguard.model.finding import Basis
from ckptguard.model.finding import FindingCode as Code
from ckptguard.model.policy import Depth, NumericsMode, Policy
from ckptguard.model.verdict import Assurance
from ckptguard.testing import edits
from ckptguard.testing.case import WITHOUT_WAITING, Case, Damage, Expectation, Scene, invalid, valid
from ckptguard.testing.own_metadata import METADATA
from ckptguard.testing.saves import BASE, BASE_NEWER, DEEPSPEED

TRACKER: Final = "latest_checkpointed_iteration.txt"
_STEP_100, _STEP_200 = "iter_0000100", "iter_0000200"


def _megatron_root(scene: Scene, *, tracker: str | None) -> None:
    """Put two good steps, as Megatron names them, and a tracker into a folder that was one step."""
    step = scene.folder / _STEP_100
    step.mkdir()
    for path in list(scene.folder.iterdir()):
        if path != step:
            path.rename(step / path.name)
    edits.copy_checkpoint(scene.saves / BASE_NEWER, scene.folder / _STEP_200)
    for name in (_STEP_100, _STEP_200):
        (scene.folder / name / "metadata.json").write_text('{"sharded_backend": "torch_dist"}\n')
    if tracker is not None:
        (scene.folder / TRACKER).write_text(tracker)
    edits.set_times(scene.folder)


def _early_pointer(scene: Scene) -> Damage:
    """The tracker names a step whose shards are there and whose metadata is not."""
    _megatron_root(scene, tracker="200")
    return edits.remove(scene.folder, f"{_STEP_200}/{METADATA}")


def _pointing(tracker: str | None) -> Callable[[Scene], Damage]:
    def arrange(scene: Scene) -> Damage:
        _megatron_root(scene, tracker=tracker)
        return Damage(kind="pointer", file=TRACKER, after=tracker)

    return arrange


def _none_usable(scene: Scene) -> Damage:
    """The run's only step was never committed."""
    step = scene.folder / "step-100"
    step.mkdir()
    for path in [path for path in scene.folder.iterdir() if path.is_file()]:
        path.rename(step / path.name)
    return edits.remove(step, METADATA)


def _digit_sort(scene: Scene) -> Damage:
    """Step 1000 sorts before step 200 by name; a leftover has no step at all."""
    root = scene.folder
    edits.copy_checkpoint(root / "checkpoint-200", root / "checkpoint-1000")
    (root / "checkpoint-200" / "model.safetensors").unlink()
    (root / "checkpoint-tmp").mkdir()
    (root / "checkpoint-tmp" / "model.safetensors").write_bytes(b"")
    return Damage(kind="digit_sort", file="checkpoint-1000")


def _newest_half(scene: Scene) -> Damage:
    return edits.truncate_by(scene.folder, "checkpoint-200/model.safetensors", removed_bytes=128)


def _drop_optimizer_part(scene: Scene) -> Damage:
    return edits.remove(scene.folder, "global_step10/zero_pp_rank_2_mp_rank_00_optim_states.pt")


def _cut_optimizer_part(scene: Scene) -> Damage:
    return edits.truncate_by(
        scene.folder, "global_step10/zero_pp_rank_1_mp_rank_00_optim_states.pt", removed_bytes=100
    )


def _latest_names_missing(scene: Scene) -> Damage:
    (scene.folder / "latest").write_text("global_step20")
    return Damage(kind="pointer", file="latest", after="global_step20")


def _as_saved(_scene: Scene) -> Damage:
    """Change nothing: what is wrong was already wrong in memory."""
    return Damage(kind="as_saved")


def _case(
    name: str,
    arrange: Callable[[Scene], Damage],
    expected: Expectation,
    *,
    source: str,
    base: str = BASE,
    target: str = "",
    policy: Policy = WITHOUT_WAITING,
) -> Case:
    return Case(
        name=name,
        source=source,
        base=base,
        arrange=arrange,
        expected=expected,
        target=target,
        policy=policy,
    )


_ENFORCED: Final = Policy(settle_s=0, depth=Depth.LOAD, numerics=NumericsMode.ENFORCE)
_PROFILE: Final = Policy(
    settle_s=0, depth=Depth.CONTENT, required_fqns=("model.*", "optim.exp_avg.*", "dl.rank_2.*")
)
_POINTER: Final = (Code.POINTER_STALE,)

TRAINERS: Final[tuple[Case, ...]] = (
    _case(
        "megatron/pointer_before_commit_root",
        _early_pointer,
        valid(surroundings=_POINTER, step=100),
        source="B26; design 5: the newest committed step is checked",
    ),
    _case("dcp/none_usable", _none_usable, invalid(Code.NOT_COMMITTED), source="B29"),
    _case(
        "safetensors/digit_sort",
        _digit_sort,
        valid(Code.NO_CHECKSUM, at_most=Assurance.STRUCTURE, step=1000),
        source="B28",
        base="hf_trainer",
    ),
    _case(
        "megatron/pointer_before_commit",
        _early_pointer,
        invalid(Code.NOT_COMMITTED),
        source="B26",
        target=_STEP_200,
    ),
    _case("megatron/pointer_before_commit_older", _early_pointer, valid(), source="B26", target=_STEP_100),
    _case(
        "megatron/pointer_to_missing", _pointing("203"), valid(surroundings=_POINTER, step=200), source="B27"
    ),
    _case("megatron/pointer_behind", _pointing("100"), valid(surroundings=_POINTER, step=200), source="B27"),
    _case("megatron/pointer_empty", _pointing(""), valid(surroundings=_POINTER, step=200), source="B27"),
    _case("megatron/pointer_absent", _pointing(None), valid(step=200), source="B27"),
    _case("megatron/pointer_release", _pointing("release"), valid(step=200), source="B27: a legal word"),
    _case(
        "safetensors/newest_step_half",
        _newest_half,
        invalid(Code.SHORT_SHARD),
        source="B28",
        base="hf_trainer",
        target="checkpoint-200",
    ),
    _case(
        "safetensors/older_step_good",
        _newest_half,
        valid(Code.NO_CHECKSUM, at_most=Assurance.STRUCTURE),
        source="B28",
        base="hf_trainer",
        target="checkpoint-100",
    ),
    _case(
        "deepspeed/part_missing",
        _drop_optimizer_part,
        invalid(Code.MISSING_SHARD),
        source="B34",
        base=DEEPSPEED,
    ),
    _case(
        "deepspeed/part_short",
        _cut_optimizer_part,
        invalid(any_codes=(Code.ZIP_MALFORMED, Code.SHORT_SHARD)),
        source="B34",
        base=DEEPSPEED,
    ),
    _case(
        "deepspeed/latest_names_missing",
        _latest_names_missing,
        valid(surroundings=_POINTER),
        source="B34",
        base=DEEPSPEED,
    ),
    _case(
        "dcp/all_nan_enforced",
        _as_saved,
        invalid(Code.NON_FINITE, basis=Basis.POLICY, fqn="model.w"),
        source="B15",
        base="all_nan",
        policy=_ENFORCED,
    ),
    _case(
        "dcp/required_tensor_missing",
        _as_saved,
        invalid(Code.MISSING_TENSOR, basis=Basis.POLICY),
        source="B20, B21",
        base="loader_state_missing",
        policy=_PROFILE,
    ),
)
