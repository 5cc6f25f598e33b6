"""Strict JSON: what Python's json silently repairs is a problem with its place."""

import json

import pytest

from ckptguard.errors import LimitExceededError, ManifestFormatError
from ckptguard.formats.strict_json import JsonLimits, parse_strict_json

LIMITS = JsonLimits(max_bytes=1 << 20, max_depth=8, max_values=1000)


def problems_of(text: str) -> list[str]:
    return [problem.partition(": ")[0] for problem in parse_strict_json(text.encode(), LIMITS).problems]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ('{"a": 1, "a": 1}', ["/a"]),
        ('{"x": [{"a/b": {}, "a/b": 2}]}', ["/x/0/a~1b"]),
        ('{"a": NaN, "b": [Infinity, -Infinity]}', ["/a", "/b/0", "/b/1"]),
        ('{"a": 1e999}', ["/a"]),
        ('{"a": 9007199254740992}', ["/a"]),
        ('{"a": -9007199254740992}', ["/a"]),
        ('{"a": %s}' % ("9" * 5000), ["/a"]),
        ('{"a": 0.%s}' % ("1" * 5000), ["/a"]),
        ('{"a": 1, "a": NaN}', ["/a", "/a"]),
    ],
)
def test_each_fault_has_its_place(text: str, places: list[str]) -> None:
    assert problems_of(text) == places


def test_good_json_is_what_python_reads() -> None:
    text = '{"a": [1, -2, 3.5, true, null, "\\u00e9\\n\\\\\\"{["], "b": {}, "c": [], "d": "{[,\\"]}"}'
    parsed = parse_strict_json(text.encode(), LIMITS)
    assert parsed.value == json.loads(text)
    assert parsed.problems == ()


@pytest.mark.parametrize("text", ["[" * 9 + "]" * 9, "[" * 100_000, '{"a":' * 9 + "1" + "}" * 9])
def test_depth_is_bounded_before_parsing(text: str) -> None:
    with pytest.raises(LimitExceededError, match="nested"):
        parse_strict_json(text.encode(), JsonLimits(max_bytes=1 << 20, max_depth=8, max_values=1 << 20))


@pytest.mark.parametrize("text", ["[" + "[]," * 2000 + "1]", "[" + "1," * 2000 + "1]", "{" * 2001])
def test_the_number_of_values_is_bounded_before_parsing(text: str) -> None:
    with pytest.raises(LimitExceededError, match="1000 JSON values"):
        parse_strict_json(text.encode(), LIMITS)


@pytest.mark.parametrize(
    "text", ['["[[[[[[[[[["]', '["\\"[[[[[[[[[["]', '["\\\\", "[[[[[[[[["]', '["","[[[[[[[[[",""]']
)
def test_brackets_inside_strings_are_no_depth(text: str) -> None:
    assert parse_strict_json(text.encode(), LIMITS).value == json.loads(text)


@pytest.mark.parametrize(
    "data", [b'{"a": "\xff"}', b"{'a': 1}", b'{"a": 1,}', b'{"a": 01}', b'{"a": 1} x', b'"\n"']
)
def test_what_is_no_json_is_one_problem(data: bytes) -> None:
    with pytest.raises(ManifestFormatError) as caught:
        parse_strict_json(data, LIMITS)
    assert len(caught.value.problems) == 1
