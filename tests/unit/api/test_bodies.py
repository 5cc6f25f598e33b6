"""Bodies are bounded before, while and after they are decoded (threats.md, "Zip bomb")."""

import gzip
import json
import socket
import tracemalloc
import zlib
from typing import Any
from urllib.parse import urlsplit

import pytest
import zstandard

from ckptguard.errors import InvalidRequestError, TooLargeError, TooManyRequestsError
from ckptguard_api.body_decoding import (
    LARGE_BODY_BYTES,
    SMALL_BODY_BYTES,
    BodyBudget,
    decode_body,
    is_large,
    limit_of,
    require_strict_json,
)
from ckptguard_api.doorkeeper import Doorkeeper
from tests.served_app import ServedApp

GOOD = json.dumps({"name": "trainer", "scopes": ["read"]}).encode()
JSON_TYPE = {"Content-Type": "application/json"}


def _zstd(data: bytes, *, has_size: bool = True) -> bytes:
    if has_size:
        return zstandard.ZstdCompressor().compress(data)
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


ENCODED = {
    "identity": GOOD,
    "gzip": gzip.compress(GOOD, mtime=0),
    "zstd": _zstd(GOOD),
    # Two members are one file (RFC 1952).
    "GZIP": gzip.compress(GOOD[:9], mtime=0) + gzip.compress(GOOD[9:], mtime=0),
}


@pytest.mark.parametrize(("encoding", "body"), ENCODED.items())
def test_a_body_may_be_encoded(door: ServedApp, encoding: str, body: bytes) -> None:
    answer = door.client().post(
        "/v1/tokens", content=body, headers=JSON_TYPE | {"Content-Encoding": encoding}
    )
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Type": "text/plain"}, GOOD),
        ({"Content-Type": "application/x-www-form-urlencoded"}, GOOD),
        ({}, GOOD),
        (JSON_TYPE | {"Content-Encoding": "br"}, GOOD),
        (
            JSON_TYPE | {"Content-Encoding": "gzip, gzip"},
            gzip.compress(gzip.compress(GOOD, mtime=0), mtime=0),
        ),
    ],
)
def test_other_types_and_encodings_are_refused(door: ServedApp, headers: dict[str, str], body: bytes) -> None:
    answer = door.client().post("/v1/tokens", content=body, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (
        415,
        "urn:ckptguard:problem:unsupported_media_type",
    )


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_bomb_is_refused_before_it_is_unpacked(door: ServedApp, encoding: str) -> None:
    bomb = (gzip.compress if encoding == "gzip" else _zstd)(bytes(200 << 20))
    assert len(bomb) < SMALL_BODY_BYTES
    headers = JSON_TYPE | {"Content-Encoding": encoding}
    answer = door.client().post("/v1/tokens", content=bomb, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:ckptguard:problem:too_large")


@pytest.mark.parametrize(
    ("encoding", "bomb"),
    [
        ("gzip", gzip.compress(bytes(200 << 20), mtime=0)),
        ("zstd", _zstd(bytes(200 << 20))),
        ("zstd", _zstd(bytes(200 << 20), has_size=False)),
        ("zstd", _zstd(bytes(1 << 20)) * 200),
    ],
)
def test_unpacking_a_bomb_takes_little_memory(encoding: str, bomb: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(TooLargeError):
        decode_body(bomb, encoding, limit=SMALL_BODY_BYTES)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 << 20


def test_a_window_that_takes_much_memory_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = stream.compress(b"x" * 1000) + stream.flush()
    with pytest.raises(InvalidRequestError, match="zstd"):
        decode_body(body, "zstd", limit=SMALL_BODY_BYTES)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_what_is_cut_off_altered_or_followed_by_something_is_refused(encoding: str) -> None:
    whole = (gzip.compress if encoding == "gzip" else zstandard.ZstdCompressor(write_checksum=True).compress)(
        GOOD * 50
    )
    broken = [whole[:length] for length in range(1, len(whole))]
    broken += [whole + b"x", whole + whole[:9], whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:], GOOD]
    for body in broken:
        with pytest.raises(InvalidRequestError, match=encoding):
            decode_body(body, encoding, limit=SMALL_BODY_BYTES)
    assert decode_body(whole + whole, encoding, limit=SMALL_BODY_BYTES) == GOOD * 100


def test_a_broken_encoding_is_a_problem_and_not_a_fault(door: ServedApp) -> None:
    headers = JSON_TYPE | {"Content-Encoding": "gzip"}
    answer = door.client().post("/v1/tokens", content=zlib.compress(GOOD), headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:ckptguard:problem:invalid_request")


def test_a_body_beyond_the_limit_is_refused_announced_or_not(door: ServedApp) -> None:
    client = door.client()
    body = b" " * (SMALL_BODY_BYTES + 1)
    announced = client.post("/v1/tokens", content=body, headers=JSON_TYPE)
    chunked = client.post("/v1/tokens", content=iter([body[:1000], body[1000:]]), headers=JSON_TYPE)
    assert (announced.status_code, chunked.status_code) == (413, 413)


def test_a_body_of_exactly_the_limit_is_read(door: ServedApp) -> None:
    body = GOOD + b" " * (SMALL_BODY_BYTES - len(GOOD))
    assert door.client().post("/v1/tokens", content=body, headers=JSON_TYPE).status_code == 201


def test_a_stranger_is_refused_before_the_body_is_read(door: ServedApp) -> None:
    address = urlsplit(door.url)
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10) as stranger:
        stranger.sendall(
            b"POST /v1/runs/r/checkpoints HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n{" % LARGE_BODY_BYTES
        )
        assert stranger.recv(4096).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"name": "a", "scopes": ["read"], "name": "b"}', "/name: key stands more than once"),
        (b'{"name": "a", "scopes": ["read"], "expires_in_s": NaN}', "NaN is not JSON"),
        (b'{"name": "a", "scopes": ["read"], "expires_in_s": 1e999}', "number too large"),
        (b'{"name": "a\\u0000", "scopes": ["read"]}', "/name: NUL"),
        (b'{"name": "a\\ud800", "scopes": ["read"]}', "/name: NUL or half"),
        (b'{"na\\u0000me": 1}', "NUL or half of a surrogate pair in a key"),
        (b'{"name": "a"', "not JSON at line 1"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"name": "\xed\xa0\x80"}', "not UTF-8"),
    ],
)
def test_json_that_says_two_things_or_none_is_refused(door: ServedApp, body: bytes, told: str) -> None:
    answer = door.client().post("/v1/tokens", content=body, headers=JSON_TYPE)
    assert answer.status_code == 422
    assert any(told in problem for problem in answer.json()["problems"]), answer.text


def test_json_nested_too_deep_is_refused() -> None:
    for body in (
        b"[" * 5000 + b"]" * 5000,
        b'{"a":' * 100 + b"1" + b"}" * 100,
        b"[" + b"0," * 200_000 + b"0]",
    ):
        with pytest.raises(TooLargeError):
            require_strict_json(body)


def test_only_registrations_and_lease_writes_may_be_large() -> None:
    large = ["/v1/runs/r/checkpoints", "/v1/leases/7/files", "/v1/leases/7/verdict"]
    small = [
        "/v1/runs",
        "/v1/runs/r/restarts",
        "/v1/runs/a/b/checkpoints",
        "/v1/leases/7/heartbeat",
        "/v1/tokens",
    ]
    assert [limit_of(path) for path in large] == [LARGE_BODY_BYTES] * 3
    assert [path for path in small if is_large(path)] == []


def test_the_bytes_of_all_bodies_together_are_bounded() -> None:
    budget = BodyBudget(max_bytes=10)
    budget.take(10)
    with pytest.raises(TooManyRequestsError):
        budget.take(1)
    budget.give(10)
    budget.take(10)


def test_bytes_are_given_back_after_each_request(door: ServedApp) -> None:
    client = door.client()
    for _ in range(3):
        client.post("/v1/tokens", content=GOOD, headers=JSON_TYPE | {"Content-Encoding": "gzip"})
    assert client.post("/v1/tokens", content=GOOD, headers=JSON_TYPE).status_code == 201
    assert _bytes_left(door) == 768 << 20


def _bytes_left(door: ServedApp) -> int:
    layer: Any = door.app.middleware_stack
    while not isinstance(layer, Doorkeeper):
        layer = getattr(layer, "app", None) or layer._app
    return layer._budget._left
