"""What whoever embeds a gateway decides about it, beside its configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..config.own_entry import COMMAND

if TYPE_CHECKING:
    from mcp.server.auth.provider import TokenVerifier

    from codemode.stores.interrupt_store import InterruptStore
    from codemode.workers.pool import WorkerPool


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """Options of a `Gateway`.

    ``store`` takes the place of the one that the configuration names; whoever gives one closes it. ``pool`` runs the
    programs, None is the process-wide one. ``over_http`` says how it will be served, which decides about the journal
    and about what is learnt where the configuration does not. ``verifier``, the SDK's ``TokenVerifier``, says over HTTP
    whose a token is. ``open_browser`` gets the URL of a
    sign-in where a person is at this machine, ``callback_url`` is where their browser comes back to. ``command`` is
    what a user's terminal reaches this gateway with, for a shell: what a model is to tell them begins with it.
    ``servers`` are for tests: they take the place of all that the configuration names.
    """

    store: InterruptStore | None = None
    pool: WorkerPool | None = None
    over_http: bool = False
    verifier: TokenVerifier | None = None
    open_browser: Callable[[str], object] | None = None
    callback_url: str | None = None
    command: str = COMMAND
    servers: Sequence[Any] | None = None
