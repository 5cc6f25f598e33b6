"""Named corruptions: real checkpoints, damaged, each with its right verdict.

`CORRUPTIONS` is everything that a validator must see, and, named `limit_…`, what it
cannot see in bare files and therefore must not claim to have excluded.
"""

from typing import Final

from ckptguard.testing.case import Case
from ckptguard.testing.corruptions.dcp_bytes import DCP_BYTES
from ckptguard.testing.corruptions.dcp_metadata import DCP_METADATA
from ckptguard.testing.corruptions.manifests import MANIFESTS
from ckptguard.testing.corruptions.mixed_saves import MIXED_SAVES
from ckptguard.testing.corruptions.pickles import PICKLES
from ckptguard.testing.corruptions.safetensors import SAFETENSORS
from ckptguard.testing.corruptions.torch_save import TORCH_SAVE
from ckptguard.testing.corruptions.trainers import TRAINERS

CORRUPTIONS: Final[tuple[Case, ...]] = (
    *DCP_BYTES,
    *DCP_METADATA,
    *MANIFESTS,
    *MIXED_SAVES,
    *PICKLES,
    *SAFETENSORS,
    *TORCH_SAVE,
    *TRAINERS,
)

__all__ = ["CORRUPTIONS"]
