"""A loop that feeds a parser mutated input for a while and says exactly how to see a failure again."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from ckptguard.clock import Clock, SystemClock
from ckptguard.testing.mutations import mutate

SECONDS_VARIABLE: Final = "CKPTGUARD_FUZZ_SECONDS"
DEFAULT_LONG_S: Final = 300.0
MAX_SECONDS_PER_INPUT: Final = 5.0
"""Mutated inputs are small; one that takes this long on a busy machine has found a loop."""
_SHOWN_BYTES: Final = 2000

Target = Callable[[bytes], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """How long, and from which seed.

    Args:
        seed: Decides every input, together with its number.
        seconds: When to stop.
        expected: Exceptions that the parser documents; any other is a failure.
    """

    seed: int
    seconds: float
    expected: tuple[type[Exception], ...] = ()


def long_seconds() -> float:
    """Return how long each target of `make fuzz` runs: `CKPTGUARD_FUZZ_SECONDS`, default 300."""
    return float(os.environ.get(SECONDS_VARIABLE, DEFAULT_LONG_S))


def fresh_seed() -> int:
    """Return a seed that no earlier campaign had, so that long ones add up; print it."""
    return int.from_bytes(os.urandom(4), "little")


def input_of(seeds: Sequence[bytes], *, seed: int, number: int) -> bytes:
    """Return input `number` of a campaign: what a failure's message names."""
    return mutate(seeds, Random(f"{seed} {number}"))  # noqa: S311 - repeatable, not secret


def fuzz(target: Target, seeds: Sequence[bytes], campaign: Campaign, *, clock: Clock | None = None) -> int:
    """Feed the target until the time is up; return how many inputs it took.

    Args:
        target: Raises nothing but what `campaign.expected` lists.
        seeds: Well-formed inputs; each goes in as it is, first.
        campaign: Seed, time, documented exceptions.
        clock: Time.

    Raises:
        AssertionError: The target raised something else, or took too long over one input.
    """
    clock = clock or SystemClock()
    for data in seeds:
        _feed(target, data, campaign, clock, name="an unchanged seed")
    deadline = clock.monotonic_s() + campaign.seconds
    number = 0
    while clock.monotonic_s() < deadline:
        data = input_of(seeds, seed=campaign.seed, number=number)
        _feed(target, data, campaign, clock, name=f"seed {campaign.seed} input {number}")
        number += 1
    return number


def _feed(target: Target, data: bytes, campaign: Campaign, clock: Clock, *, name: str) -> None:
    started = clock.monotonic_s()
    try:
        target(data)
    except campaign.expected:
        pass
    except Exception as error:
        shown = data[:_SHOWN_BYTES].hex()
        msg = f"{name}: {type(error).__name__}: {error}; {len(data)} bytes: {shown}"
        raise AssertionError(msg) from error
    seconds = clock.monotonic_s() - started
    if seconds > MAX_SECONDS_PER_INPUT:
        msg = f"{name}: {seconds:.1f} s for {len(data)} bytes"
        raise AssertionError(msg)
