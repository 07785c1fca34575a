"""What programs leave for each other, in the state of the graph. Knows no program.

The graph takes updates when a node has ended: until then a program reads its own writes, and what a pause interrupts is
written again from its ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from codemode.plugins import LatePlace

SHOWN = "code_mode_shown"
_KEY = "code_mode_state"


def merged(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with what was written; None has deleted one. The reducer of the channel: the last write wins."""
    return {key: value for key, value in {**left, **right}.items() if value is not None}


def newest(_left: Any, right: Any) -> Any:
    """Return the newest value, of calls that end at the same time too."""
    return right


def in_graph(_conversation_id: str | None) -> None:
    """Stand for the graph's own state among the options: it is there with each call, and nowhere else."""


def place_in(state: Any, tool_call_id: str) -> LatePlace:
    """Return where a program reads and writes that a call of the model runs, whose graph has this state."""
    given: dict[str, Any] = {**cast("Mapping[str, Any]", state)} if isinstance(state, Mapping) else {}
    kept = cast("Mapping[str, Any]", given.get(_KEY) or {})
    texts = {key: value for key, value in kept.items() if isinstance(value, str)}
    # Calls of one step all begin with the same state: what each adds must have a number of its own.
    return LatePlace(texts, ahead=_place_among(given.get("messages"), tool_call_id))


def _place_among(messages: Any, tool_call_id: str) -> int:
    for message in reversed(cast("Sequence[Any]", messages) if isinstance(messages, list) else ()):
        ids = [call.get("id") for call in getattr(message, "tool_calls", None) or ()]
        if tool_call_id in ids:
            return ids.index(tool_call_id)
    return 0


def left_by(call: Any) -> tuple[Any, ...]:
    """Return what the graph is to keep of the writes of a call's program, where it has a ``place``: one command."""
    place = getattr(call, "place", None)
    if not isinstance(place, LatePlace) or not place.updates:
        return ()
    from langgraph.types import Command  # without a graph there is no such place

    return (Command(update={_KEY: dict(place.updates)}),)
