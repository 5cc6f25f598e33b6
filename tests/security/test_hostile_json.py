"""What a body may cost: memory and time are bounded whatever it holds (docs/threats.md)."""

import asyncio
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from ckptguard.errors import (
    CkptGuardError,
    FormatError,
    InvalidRequestError,
    ManifestFormatError,
    TooLargeError,
)
from ckptguard.model.json_fields import MAX_PROBLEMS
from ckptguard.model.report_json import report_from_json
from ckptguard_api.body_decoding import HEAVY_AT_ONCE, HEAVY_BYTES, parse_large_json, require_strict_json
from ckptguard_api.doorkeeper import Doorkeeper
from ckptguard_api.routes.registration_body import parse_registration
from tests.served_app import ServedApp

MIB = 1 << 20
HOSTILE: list[tuple[str, Callable[[], object]]] = [
    ("values in a lease write", lambda: parse_large_json(b'{"files":[' + b"{}," * 6_000_000 + b"0]}")),
    ("depth in a lease write", lambda: parse_large_json(b"[" * 50_000 + b"]" * 50_000)),
    ("values in a registration", lambda: parse_registration("r", b"[" + b"{}," * 4_000_000 + b"0]")),
    ("refused numbers", lambda: parse_registration("r", b'{"manifest":[' + b"NaN," * 200_000 + b"0]}")),
    ("a small body", lambda: require_strict_json(b'{"' + b"k" * 9000 + b'":[' + b"NaN," * 90_000 + b"0]}")),
    ("texts with NUL", lambda: require_strict_json(b"[" + b'"\\u0000",' * 90_000 + b"0]")),
    (
        "broken files",
        lambda: parse_registration(
            "r", b'{"manifest":{"manifest_version":1,"files":[' + b"{}," * 60_000 + b"{}]}}"
        ),
    ),
    ("broken findings", lambda: report_from_json({"schema": 1, "findings": [{}] * 100_000})),
]


@pytest.mark.parametrize("attack", [attack for _, attack in HOSTILE], ids=[name for name, _ in HOSTILE])
def test_a_body_of_a_few_megabytes_costs_no_more_than_a_few_times_itself(
    attack: Callable[[], object],
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CkptGuardError) as raised:
            attack()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * MIB
    assert len(getattr(raised.value, "problems", ())) <= MAX_PROBLEMS + 10


def test_a_long_list_of_problems_ends_and_says_the_first_ones() -> None:
    with pytest.raises(FormatError) as told:
        report_from_json({"schema": 1, "findings": [{}] * 5000})
    assert told.value.problems[0].startswith("/")
    with pytest.raises(ManifestFormatError) as cut:
        require_or_raise(b"[" + b"NaN," * (2 * MAX_PROBLEMS) + b"0]")
    assert cut.value.problems[0] == "/0: NaN is not JSON"


def require_or_raise(body: bytes) -> None:
    try:
        require_strict_json(body)
    except InvalidRequestError as error:
        raise ManifestFormatError(error.problems) from error


_PARSE = """
from ckptguard.errors import CkptGuardError
from ckptguard_api.routes.registration_body import parse_registration
body = b'{"manifest":[' + b'{"a":0},' * 1_990_000 + b"0]}"
def peak_kib():  # not ru_maxrss: that begins at the peak of the process that forked this one
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak_kib()
try:
    parse_registration("r", body)
except CkptGuardError:
    print((peak_kib() - before) // 1024)
"""


@pytest.mark.slow
def test_the_costliest_body_below_the_limits_takes_at_most_600_mib() -> None:
    done = subprocess.run([sys.executable, "-c", _PARSE], check=True, capture_output=True, text=True)
    assert 100 < int(done.stdout) < 600, "more than docs/threats.md says, or the body was refused early"


@pytest.mark.parametrize(
    "body",
    [
        b'{"report":{},"report":{}}',
        b'{"report":{"a":1,"a":2}}',
        b'{"report":{"a":1e999}}',
        b'{"a":1' + b"0" * 5000,
    ],
)
def test_lease_writes_are_as_strict_as_all_others(body: bytes) -> None:
    with pytest.raises((InvalidRequestError, TooLargeError)):
        parse_large_json(body)


def test_no_more_than_two_large_bodies_are_parsed_at_once(door: ServedApp) -> None:
    inside, most = 0, 0

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401, ARG001 - ASGI
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for _ in range(5):
            await asyncio.sleep(0)
        inside -= 1

    async def send_all(size: int) -> int:
        nonlocal most
        most = 0
        layer = Doorkeeper(app, services=door.services)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(size).encode())]

        async def receive() -> Any:  # noqa: ANN401 - ASGI
            return {"type": "http.request", "body": b"x" * size, "more_body": False}

        async def send(_: Any) -> None:  # noqa: ANN401 - ASGI
            raise AssertionError

        def scope() -> Any:  # noqa: ANN401 - ASGI
            path = "/v1/runs/r/checkpoints"
            return {"type": "http", "method": "POST", "path": path, "headers": headers, "state": {}}

        layer._let_in = _anybody  # type: ignore[method-assign,assignment] # the token is not what is tested
        await asyncio.gather(*(layer(scope(), receive, send) for _ in range(6)))
        return most

    assert asyncio.run(send_all(HEAVY_BYTES + 1)) == HEAVY_AT_ONCE
    assert asyncio.run(send_all(1000)) > HEAVY_AT_ONCE


async def _anybody(*_: object) -> None:
    return None
