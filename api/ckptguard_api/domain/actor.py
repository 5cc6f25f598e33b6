"""Who asks."""

from dataclasses import dataclass

from ckptguard.model.service import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The holder of a token, or a part of the service itself.

    Args:
        name: For the audit, e.g. `token:trainer (ckg_ab12)`, `service`.
        project_id: The only project it may touch; None: all.
        scopes: What it may do.
    """

    name: str
    project_id: int | None
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Say whether it has this scope; `admin` has all."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


SERVICE = Actor(name="service", project_id=None, scopes=frozenset({Scope.ADMIN}))
"""The service's own scheduled work."""
