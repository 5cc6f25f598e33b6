"""Names of files that outlive a power failure."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: those that came, and those that went.

    Raises:
        OSError: They may not be.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
