"""`python -m ckptguard_workers`, and what torchrun starts: see `ckptguard worker --help`."""

import sys

from ckptguard_workers.command import main

if __name__ == "__main__":
    sys.exit(main())
