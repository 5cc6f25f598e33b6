"""A launcher, its job and a real service: what is told of starts, and what the next `resume` makes of it."""

import json
from collections.abc import Callable, Iterator

import pytest

from ckptguard.cli.main import run as run_command
from ckptguard.integrations import ResumeTarget, StartFeedback, incidents, resume_target
from ckptguard.integrations.known_start import KnownStart, forget_start, known_start
from ckptguard_api.tables import checkpoints
from tests.launchers.launch_site import LaunchSite, closed_port
from tests.leased_service import LeasedService

Call = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def fresh_process() -> Iterator[None]:
    incidents.forget()
    forget_start()
    yield
    forget_start()


@pytest.fixture
def call(site: LaunchSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Return what runs a command on the launcher's machine, and gives exit code and standard output."""
    for name, value in site.environment("unused").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CKPTGUARD_ATTEMPT", raising=False)

    def call(*arguments: object) -> tuple[int, str]:
        code = run_command([str(argument) for argument in arguments])
        lines = capsys.readouterr().out.splitlines()
        return code, "\n".join(
            line for line in lines if not line.startswith("20")
        )  # without the service's own log

    return call


def hand_down(call: Call, monkeypatch: pytest.MonkeyPatch, run: str, attempt: str) -> int:
    """Resume as a launcher does, and return the step that the job was given."""
    for name in ("PATH", "STEP", "BRANCH", "CHECKPOINT", "ENDING", "ROOT", "TAG"):
        monkeypatch.delenv(f"CKPTGUARD_RESUME_{name}", raising=False)
    monkeypatch.setenv("CKPTGUARD_ATTEMPT", attempt)
    code, text = call("resume", "--run", run, "--format", "env")
    assert code == 0
    for line in text.splitlines():
        name, _, value = line.removeprefix("export ").partition("=")
        monkeypatch.setenv(name, value)
    return int(text.partition("CKPTGUARD_RESUME_STEP=")[2].split()[0])


def lifecycles(site: LaunchSite, run: str) -> dict[int, tuple[str, str | None]]:
    rows = LeasedService(database=site.served.services.database).rows(checkpoints)
    named = [row for row in rows if row.path.startswith(f"{run}/")]
    return {row.step: (row.lifecycle, row.superseded_by) for row in named}


def test_a_resume_from_an_earlier_step_opens_a_branch(
    site: LaunchSite, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.save("back", 100, name="step-100")
    site.save("back", 200, name="step-200", is_valid=False)
    assert hand_down(call, monkeypatch, "back", "start-1") == 100
    assert lifecycles(site, "back") == {100: ("registered", None), 200: ("superseded", "rolled_back")}
    code, text = call("restarted", "--ok", "--step", 130, "--json")
    told = json.loads(text)
    assert (code, told["outcome"], told["steps_done"], told["branch"]) == (0, "progressed", 30, 1)
    again = json.loads(call("resume", "--run", "back", "--json")[1])
    assert (again["step"], again["branch"], again["attempt"]) == (100, 1, "start-1")


def test_saves_belong_to_the_branch_of_the_start_that_the_job_knows_last(
    site: LaunchSite, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.save("anew", 100, name="step-100")
    assert hand_down(call, monkeypatch, "anew", "start-1") == 100
    assert known_start() == KnownStart(run="anew", branch=1)
    site.save("anew", 200, name="step-200")
    monkeypatch.setenv("CKPTGUARD_ATTEMPT", "start-2")  # ranks that are started anew, and ask anew
    target = resume_target("anew", wait_s=0.0)
    assert target is not None
    assert target.branch == 2
    assert known_start() == KnownStart(run="anew", branch=2)


def test_failures_on_hosts_apart_make_the_next_resume_go_one_step_back(
    site: LaunchSite, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (100, 200):
        site.save("failing", step, name=f"step-{step}")
    for number in range(3):
        assert hand_down(call, monkeypatch, "failing", f"start-{number}") == 200
        code, text = call("restarted", "--failed", "--loading", "--host", f"node{number}", "--reason", "boom")
        assert (code, text) == (0, f"told: start start-{number} of failing failed while loading")
    assert hand_down(call, monkeypatch, "failing", "start-4") == 100


def test_failures_on_one_host_or_after_many_steps_leave_the_checkpoint_alone(
    site: LaunchSite, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (100, 200):
        site.save("unlucky", step, name=f"step-{step}")
    for number in range(4):
        assert hand_down(call, monkeypatch, "unlucky", f"start-{number}") == 200
        how = ("--host", "bad-node") if number % 2 else ("--step", 260, "--host", f"node{number}")
        assert call("restarted", "--failed", *how)[0] == 0
    assert hand_down(call, monkeypatch, "unlucky", "start-5") == 200


def test_a_start_that_saved_since_is_known_to_have_come_so_far(
    site: LaunchSite, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.save("saving", 100, name="step-100")
    assert hand_down(call, monkeypatch, "saving", "start-1") == 100
    assert json.loads(call("restarted", "--failed", "--json")[1])["steps_done"] is None
    site.save("saving", 150, name="step-150")
    monkeypatch.setenv("CKPTGUARD_ATTEMPT", "start-1b")
    assert json.loads(call("restarted", "--failed", "--json")[1])["steps_done"] == 50


def test_a_launcher_that_tells_of_the_end_does_not_blame_a_start_that_went_well(
    site: LaunchSite, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (100, 200):
        site.save("went-well", step, name=f"step-{step}")
    for number in range(3):
        assert hand_down(call, monkeypatch, "went-well", f"start-{number}") == 200
        assert call("restarted", "--ok")[0] == 0
        assert call("restarted", "--failed", "--host", f"node{number}")[0] == 0
    assert hand_down(call, monkeypatch, "went-well", "start-4") == 200


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--ok", "--failed"),
        ("--ok", "--loading"),
        ("--ok", "--attempt", "a"),
        ("--ok", "--run", "r"),
        ("--failed", "--run", "r", "--attempt", "a", "--step", "5"),
        ("--failed", "--run", "r", "--attempt", "a", "--step", "5", "--from-step", "6"),
    ],
)
def test_a_report_that_says_too_little_is_not_sent(arguments: tuple[str, ...], call: Call) -> None:
    assert call("restarted", *arguments)[0] == 2


def test_a_run_that_is_not_there_is_40(call: Call) -> None:
    assert call("restarted", "--run", "nobody", "--attempt", "a", "--ok")[0] == 40


def started(run: str, monkeypatch: pytest.MonkeyPatch, attempt: str) -> ResumeTarget:
    monkeypatch.setenv("CKPTGUARD_ATTEMPT", attempt)
    target = resume_target(run, wait_s=0.0)
    assert target is not None
    return target


def test_a_job_tells_by_itself_that_it_went_on(
    site: LaunchSite, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    del call  # its environment
    site.save("library", 100, name="step-100")
    with StartFeedback(started("library", monkeypatch, "s-1"), steps=3) as feedback:
        for _ in range(5):
            feedback.step()
    assert [told[:2] for told in site.restarts("library")] == [("s-1", "resumed"), ("s-1", "progressed")]
    assert incidents.counters() == {"starts_told": 1}


class LikeCheckpointException(BaseException):
    """As torch's: no Exception."""


@pytest.mark.parametrize(
    ("steps", "error", "outcome"),
    [
        (0, LikeCheckpointException("rank 3: boom"), "failed_loading"),
        (2, ValueError("loss\nis NaN"), "failed_early"),
        (3, ValueError("after enough steps"), "progressed"),
        (0, SystemExit(1), None),
        (1, KeyboardInterrupt(), None),
    ],
)
def test_a_job_tells_how_it_failed_if_that_says_anything(
    steps: int,
    error: BaseException,
    outcome: str | None,
    site: LaunchSite,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del call
    run = f"library-{type(error).__name__}-{steps}"
    site.save(run, 100, name="step-100")
    feedback = StartFeedback(started(run, monkeypatch, "s-1"), steps=3)
    with pytest.raises(type(error)), feedback:  # noqa: PT012 - steps come before the error
        for _ in range(steps):
            feedback.step()
        raise error
    if feedback._thread is not None:
        feedback._thread.join()
    told = [(outcome, detail) for _, outcome, detail in site.restarts(run)][1:]
    assert [each[0] for each in told] == ([] if outcome is None else [outcome])
    assert outcome != "failed_early" or told[0][1] == "ValueError: loss is NaN"


def test_a_service_that_is_down_costs_the_job_nothing_but_a_counter(
    site: LaunchSite, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    del call
    site.save("unheard", 100, name="step-100")
    target = started("unheard", monkeypatch, "s-1")
    monkeypatch.setenv("CKPTGUARD_URL", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setattr("ckptguard.integrations.resume_feedback.DEADLINE_S", 0.3)
    StartFeedback(target, steps=1).failed("boom")
    assert incidents.counters() == {"start_not_told": 1}


def test_a_start_from_nothing_has_nothing_to_tell(call: Call) -> None:
    del call
    with StartFeedback(None, steps=1) as feedback:
        feedback.step()
    StartFeedback(None).failed("boom")
    assert incidents.counters() == {}
