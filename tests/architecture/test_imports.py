"""Layers, and what a training job pays for `import ckptguard` (design §10, §12)."""

import json
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

PROJECT = Path(__file__).resolve().parents[2]
SERVER_LIBRARIES = {"fastapi", "uvicorn", "sqlalchemy", "alembic", "psycopg", "pydantic_settings"}
HEAVY_LIBRARIES = {"torch", "numpy", "hypothesis", "pytest"}


def _modules_after(statement: str) -> set[str]:
    """Run a statement in a fresh interpreter and return the top-level modules it loaded."""
    tell = "import json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    code = f"{statement}\n{tell}"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def _packages_without_torch() -> list[str]:
    marked = {"canary", "integrations", "testing"}
    folders = (PROJECT / "ckptguard").iterdir()
    names = sorted(path.name for path in folders if (path / "__init__.py").is_file())
    return [name for name in names if name not in marked]


def test_imports_point_down_only() -> None:
    linter = which("lint-imports", path=str(Path(sys.executable).parent))
    assert linter is not None, "import-linter is not installed beside this interpreter"
    done = subprocess.run([linter, "--no-cache"], check=False, capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("statement", ["import ckptguard", "import ckptguard.cli.main"])
def test_neither_the_library_nor_the_command_starts_torch_or_a_server(statement: str) -> None:
    loaded = _modules_after(statement)
    assert not loaded & (HEAVY_LIBRARIES | SERVER_LIBRARIES)


def test_every_module_outside_the_canary_imports_without_torch() -> None:
    packages = ", ".join(f"ckptguard.{name}" for name in _packages_without_torch())
    walk = (
        f"import importlib, pkgutil, {packages}\n"
        f"for package in ({packages},):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)"
    )
    assert not _modules_after(walk) & (HEAVY_LIBRARIES | SERVER_LIBRARIES)
