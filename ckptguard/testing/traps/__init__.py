"""Named traps: checkpoints that look bad and are fine.

Calling one of these INVALID is as wrong as missing a corruption.
"""

from typing import Final

from ckptguard.testing.case import Case
from ckptguard.testing.traps.dcp_layouts import DCP_LAYOUTS
from ckptguard.testing.traps.dcp_values import DCP_VALUES
from ckptguard.testing.traps.other_formats import OTHER_FORMATS
from ckptguard.testing.traps.surroundings import SURROUNDINGS

TRAPS: Final[tuple[Case, ...]] = (*DCP_LAYOUTS, *DCP_VALUES, *OTHER_FORMATS, *SURROUNDINGS)

__all__ = ["TRAPS"]
