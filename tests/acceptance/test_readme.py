"""The README's commands do what it says: its blocks marked `console tested` are run."""

import doctest
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from ckptguard.testing.edits import copy_checkpoint

PROJECT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```console tested\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMPARE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks() -> list[str]:
    return BLOCK.findall((PROJECT / "README.md").read_text(encoding="utf-8"))


@pytest.mark.torch
@pytest.mark.parametrize("number", range(len(blocks())))
def test_the_readme_shows_what_happens(
    number: int, tmp_path: Path, own_corpus: Path, environment: dict[str, str]
) -> None:
    copy_checkpoint(own_corpus / "dcp_torch2_14_1_fsdp2_ws2", tmp_path / "step-2")
    last_code = 0
    for command, expected in _commands(blocks()[number]):
        done = subprocess.run(
            ["bash", "-c", f"(exit {last_code}); {command}"],  # noqa: S607 - any bash
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
        )
        last_code = done.returncode
        assert doctest.OutputChecker().check_output(expected, done.stdout, COMPARE), (
            f"$ {command}\n{done.stdout}{done.stderr}"
        )


def _commands(block: str) -> list[tuple[str, str]]:
    """Return each command with the output shown below it."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def test_the_readme_has_something_to_run() -> None:
    assert len(blocks()) >= 2


def test_the_two_commands_of_the_readme_are_in_the_makefile() -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test", "prove", "check", "fuzz", "bench"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_ci_runs_the_test_command_of_the_readme() -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    script = (PROJECT / ".ci" / "run").read_text(encoding="utf-8")
    assert "$ make test\n" in readme
    assert shlex.split(script.splitlines()[-1]) == ["make", "test"]


def test_every_link_of_the_documents_leads_somewhere() -> None:
    documents = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *(PROJECT / "docs").rglob("*.md")]
    for document in documents:
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", text):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
