"""Where training jobs and launchers plug in; torch only below `dcp`, which a user imports by name.

What a job asks when it starts is here by name (`resume_target`, `handed_target`, `StartFeedback`),
and imported when it is used: neither torch nor httpx comes with this package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ckptguard.integrations.launch_ranks import RanksApartError
    from ckptguard.integrations.resume import ResumeRefusedError, ResumeTarget, handed_target, resume_target
    from ckptguard.integrations.resume_feedback import StartFeedback

__all__ = [
    "RanksApartError",
    "ResumeRefusedError",
    "ResumeTarget",
    "StartFeedback",
    "handed_target",
    "resume_target",
]

_HOMES: Final = {
    "RanksApartError": "launch_ranks",
    "ResumeRefusedError": "resume",
    "ResumeTarget": "resume",
    "StartFeedback": "resume_feedback",
    "handed_target": "resume",
    "resume_target": "resume",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class or a function
    """Import a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
