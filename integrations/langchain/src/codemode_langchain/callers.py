"""How nested calls are made, and what limits them. Makes none itself but those of the tool alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool

from codemode import Interrupt


class CallLimits(Protocol):
    """What limits the calls of a program."""

    def admit(self, tool: str, call_id: str) -> None:
        """Count a call that is about to be made; raise for one that is too much."""
        ...

    def recall(self, calls: Mapping[str, str]) -> None:
        """Count calls that a process has made which ended in the middle: their tools, by their ids."""
        ...

    @property
    def record(self) -> dict[str, Any]:
        """What a part of the program keeps of its calls."""
        ...

    def end(self, interrupt: Interrupt) -> tuple[str, Any] | None:
        """Return what answers a program that was stopped for good, and a command; None for one that waits."""
        ...

    def counted(self, records: Sequence[Mapping[str, Any]], tool_call_id: str) -> list[Any]:
        """Return the commands that tell the graph what all parts of a program have called."""
        ...


class Caller(Protocol):
    """How one call of a tool is made, and what limits them."""

    @property
    def limits(self) -> CallLimits | None:
        """None where nothing does."""
        ...

    def may_be_answered(self) -> bool:
        """Tell whether something else may answer a call in the place of its tool."""
        ...

    def call(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """Return what LangChain makes of the call: a message, a command, or a list of them."""
        ...

    async def acall(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """Do the same without blocking."""
        ...


class DirectCaller:
    """Calls the tool itself."""

    limits = None

    def may_be_answered(self) -> bool:
        """See `Caller.may_be_answered`."""
        return False

    def call(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """See `Caller.call`."""
        return tool.invoke(call, config)

    async def acall(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """See `Caller.acall`."""
        return await tool.ainvoke(call, config)
