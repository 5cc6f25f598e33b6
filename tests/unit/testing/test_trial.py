"""Trials can be repeated from their seed, and taken back."""

from pathlib import Path

import pytest

from ckptguard.testing.campaign import DEFAULT_KINDS
from ckptguard.testing.trial import TrialKind, applied, draw_trial

_LENGTHS = {"__0_0.distcp": 300, "__1_0.distcp": 0, "__2_0.distcp": 5000}


def test_the_same_seed_draws_the_same_trial() -> None:
    assert draw_trial(7, _LENGTHS, DEFAULT_KINDS) == draw_trial(7, _LENGTHS, DEFAULT_KINDS)


def test_an_empty_file_is_never_hit() -> None:
    assert "__1_0.distcp" not in {draw_trial(seed, _LENGTHS, DEFAULT_KINDS).file for seed in range(500)}


@pytest.mark.parametrize("kind", TrialKind)
def test_a_trial_is_taken_back_with_its_time(kind: TrialKind, tmp_path: Path) -> None:
    original = bytes(range(1, 251)) * 20
    path = tmp_path / "__2_0.distcp"
    path.write_bytes(original)
    before = path.stat().st_mtime_ns
    for seed in range(50):
        trial = draw_trial(seed, {path.name: len(original)}, (kind,))
        with applied(trial, tmp_path, original):
            assert path.read_bytes() == trial.change(original) != original, f"seed {seed}"
            assert path.stat().st_mtime_ns == before
        assert path.read_bytes() == original, f"seed {seed}"
