"""One call of a client as it goes on: who calls, what is asked, what was said before. Asks nobody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from codemode.data.narrowing import mapping_or_empty
from codemode.interrupts.interrupt import Interrupt
from codemode.stores.records import Record

from ..upstreams.origins import CallOrigin
from .ways import ClientFacts

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
