"""Which tools one step of an agent showed its model: their names in the agent's state, so that a later process knows.

Tools that other middleware made for one step are known by name there, and in this process as they were.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, NotRequired, cast

from langchain.agents.middleware.types import AgentState, PrivateStateAttr
from langchain_core.tools import BaseTool
from typing_extensions import TypedDict

from codemode.plugins import forkable_lock

from .channels import graph_state
from .graph_state import SHOWN, merged, newest

_MAX_STEPS = 256


class Shown(TypedDict):
    """One step: the names that programs may call, and those of tools that the model may call by itself."""

    step: str
    programs: list[str]
    native: list[str]


class CodeModeState(AgentState[Any]):
    """The agent's state with what programs need of it, which no input and no output has.

    What its last step showed, what programs have left, how often their calls called which tools where limits have not
    counted that yet, by the ids of the calls that ran them, and what is said where a limit has ended the run.
    """

    code_mode_shown: NotRequired[Annotated[Shown, PrivateStateAttr]]
    code_mode_state: NotRequired[Annotated[dict[str, str | None], PrivateStateAttr, merged]]
    code_mode_calls: NotRequired[Annotated[dict[str, Any], PrivateStateAttr, merged]]
    code_mode_end: NotRequired[Annotated[str | None, PrivateStateAttr, newest]]


class ShownTools:
    """Remembers for each step what its model was shown, and those tools that its agent does not have."""

    def __init__(self) -> None:
        self._steps: OrderedDict[str, dict[str, BaseTool]] = OrderedDict()
        self._lock = forkable_lock()

    def note(
        self, programs: Sequence[BaseTool], native: Sequence[Any], registered: Collection[str]
    ) -> dict[str, Shown]:
        """Return the update of the agent's state for a step that shows these tools.

        ``registered`` are the names of the agent's own, which it brings along when they are called.
        """
        step = secrets.token_hex(8)
        made = {one.name: one for one in programs if one.name not in registered}
        with self._lock:
            if made:
                self._steps[step] = made
            while len(self._steps) > _MAX_STEPS:
                self._steps.popitem(last=False)
        names = [name for one in native if (name := name_of(one)) is not None]
        return {SHOWN: Shown(step=step, programs=[one.name for one in programs], native=names)}

    def callable_tools(self, request: Any, registered: Mapping[str, BaseTool]) -> list[BaseTool]:
        """Return the tools that a program of the last step may call; all that are registered when nothing was shown.

        A registered tool goes before one of the same name that was made for the step, as everywhere in an agent.
        """
        shown = shown_to(request)
        if shown is None:
            return list(registered.values())
        with self._lock:
            made = self._steps.get(shown["step"], {})
        tools = {**made, **registered}
        return [tools[name] for name in shown["programs"] if name in tools]


def shown_to(request: Any) -> Shown | None:
    """Return what the last step of an agent showed before a call, None where no step came before."""
    state = graph_state(request.runtime.config, request.state)
    return cast("Any", state).get(SHOWN) if isinstance(state, Mapping) else getattr(state, SHOWN, None)


def name_of(one: Any) -> str | None:
    """Return the name of a tool, or of one that a provider describes as a mapping."""
    if not isinstance(one, Mapping):
        return getattr(one, "name", None) or getattr(one, "__name__", None)
    described = cast("Mapping[str, Any]", one)
    function = described.get("function")
    name = described.get("name", cast("Any", function).get("name") if isinstance(function, Mapping) else None)
    return name if isinstance(name, str) else None
