"""Objects whose pickles would run code, or name classes that nobody here has.

Only ever pickled. What they would do if a reader fell for them is harmless: create
one empty file, whose absence a test then holds.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOREIGN_MODULE: Final = b"ckptguard.testing.hostile"
FOREIGN_MODULE_RENAMED: Final = b"acme_trainer.data.loaders"
"""As long as the real name, so that a pickle stays well formed when one replaces the other."""


@dataclass(frozen=True)
class RunsCommand:
    """Unpickled, it is `os.system("touch MARKER")`; pickle writes the global as `posix.system`."""

    marker: Path

    def __reduce__(self) -> tuple[Any, ...]:
        """Name the call that a reader would make."""
        return os.system, (f"touch '{self.marker}'",)


@dataclass(frozen=True)
class Evaluates:
    """Unpickled, it is `eval(...)` of an expression that creates the marker."""

    marker: Path

    def __reduce__(self) -> tuple[Any, ...]:
        """Name the call that a reader would make."""
        return eval, (f"__import__('pathlib').Path({str(self.marker)!r}).touch()",)


class Foreign:
    """An object of a class that only its own trainer knows; harmless."""

    def __init__(self) -> None:
        self.position = 17
