"""How far a VALID can go that was asked for so much."""

from collections.abc import Mapping
from typing import Final

from ckptguard.model.policy import Depth
from ckptguard.model.verdict import Assurance

REACH: Final[Mapping[Depth, Assurance]] = {
    Depth.STRUCTURE: Assurance.STRUCTURE,
    Depth.CONTENT: Assurance.CONTENT,
    Depth.LOAD: Assurance.LOADED,
}
