"""`make demo` holds every claim that it makes."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.torch
@pytest.mark.slow
def test_the_demo_tells_its_story_in_under_two_minutes(tmp_path: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, PROJECT / "examples" / "demo" / "run.py", tmp_path / "demo"],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VALID (loaded)" in done.stdout
    assert "INVALID (damage)" in done.stdout
    assert "is loaded as" in done.stdout
