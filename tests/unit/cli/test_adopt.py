"""`adopt` as a person and a program see it: progress, lines, one object, exit codes."""

import io
import json

import pytest

from ckptguard.cli.adopt_answers import LineTeller, OnceAnswer, news_line
from ckptguard.cli.adopt_progress import adopt_progress, progress_text
from ckptguard.cli.exit_codes import ExitCode
from ckptguard.cli.lines import line_text
from ckptguard.operations.adopt.news import News, NewsKind
from ckptguard.testing.fakes import FakeClock

REGISTERED = News(
    kind=NewsKind.REGISTERED, run="r", step=7, path="step-7", checkpoint_id=3, is_validated=True
)


def test_progress_of_less_than_a_second_says_nothing() -> None:
    stream, clock = io.StringIO(), FakeClock()
    with adopt_progress(clock=clock, stream=stream) as advance:
        for done in range(1, 10):
            advance(done, 9)
            clock.advance(0.1)
    assert stream.getvalue() == ""


def test_progress_of_more_tells_rate_and_time_left_every_ten_seconds() -> None:
    stream, clock = io.StringIO(), FakeClock()
    with adopt_progress(clock=clock, stream=stream) as advance:
        for done in range(1, 301):
            advance(done, 1_000)
            clock.advance(0.05)
    lines = stream.getvalue().splitlines()
    assert lines == [
        "21 of 1,000 checkpoints, 21/s, 46.62 s left",
        "221 of 1,000 checkpoints, 20/s, 38.77 s left",
    ]


def test_progress_text_at_the_end_has_nothing_left() -> None:
    assert progress_text(10, 10, elapsed_s=5) == "10 of 10 checkpoints, 2/s"


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        ([], ExitCode.NOTHING_THERE),
        ([NewsKind.SKIPPED, NewsKind.POINTER], ExitCode.NOTHING_THERE),
        ([NewsKind.REGISTERED, NewsKind.SKIPPED, NewsKind.POINTER], ExitCode.OK),
        ([NewsKind.KNOWN], ExitCode.OK),
        ([NewsKind.WOULD_REGISTER], ExitCode.OK),
        ([NewsKind.REGISTERED, NewsKind.WAITING], ExitCode.TRY_AGAIN),
        ([NewsKind.WAITING], ExitCode.TRY_AGAIN),
        ([NewsKind.REGISTERED, NewsKind.WAITING, NewsKind.REFUSED], ExitCode.UNUSABLE),
        ([NewsKind.REGISTERED, NewsKind.UNREADABLE], ExitCode.UNUSABLE),
    ],
)
def test_the_gravest_news_decides_the_exit_code(kinds: list[NewsKind], code: ExitCode) -> None:
    answer = OnceAnswer(root="/r", is_dry=False)
    for kind in kinds:
        answer.take(News(kind=kind))
    assert answer.exit_code is code


def test_every_kind_of_news_is_a_line_that_obeys_nobody() -> None:
    for kind in NewsKind:
        news = News(kind=kind, run="r\x1b[2J", step=7, path="a\nb", reason="\x07", notes=("\x1b",))
        text = line_text(news_line(news))
        assert text.isprintable(), kind


def test_many_of_one_kind_are_counted_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    answer = OnceAnswer(root="/r", is_dry=False)
    for _ in range(30):
        answer.take(REGISTERED)
    answer.write(is_json=False)
    out = capsys.readouterr().out
    assert "... and 10 more registered" in out
    assert "r: 30 checkpoints: 30 registered; 30 to be validated" in out


def test_a_line_of_a_watcher_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    tell = LineTeller(is_json=True)
    tell(REGISTERED)
    tell(News(kind=NewsKind.POINTER, run="r", path="latest", fault="stale", reason="why"))
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "schema": 1,
        "kind": "registered",
        "run": "r",
        "path": "step-7",
        "step": 7,
        "checkpoint_id": 3,
        "is_validated": True,
        "reason": None,
        "superseded": [],
        "notes": [],
    }
    assert second == {
        "schema": 1,
        "kind": "pointer",
        "run": "r",
        "path": "latest",
        "fault": "stale",
        "reason": "why",
    }
