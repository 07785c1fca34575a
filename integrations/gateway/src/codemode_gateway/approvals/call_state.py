"""The state of one client call across its retries: how the client can be asked, and the sealed `requestState`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from codemode.continuations.sealing import pack, unpack
from codemode.data.json_shape import weigh
from codemode.data.json_values import canonical_json, decode_json
from codemode.data.narrowing import is_object, mapping_or_empty
from codemode.errors import CodeModeProtocolError
from codemode.host.clock import now_ms
from codemode.host.threads import run_check
from codemode.interrupts.interrupt import Interrupt
from codemode.options.parts import ContinuationOptions
from codemode.stores.records import Record

from ..gateway.principals import Principal
from ..upstreams.hooks import CallOrigin

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


Pause = Interrupt | Record
"""What waits: in the hands of the call, or in the store."""
Before = Mapping[str, Mapping[str, Any]]
"""What is known of requests beside their pause, by id: ``definition``, ``problem``, ``tries``."""


@dataclass
class Leg:
    """One request of a client, and the call that it belongs to. ``pause`` counts the questions of the call, from 1.

    ``code`` is what was sent, for people to read a line of. ``has_page``: the client was shown where people decide.
    ``is_new``: the program has begun in this request, and nobody was asked yet.
    """

    ctx: Any
    facts: ClientFacts
    arguments: Mapping[str, Any]
    origin: CallOrigin
    code: str = ""
    pause: int = 1
    said: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    has_page: bool = False
    is_new: bool = False

    def state(self, going_on: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the next request of this call needs to know."""
        return {"pause": self.pause, "said": self.said, "page": self.has_page, **going_on}

    def take(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of the request before."""
        pause = state.get("pause")
        self.pause = pause + 1 if type(pause) is int else 1
        self.has_page = state.get("page") is True
        self.said = {key: dict(mapping_or_empty(one)) for key, one in mapping_or_empty(state.get("said")).items()}

    def note(self, interrupt_id: str, **said: Any) -> None:
        """Keep what is known of one request."""
        self.said.setdefault(interrupt_id, {}).update(said)

    def keep(self, interrupt_ids: Iterable[str]) -> None:
        """Forget what was said of requests that wait no longer."""
        open_ids = set(interrupt_ids)
        self.said = {key: one for key, one in self.said.items() if key in open_ids}


# What comes back is hostile: nothing of it is read before its signature is known to be right, and that one does not fit
# another principal, another program or other keys.

MAX_STATE_CHARACTERS = 256 << 10
"""A longer one stays in the store, and only its name goes to the client."""
_ENOUGH = 1 << 20


class SealedState:
    """Seals what a call goes on from, and opens it, for one principal, with the keys of continuations."""

    def __init__(self, options: ContinuationOptions, principal: Principal) -> None:
        self._options = replace(options, seal=True, compress=True)
        self._principal = principal

    async def sealed(self, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
        """Return the text of a state, for a call with these arguments."""

        def seal() -> str:
            packed = pack([json.dumps(state)], self._options, now_ms(), self._binding(arguments))
            return _written(packed)

        return await run_check(weigh(state, _ENOUGH), seal)

    async def opened(self, text: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state in a text. Raises `CodeModeProtocolError` for one that this gateway did not make for this.

        This principal, this program, and these keys.
        """
        if len(text) > MAX_STATE_CHARACTERS:
            raise CodeModeProtocolError("the request state is longer than any of this gateway")
        return await run_check(len(text), lambda: self._open(text, arguments))

    def _open(self, text: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            packed = decode_json(text)
        except ValueError as error:
            raise CodeModeProtocolError("the request state is none of this gateway") from error
        # One state is one text: whatever was changed in it is refused.
        if not is_object(packed) or _written(packed) != text:
            raise CodeModeProtocolError("the request state is none of this gateway")
        texts, _ = unpack(packed, self._options, now_ms(), self._binding(arguments))
        state = decode_json("".join(texts))
        if not is_object(state):
            raise CodeModeProtocolError("the request state is none of this gateway")
        return state

    def _binding(self, arguments: Mapping[str, Any]) -> str:
        asked = {name: arguments.get(name) for name in ("code", "resume")}
        said = canonical_json(["request state", self._principal.id, asked])
        return "request state " + hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()


def _written(packed: Mapping[str, Any]) -> str:
    return json.dumps(packed, separators=(",", ":"))
