"""One of the two tools of a pair, as a model reads it and a host calls it. Knows no runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from ...execution.call_context import CallContext
from .kinds import Kinds


class PairTool:
    """One of the two tools: what a model reads of it, and how it is called."""

    def __init__(
        self,
        name: str,
        describe: Callable[[Any], str],
        input_schema: dict[str, Any],
        run: Callable[..., Coroutine[Any, Any, Any]],
        kinds: Kinds,
        run_sync: Callable[[Coroutine[Any, Any, Any]], Any],
    ) -> None:
        self.name = name
        self._kinds = kinds
        self._describe = describe
        self._input_schema = input_schema
        self._run = run
        self._run_sync = run_sync

    def __repr__(self) -> str:
        return f"<PairTool {self.name!r}>"

    @property
    def description(self) -> str:
        """What the model reads."""
        return self._describe(None)

    def describe(self, context: Any) -> str:
        """Return what the model reads where prompts of namespaces are functions of a context, as `execute` gets it."""
        return self._describe(context)

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the input."""
        return {**self._input_schema, "properties": {**self._input_schema["properties"]}}

    @property
    def metadata(self) -> dict[str, str]:
        """What tells this tool from another one of its name: ``toolKind``, and ``toolInputKind`` as far as it is fixed.

        A framework's plugin puts it into the metadata of its tool.
        """
        return self._kinds.fixed()

    def metadata_of(self, input: Any) -> dict[str, str]:  # noqa: A002 - the name that every framework uses
        """Return `metadata` of one call: ``toolInputKind`` is the language that its input says, when there is one."""
        return self._kinds.of_call(input)

    async def execute(self, program: str | Mapping[str, Any], call: CallContext | None = None) -> Any:
        """Return a result, plain JSON, or an `Interrupt` when the program waits for a person.

        ``program`` is ``{code, language?}`` for exec, ``{runId}`` for wait, or the code or the run id itself. A result
        has ``status`` "completed" (with ``value``), "waiting" (``runId``, ``reason`` "yield" or "pending_tools",
        ``pendingToolCalls``) or "failed" (``error``, a text, and ``code``), and with each ``telemetry``, and ``output``
        where something new was written. Runs belong to the ``conversation_id`` of ``call``: no other conversation can
        continue them. The same ``tool_call_id`` again in the same conversation, with the same input, gives the recorded
        result. Raises nothing that belongs to the program or to the host; only `asyncio.CancelledError`.
        """
        return await self._run(self._input(program), call)

    def execute_sync(self, program: str | Mapping[str, Any], call: CallContext | None = None) -> Any:
        """Do what `execute` does, from code that is not async: on a loop of the pair's own, where runs go on.

        Tools and sessions that belong to another event loop are called on that one with `execute` alone. Raises
        `RuntimeError` inside a workflow of Temporal.
        """
        return self._run_sync(self.execute(program, call))

    def _input(self, program: str | Mapping[str, Any]) -> Mapping[str, Any]:
        return {next(iter(self._input_schema["properties"])): program} if isinstance(program, str) else program
