"""Steps from names, and the choice among them."""

import pytest

from ckptguard.formats.steps import StepFolder, commit_doubt, is_unfinished_name, newest, parse_step


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-4", 4),
        ("step-0", 0),
        ("step_000012", 12),
        ("step1000", 1000),
        ("step1000-unsharded", 1000),
        ("global_step1", 1),
        ("global_step_250", 250),
        ("iter_0000007", 7),
        ("checkpoint-800", 800),
        ("checkpoint_3", 3),
        ("epoch=1-step=200", 200),
        ("epoch=1-step=200.ckpt", 200),
        ("epoch=1-step=200-v1.ckpt", 200),
        ("model--val_loss=1.25-epoch=2-step=199-consumed_samples=12800.0-last", 199),
        ("ep1-ba200", 200),
        ("epoch_3", 3),
        ("0000500", 500),
        ("7", 7),
    ],
)
def test_a_step_is_read_from_every_trainers_name(name: str, step: int) -> None:
    assert parse_step(name) == step


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint-tmp",
        "step-5.tmp",
        "tmp-checkpoint-9",
        "step=200-unfinished",
        "7.orbax-checkpoint-tmp-1234",
        "pytorch_model_fsdp_0",
        "optimizer_0",
        "checkpoint-800-bak",
        "other_run_step2",
        "checkpoint",
        "step-",
        "step--5",
        "layer.5",
        "٣",
        "9" * 40,
    ],
)
def test_other_names_are_no_steps(name: str) -> None:
    assert parse_step(name) is None


def test_unfinished_names_are_known() -> None:
    assert is_unfinished_name("step-5.tmp")
    assert not is_unfinished_name("step-5")


@pytest.mark.parametrize(
    ("format_name", "names", "is_committed"),
    [
        ("dcp", (".metadata", "__0_0.distcp"), True),
        ("dcp", ("__0_0.distcp",), False),
        ("dcp", (".metadata.tmp", "__0_0.distcp"), False),
        ("dcp", ("._.metadata", "__0_0.distcp"), False),
        ("dcp", ("__0.metadata", "__1.metadata", "__0_0.distcp", "__1_0.distcp"), True),
        ("dcp", ("__0.metadata", "__0_0.distcp", "__1_0.distcp"), False),
        ("safetensors", ("model.safetensors",), True),
        ("safetensors", ("model.safetensors.index.json",), False),
        ("torch_save", ("model.pt",), True),
        ("somebody_elses", (), True),
    ],
)
def test_commitment_is_told_by_names(format_name: str, names: tuple[str, ...], *, is_committed: bool) -> None:
    assert (commit_doubt(format_name, names) is None) == is_committed


def entry(step: int, doubt: str | None = None) -> StepFolder:
    return StepFolder(step=step, folder=f"step-{step}", formats=("dcp",), doubt=doubt)


def test_the_newest_committed_step_wins_over_a_newer_torn_one() -> None:
    assert newest([entry(1000), entry(200), entry(3000, "no .metadata")]) == entry(1000)


def test_where_nothing_is_committed_the_newest_is_looked_at() -> None:
    steps = [entry(100, "no .metadata"), entry(200, "no .metadata")]
    assert newest(steps) == steps[1]
    assert newest([]) is None
