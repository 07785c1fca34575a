"""Who shares a connection: everybody, the connections of one user, or one session. Connects nothing."""

from __future__ import annotations

from dataclasses import dataclass

from ..config.values import ServerConfig
from .principals import LOCAL, Principal


@dataclass(frozen=True)
class Scope:
    """Those who share one connection: all for whom `includes` is true. No name of a user is that of all."""

    principal_id: str | None = None
    session: str | None = None

    @property
    def owner(self) -> str:
        """The id under which caches and sign-ins of the connection are kept: the operator's where all share it."""
        return LOCAL.id if self.principal_id is None else self.principal_id

    def is_of_user(self, principal: Principal) -> bool:
        """Tell whether what a server says by itself is about nobody else. A gateway without sign-in has one user."""
        return self.principal_id is not None or principal.id == LOCAL.id

    def includes(self, principal: Principal) -> bool:
        """Tell whether a principal is one of them."""
        if self.principal_id not in (None, principal.id):
            return False
        return self.session in (None, principal.session)


def scope_of(server: ServerConfig, principal: Principal) -> Scope:
    """Return with whom a principal shares the connection to a server."""
    match server.sharing or "user":
        case "shared":
            return Scope()
        case "user":
            return Scope(principal.id)
        case _:
            return Scope(principal.id, principal.session)
