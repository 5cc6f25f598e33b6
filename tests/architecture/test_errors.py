"""Every error has a code of its own, and says when it may be retried (style.md, "Errors")."""

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator

import ckptguard
from ckptguard.errors import CkptGuardError

_NOT_IMPORTED = re.compile(
    r".*\.__main__|ckptguard\.integrations\.(composer|huggingface|lightning|megatron|olmo_core|torchtitan)"
)
"""Adapters import their trainer, which need not be installed; they define no errors."""


def _import_everything() -> None:
    for module in pkgutil.walk_packages(ckptguard.__path__, "ckptguard."):
        if not _NOT_IMPORTED.fullmatch(module.name):
            importlib.import_module(module.name)


def _all_errors(root: type[CkptGuardError] = CkptGuardError) -> Iterator[type[CkptGuardError]]:
    for error in root.__subclasses__():
        yield error
        yield from _all_errors(error)


def _errors() -> list[type[CkptGuardError]]:
    _import_everything()
    return [CkptGuardError, *_all_errors()]


def test_every_error_has_a_code_of_its_own() -> None:
    counts = Counter(error.code for error in _errors())
    assert [code for code, count in counts.items() if count > 1] == []


def test_every_error_says_its_code_itself() -> None:
    assert [error.__name__ for error in _errors() if "code" not in vars(error)] == []


def test_codes_are_lower_case_words() -> None:
    assert [error.code for error in _errors() if not re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", error.code)] == []
