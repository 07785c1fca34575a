"""The tools that a model sees in place of any number of others: search, describe, execute and, if wanted, invoke."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from typing import Any

from ...cached_property import cached_property
from ...execution.call_context import CallContext
from ...host.forks import forkable_lock
from ...host.sync import run_sync
from ...host.threads import off_loop
from ...stores.durability import StoreLike
from ...tools.tool import Tool
from ...workers.pool import WorkerPool
from .description import meta_tool_as_tool
from .index import Listener, Listeners, ToolSet, change_of
from .meta_calls import MetaCalls
from .names import META_TOOLS
from .options import CodeCallOptions


class CodeCallToolset(MetaCalls):
    """A few tools over any number of them. Make it with `create_code_call_tools`. Safe to use from several threads."""

    def __init__(
        self,
        tools: Mapping[str, Any] | Iterable[Any],
        options: CodeCallOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
        store: StoreLike | None = None,
    ) -> None:
        super().__init__(tools, options, pool, store)
        self._listeners = Listeners()
        self._updating = forkable_lock()

    def __repr__(self) -> str:
        return f"<CodeCallToolset over {len(self._tools.indexed)} tools>"

    def __contains__(self, name: object) -> bool:
        """Tell whether a tool of this name is in the index: found, described and called."""
        return name in self._tools.catalog

    @property
    def version(self) -> int:
        """The number of the set of tools in use; it grows with each `update`."""
        return self._tools.version

    @cached_property
    def tools(self) -> tuple[Tool, ...]:
        """The meta-tools, for whatever takes a `Tool`. An `Interrupt` that one gives is the host's, not the model's."""
        kinds = META_TOOLS if self.options.direct_calls.enabled else META_TOOLS[:-1]
        return tuple(meta_tool_as_tool(kind, self.options, self.call) for kind in kinds)

    def list_tools(self) -> list[Tool]:
        """Return what a client is shown: the meta-tools, then the tools that stay visible."""
        return [*self.tools, *self._tools.listed()]

    def update(self, tools: Mapping[str, Any] | Iterable[Any]) -> None:
        """Put other tools in place of these. A script that runs keeps its own.

        Checking thousands of new tools takes seconds: on an event loop use `update_async`.
        Raises `ValueError` as `create_code_call_tools` does, and then nothing changes.
        """
        self._put(tools)
        self._listeners.tell()

    async def update_async(self, tools: Mapping[str, Any] | Iterable[Any]) -> None:
        """Do what `update` does, in a thread: the event loop goes on meanwhile. Listeners are called on the loop."""
        await off_loop(partial(self._put, tools))
        self._listeners.tell()

    def _put(self, tools: Mapping[str, Any] | Iterable[Any]) -> None:
        with self._updating:
            before = self._tools
            after = ToolSet.of(tools, self.options, before)
            self._tools = after
            change = change_of(before, after)
            if change is not None:
                self._listeners.note(change)

    def over(self, tools: Mapping[str, Any] | Iterable[Any]) -> CodeCallToolset:
        """Return a set with these options over other tools; this one stays as it is. What both have is indexed once.

        For hosts whose conversations see different tools. Raises `ValueError` as `create_code_call_tools` does.
        """
        own = {"_tools": ToolSet.of(tools, self.options, self._tools), "_listeners": Listeners()}
        other = copy(self)
        other.__dict__.pop("tools", None)
        other.__dict__.update(own, _updating=forkable_lock())
        return other

    def on_tools_changed(self, listener: Listener) -> Callable[[], None]:
        """Let a function hear ``{"version", "added", "removed", "changed"}`` of updates; return what ends that."""
        return self._listeners.add(listener)

    # --- the same, from code that is not async ---

    def search_sync(
        self,
        input: Mapping[str, Any],  # noqa: A002 - as above
        *,
        tool_call_id: str | None = None,
    ) -> dict[str, Any]:
        """Do what `search` does, from code that is not async."""
        return run_sync(self.search(input, tool_call_id=tool_call_id))

    def describe_sync(
        self,
        input: Mapping[str, Any],  # noqa: A002 - as above
        *,
        tool_call_id: str | None = None,
    ) -> dict[str, Any]:
        """Do what `describe` does, from code that is not async."""
        return run_sync(self.describe(input, tool_call_id=tool_call_id))

    def execute_sync(
        self,
        program: str | Mapping[str, Any],
        call: CallContext | None = None,
        *,
        script_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Do what `execute` does, from code that is not async."""
        self._start_pool()
        return run_sync(self.execute(program, call, script_context=script_context))

    def invoke_sync(
        self,
        input: Mapping[str, Any],  # noqa: A002 - as above
        call: CallContext | None = None,
    ) -> Any:
        """Do what `invoke` does, from code that is not async."""
        return run_sync(self.invoke(input, call))

    def call_sync(
        self,
        meta_name: str,
        input: Mapping[str, Any],  # noqa: A002 - as above
        call: CallContext | None = None,
        *,
        script_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Do what `call` does, from code that is not async."""
        return run_sync(self.call(meta_name, input, call, script_context=script_context))


def create_code_call_tools(
    tools: Mapping[str, Any] | Iterable[Any],
    options: CodeCallOptions | Mapping[str, Any] | None = None,
    *,
    pool: WorkerPool | None = None,
    store: StoreLike | None = None,
) -> CodeCallToolset:
    """Turn many tools into three or four: search, describe, execute and, where direct calls are enabled, invoke.

    ``tools``, ``pool`` and ``store`` are as in `create_code_mode_tool`; ``options`` are `CodeCallOptions` or a mapping.
    Raises `ValueError` for wrong options, names, schemas, metadata or pools, for what is no tool, and for a tool whose
    name looks like that of a meta-tool.
    """
    return CodeCallToolset(tools, options, pool, store)
