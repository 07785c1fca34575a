"""Tools that are none of LangChain's, as those of MCP servers: called through an agent's handlers all the same."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.tools import BaseTool
from pydantic import PrivateAttr

from codemode import ToolCallContext
from codemode.plugins import PreparedTool, plain_copy, same_json

INPUT = "input"  # the one argument of a call whose input is no object


@dataclass(eq=False)
class ForeignArguments:
    """The input of one call: ``value`` is what the tool gets, ``shown`` what everybody else does. See `Arguments`."""

    tool: PreparedTool
    value: Any
    shown: dict[str, Any]

    @classmethod
    def of(cls, tool: PreparedTool, value: Any) -> ForeignArguments:
        """Return the arguments of a call with this validated input."""
        from pydantic_core import to_jsonable_python

        plain: Any = to_jsonable_python(value, fallback=repr)
        is_object = isinstance(plain, Mapping)
        return cls(tool, value, dict(cast("Any", plain)) if is_object else {INPUT: plain})

    @property
    def schema(self) -> ForeignArguments:
        """What reads them."""
        return self

    def copy(self) -> dict[str, Any]:
        """Return them as the plain arguments of a tool call."""
        return plain_copy(self.shown)

    def parsed(self, _arguments: Any, given: Any, _tool_call_id: str | None, _parse: Any) -> Any:
        """Return the input that the tool gets: middleware may have changed it. Raises `CodeModeToolError`."""
        if not same_json(given, self.shown):
            is_object = isinstance(self.value, Mapping) or INPUT not in self.shown
            validated = self.tool.validate_input(given if is_object else given.get(INPUT))
            self.value = validated.value
        return {INPUT: self.value}


class ForeignTool(BaseTool):
    """One call of such a tool, as a tool of LangChain: it runs on ``loop``, where the program lives."""

    _tool: PreparedTool = PrivateAttr()
    _context: ToolCallContext = PrivateAttr()
    _loop: asyncio.AbstractEventLoop = PrivateAttr()

    def __init__(self, tool: PreparedTool, name: str, context: ToolCallContext) -> None:
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        super().__init__(name=name, description=tool.description or name, args_schema=schema)
        self._tool = tool
        self._context = context
        self._loop = asyncio.get_running_loop()

    def _run(self, /, **given: Any) -> Any:
        if self._tool.execute_kind in ("async", "async_iterator"):
            return asyncio.run_coroutine_threadsafe(self._called(given[INPUT]), self._loop).result()
        return self._tool.call(given[INPUT], self._context)

    async def _arun(self, /, **given: Any) -> Any:
        if self._tool.execute_kind in ("async", "async_iterator"):
            return await self._called(given[INPUT])
        found = await asyncio.to_thread(self._tool.call, given[INPUT], self._context)
        return await found if inspect.isawaitable(found) else found

    async def _called(self, value: Any) -> Any:
        found = self._tool.call(value, self._context)
        if inspect.isawaitable(found):
            return await found
        last: Any = None
        async for last in found:  # noqa: B007 - the last item is what is wanted
            pass
        return last
