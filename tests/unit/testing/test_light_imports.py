"""The kit is part of the library: importing it costs no torch and no test framework."""

import subprocess
import sys

_PROGRAM = """
import importlib, pkgutil, sys
import ckptguard.testing as kit
for module in pkgutil.walk_packages(kit.__path__, "ckptguard.testing."):
    importlib.import_module(module.name)
heavy = {"torch", "numpy", "pytest", "hypothesis"} & set(sys.modules)
sys.exit(f"imported {sorted(heavy)}" if heavy else 0)
"""


def test_no_module_of_the_kit_imports_torch_or_a_test_framework() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
