"""One call of a tool that runs others, by the model, as the surface behind it performs it. Knows no checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from codemode import CallContext, Content, Interrupt
from codemode.plugins import PreparedTool


class OuterCall(Protocol):
    """What is performed."""

    @property
    def name(self) -> str:
        """The name of the tool that the model called."""
        ...

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What the model called it with."""
        ...

    @property
    def program(self) -> str:
        """The program among the arguments; nothing where there is none."""
        ...

    @property
    def is_journaled(self) -> bool:
        """True where its nested calls are kept in a journal."""
        ...

    @property
    def goes_on(self) -> bool:
        """True where it goes on with a program that an earlier call has begun."""
        ...

    def tool_named(self, name: str) -> PreparedTool | None:
        """Return an inner tool, as it is now."""
        ...

    def shown_name(self, name: str) -> str:
        """Return what people know a tool by that programs call by this name."""
        ...

    def start(self, call: CallContext) -> Any:
        """Return the answer, or the `Interrupt` of a pause; it may block."""
        ...

    async def astart(self, call: CallContext) -> Any:
        """Do the same without blocking."""
        ...

    def go_on(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        """Go on with a pause. Returns as `start` does."""
        ...

    async def ago_on(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        """Do the same without blocking."""
        ...

    def shown(self, answer: Any, tool_call_id: str) -> tuple[Any, list[Content]]:
        """Return what the model is given for an answer: plain JSON, and the images, audio and files beside it."""
        ...
