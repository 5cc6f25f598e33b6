"""What a launcher hands down is what its job reads."""

import shlex
import subprocess
from pathlib import Path

import pytest

from ckptguard.errors import ConfigError
from ckptguard.integrations import ResumeRefusedError, handed_target
from ckptguard.model.resume import Ending
from ckptguard.operations.resume import Found
from ckptguard.operations.resume_environment import Handed, assignments, handed_down, root_and_tag
from ckptguard.operations.resume_start import Started

HOSTILE = "/c k/it's $(touch x)/step-1200"


def given(path: str, *, branch: int | None = 3) -> dict[str, str]:
    found = Found(ending=Ending.PROVEN, path=path, step=1200)
    return assignments("run 7", Started(found=found, attempt="a", branch=branch))


@pytest.mark.parametrize("path", ["/ckpts/run-7/step-1200", "s3://bucket/run-7/step-1200", HOSTILE])
def test_what_is_handed_down_is_read_again(path: str) -> None:
    assert handed_down(given(path)) == Handed(
        run="run 7", path=path, step=1200, branch=3, ending=Ending.PROVEN
    )


def test_a_shell_that_evaluates_it_runs_nothing(tmp_path: Path) -> None:
    text = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in given(HOSTILE).items())
    shell = ["bash", "-euc", 'eval "$1"; printf "%s|%s" "$CKPTGUARD_RESUME_PATH" "$CKPTGUARD_RESUME_TAG"']
    done = subprocess.run([*shell, "bash", text], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == f"{HOSTILE}|step-1200"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/a/b/step-1", ("/a/b", "step-1")),
        ("/step-1", ("/", "step-1")),
        ("s3://bucket/r/step-1", ("s3://bucket/r", "step-1")),
        ("/a/step-1/", ("/a", "step-1")),
    ],
)
def test_a_path_is_the_folder_that_holds_it_and_its_name(path: str, parts: tuple[str, str]) -> None:
    assert root_and_tag(path) == parts


@pytest.mark.parametrize("name", ["STEP", "BRANCH", "CHECKPOINT", "ENDING"])
@pytest.mark.parametrize("text", ["twelve", "-1", "1 2", "\u0661"])
def test_a_variable_that_says_nonsense_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"CKPTGUARD_RESUME_{name}"):
        handed_down(given("/a/step-1") | {f"CKPTGUARD_RESUME_{name}": text})


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in given("/a/step-1") | {"WORLD_SIZE": "", "CKPTGUARD_RESUME_CHECKPOINT": ""}:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_job_without_a_token_gets_what_its_launcher_was_told(environment: pytest.MonkeyPatch) -> None:
    for name, value in given("/a/step-1200").items():
        environment.setenv(name, value)
    target = handed_target()
    assert target is not None
    assert (target.run, target.path, target.step, target.branch) == ("run 7", "/a/step-1200", 1200, 3)
    assert (target.root, target.tag, target.attempt) == ("/a", "step-1200", "a")


def test_nothing_handed_down_is_a_fresh_start_only_if_allowed(environment: pytest.MonkeyPatch) -> None:
    del environment
    assert handed_target(allow_fresh=True) is None
    with pytest.raises(ResumeRefusedError) as caught:
        handed_target()
    assert caught.value.ending is Ending.NONE_USABLE


def test_a_path_alone_is_not_enough(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("CKPTGUARD_RESUME_PATH", "/a/step-1")
    with pytest.raises(ResumeRefusedError, match="hand down all"):
        handed_target(allow_fresh=True)


@pytest.mark.parametrize("name", ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_ranks_that_nobody_can_reach_get_no_answers_of_their_own(
    name: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv(name, "2")
    with pytest.raises(ConfigError, match=name):
        handed_target(allow_fresh=True)
