"""How a person is asked, best way first: one rule, over what is known of the client. Asks nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Way = Literal["retry", "session", "store"]
"""By `InputRequiredResult` and a second call; within the session; by the store, where people decide elsewhere."""

FIRST_IN_STORE = 8
"""From this pause of one call on people decide elsewhere: clients end a chain of retries after about ten rounds."""


@dataclass(frozen=True)
class ClientFacts:
    """What is known of a client. ``is_modern`` is protocol 2026-07-28; ``form`` and ``url`` are how it can be asked.

    ``has_channel``: a request can be sent to it now. ``by_console``: the operator says that it is not to be asked.
    ``has_session``: what holds for its session ends with it; a request that stands for itself over HTTP has none.
    """

    is_modern: bool
    form: bool
    url: bool
    has_channel: bool
    by_console: bool = False
    has_session: bool = True


def facts_of(ctx: Any, *, by_console: bool = False) -> ClientFacts:
    """Return what is known of the client of a request, ``ctx`` being the SDK's ``ServerRequestContext``."""
    capabilities = ctx.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    url = elicitation is not None and elicitation.url is not None
    # Before there were two modes a client said nothing about them.
    form = elicitation is not None and (elicitation.form is not None or not url)
    is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    # A pipe is one client's; over HTTP nothing but a session tells one client of a user from the others.
    has_session = not is_modern or getattr(ctx, "request", None) is None
    return ClientFacts(is_modern, form, url, ctx.session.can_send_request, by_console, has_session)


def way_of(facts: ClientFacts, pause: int, *, needs: Literal["form", "url"] = "form") -> Way:
    """Return how a person is asked in the n-th ``pause`` of one call, counted from 1."""
    can_show = facts.form if needs == "form" else facts.url
    if facts.by_console or not can_show or pause >= FIRST_IN_STORE:
        return "store"
    if facts.is_modern:
        return "retry"
    return "session" if facts.has_channel else "store"
