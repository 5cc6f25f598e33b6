"""Both clients: retries, deadlines, waits, bounds, and what becomes of every kind of answer."""

import asyncio
import logging
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ckptguard import errors
from ckptguard.client import Address, AsyncClient, Client, calls, exchange, operator_calls
from ckptguard.client.answers import ResumeAnswer
from ckptguard.errors import CkptGuardError, ServiceError, ServiceUnavailableError
from ckptguard.model.service import Hold, ResumeState, Scope
from tests.scripted_service import TOKEN, Reply, ScriptedService, problem, resume_value, scripted_service

Ask = Callable[..., Any]
TARGET = "GET /v1/runs/run-7/resume-target"
TOKENS = "POST /v1/tokens"
SOON_S = 15.0
"""On a machine with other work; what was to be cut short would have taken 20 s at least."""
NOT_AGAIN = {"Retry-After": "600"}
"""Beyond every deadline: what could be repeated is not."""
RUN = Reply(value={"name": "r"})


def test_an_answer_is_a_value(service: ScriptedService, ask: Ask) -> None:
    service.on(TARGET, Reply(value=resume_value(unknown_field={"of": "later"})))
    answer = ask(calls.resume_target("run-7", before_step=7, exclude=(3, 5)))
    assert isinstance(answer, ResumeAnswer)
    assert answer.state is ResumeState.VALID
    (asked,) = service.asked
    assert asked.query == {"before_step": "7", "exclude": "3,5"}
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_repeatable_call_is_made_again_while_the_service_is_away(
    status: int, service: ScriptedService, ask: Ask
) -> None:
    away = Reply(status=status, raw=b"<html>", content_type="text/html")
    service.on("GET /v1/runs/r", away, Reply(is_cut=True), RUN)
    assert ask(operator_calls.run("r")).name == "r"
    assert len(service.asked) == 3


def test_retry_after_is_kept(service: ScriptedService, ask: Ask) -> None:
    service.on("GET /v1/runs/r", problem(503, "service_unavailable", headers={"Retry-After": "1"}), RUN)
    before = time.monotonic()
    ask(operator_calls.run("r"))
    assert time.monotonic() - before >= 1.0


def test_a_retry_after_beyond_the_deadline_ends_the_call_at_once(service: ScriptedService, ask: Ask) -> None:
    service.on("GET /v1/runs/r", problem(503, "service_unavailable", headers={"Retry-After": "60"}))
    before = time.monotonic()
    with pytest.raises(ServiceUnavailableError):
        ask(operator_calls.run("r"))
    assert time.monotonic() - before < SOON_S


def test_a_call_that_must_not_be_made_twice_is_not(service: ScriptedService, ask: Ask) -> None:
    service.on(TOKENS, Reply(is_cut=True), problem(503, "service_unavailable"))
    with pytest.raises(ServiceUnavailableError):
        ask(operator_calls.create_token("t", scopes=[Scope.READ]))
    assert len(service.asked) == 1


def test_no_connection_is_service_unavailable_within_the_deadline(ask: Ask) -> None:
    with scripted_service() as gone:
        url = gone.url
    before = time.monotonic()
    with pytest.raises(ServiceUnavailableError, match=r"no connection|no answer"):
        ask(operator_calls.run("r"), url=url, deadline_s=0.5)
    assert time.monotonic() - before < SOON_S


def test_silence_ends_at_the_deadline(service: ScriptedService, ask: Ask) -> None:
    held = threading.Event()
    service.on("GET /v1/runs/r", Reply(value={}, held=held))
    before = time.monotonic()
    with pytest.raises(ServiceUnavailableError):
        ask(operator_calls.run("r"), deadline_s=0.5)
    held.set()
    assert time.monotonic() - before < SOON_S


def test_a_wait_outlives_the_deadline_and_a_cut_connection(
    service: ScriptedService, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_TRY_S", 0.2)
    held = threading.Event()
    threading.Timer(1.0, held.set).start()
    service.on(TARGET, Reply(is_cut=True), Reply(value=resume_value(), held=held))
    ask(calls.resume_target("run-7", wait_s=8.0), deadline_s=0.6)
    first, second = (float(asked.query["wait_s"]) for asked in service.asked)
    assert first == pytest.approx(8.0, abs=0.5)
    assert 0 < second < first


def test_a_redirect_is_never_followed(service: ScriptedService, ask: Ask) -> None:
    with scripted_service() as other:
        other.on("GET /v1/runs/r", RUN)
        service.on("GET /v1/runs/r", Reply(status=307, headers={"Location": f"{other.url}/v1/runs/r"}))
        with pytest.raises(ServiceError, match="redirect"):
            ask(operator_calls.run("r"))
        assert not other.asked


def test_a_large_body_is_compressed_and_arrives_whole(service: ScriptedService, ask: Ask) -> None:
    service.on("POST /v1/runs", Reply(status=201, value={"name": "r"}))
    names = [f"layer.{number}" for number in range(5000)]
    ask(calls.create_run("r", required_fqns=names))
    (asked,) = service.asked
    assert asked.headers["content-encoding"] == "gzip"
    assert asked.body == {"name": "r", "required_fqns": names}


_KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.ServiceError | errors.FormatError)
]


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.code)
def test_a_problem_is_the_error_of_its_type(
    kind: type[CkptGuardError], service: ScriptedService, ask: Ask
) -> None:
    told = problem(422, kind.code, "because", problems=["one", "two"], headers=NOT_AGAIN)
    service.on("GET /v1/runs/r", told)
    with pytest.raises(CkptGuardError) as caught:
        ask(operator_calls.run("r"))
    assert type(caught.value) is kind
    assert getattr(caught.value, "problems", None) == ("one", "two")


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (problem(418, "of_a_later_version"), ServiceError),
        (problem(422, "internal"), ServiceError),
        (Reply(status=401, raw=b"no", content_type="text/plain"), errors.UnauthorizedError),
        (Reply(status=403, raw=b"no", content_type="text/plain"), errors.ForbiddenError),
        (Reply(status=500, raw=b"{", content_type="application/problem+json"), ServiceError),
        (Reply(status=404, raw=b"[1]", content_type="application/problem+json"), ServiceError),
        (Reply(raw=b"not json"), ServiceError),
        (Reply(raw=b'{"name": NaN}'), ServiceError),
        (Reply(raw=b"[" * 200_000), ServiceError),
        (Reply(raw=b'{"name": ' + b"9" * 10_000 + b"}"), ServiceError),
        (Reply(value=[]), ServiceError),
        (Reply(value={}), ServiceError),
        (Reply(value={"name": 7}), ServiceError),
        (Reply(value={"name": "r", "counts": {"VALID": True}}), ServiceError),
        (Reply(value={"name": "r", "created_at": "2026-11-29T12:00:00"}), ServiceError),
        (Reply(value={"name": "r", "min_assurance": "absolute"}), ServiceError),
        (Reply(raw=b""), ServiceError),
    ],
)
def test_an_answer_that_is_none_is_one_clear_error(
    reply: Reply, kind: type[CkptGuardError], service: ScriptedService, ask: Ask
) -> None:
    service.on("GET /v1/runs/r", reply)
    with pytest.raises(CkptGuardError) as caught:
        ask(operator_calls.run("r"))
    assert type(caught.value) is kind
    assert len(str(caught.value)) < 3000


def test_an_answer_longer_than_any_is_given_up(
    service: ScriptedService, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MAX_ANSWER_BYTES", 1000)
    service.on("GET /v1/runs/r", Reply(value={"name": "r" * 2000}))
    with pytest.raises(ServiceError, match="longer than"):
        ask(operator_calls.run("r"))


def test_what_the_service_remembers_comes_with_the_error(service: ScriptedService, ask: Ask) -> None:
    service.on(TARGET, problem(503, "service_unavailable", last_known=resume_value(), headers=NOT_AGAIN))
    with pytest.raises(ServiceUnavailableError) as caught:
        ask(calls.resume_target("run-7"))
    assert caught.value.last_known == resume_value()


def test_a_list_goes_on_over_short_and_empty_pages(service: ScriptedService) -> None:
    pages = [[1, 2], [], [3]]
    replies = [
        Reply(value={"items": [{"name": f"r{number}"} for number in page], "next": f"c{place}"})
        for place, page in enumerate(pages)
    ]
    service.on("GET /v1/runs", *replies, Reply(value={"items": [], "next": None}))
    with Client(Address.of(service.url, TOKEN)) as client:
        assert [run.name for run in client.runs()] == ["r1", "r2", "r3"]
    assert [asked.query.get("cursor") for asked in service.asked] == [None, "c0", "c1", "c2"]


def test_a_cursor_that_leads_to_itself_ends_the_list(service: ScriptedService) -> None:
    service.on("GET /v1/runs", Reply(value={"items": [{"name": "r"}], "next": "same"}))

    async def names() -> list[str]:
        async with AsyncClient(Address.of(service.url, TOKEN)) as client:
            return [run.name async for run in client.runs()]

    assert asyncio.run(names()) == ["r", "r"]


def test_both_clients_have_the_same_methods_made_of_the_same_builders() -> None:
    assert Client.resume_target is AsyncClient.resume_target is calls.resume_target
    assert Client.hold is operator_calls.hold


def test_a_method_keeps_name_and_docstring(service: ScriptedService) -> None:
    with Client(Address.of(service.url, TOKEN)) as client:
        assert client.register.__name__ == "register"
        assert client.register.__doc__ == calls.register.__doc__


def test_another_deadline_shares_the_connections(service: ScriptedService) -> None:
    held = threading.Event()
    service.on("GET /v1/runs/r", Reply(value={}, held=held))
    with Client(Address.of(service.url, TOKEN), deadline_s=60.0) as client:
        before = time.monotonic()
        with pytest.raises(ServiceUnavailableError):
            client.within(0.3).run("r")
        assert time.monotonic() - before < SOON_S
        held.set()


def test_nobody_sets_a_hold_that_only_the_service_gives() -> None:
    with pytest.raises(ValueError, match="suspect"):
        operator_calls.hold(1, hold=Hold.SUSPECT, reason="x")


@pytest.mark.parametrize("name", ["a/b", "..", ".", "ä ?#%", "a\r\nb"])
def test_a_name_stays_one_segment_of_the_path(name: str, service: ScriptedService, ask: Ask) -> None:
    with pytest.raises(errors.NotFoundError):
        ask(operator_calls.run(name))
    (asked,) = service.asked
    assert asked.path.startswith("/v1/runs/")
    assert asked.path.count("/") == 3


def test_the_token_is_in_no_error_log_or_text(
    service: ScriptedService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    address = Address.of(service.url, TOKEN)
    service.on("GET /v1/runs/r", Reply(is_cut=True))
    with Client(address, deadline_s=0.3) as client, pytest.raises(ServiceUnavailableError) as caught:
        client.run("r")
    chain: list[BaseException | None] = [caught.value]
    while chain[-1] is not None:
        chain.append(chain[-1].__cause__ or chain[-1].__context__)
    prepared = exchange.prepare(operator_calls.run("r"), address, hold_s=0.0)
    texts = [
        caplog.text,
        repr(address),
        repr(address.token),
        str(address.token),
        repr(client),
        repr(prepared),
    ]
    assert not [text for text in [*texts, *map(repr, chain)] if TOKEN in text]
    with pytest.raises(TypeError):
        pickle.dumps(address.token)
