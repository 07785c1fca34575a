"""CodeCall as a face: a few tools that search, describe and run any number of others. Answers no approvals."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypedDict, cast

from pydantic import TypeAdapter
from pydantic_ai import Embedder, RunContext
from pydantic_ai.tools import AgentDepsT, ToolDefinition
from pydantic_ai.toolsets import ToolsetTool

import codemode
from codemode import (
    CallContext,
    CodeCallOptions,
    CodeModeOptions,
    Interrupt,
    ProgramLibrary,
    WorkerPool,
    create_code_call_tools,
)
from codemode import CodeCallToolset as CoreToolset
from codemode.plugins import OpenedContinuation
from codemode.stores import StoreLike

from .faces import Face, FaceTool, ShownTools, agent_settings, code_argument, refuse_callback
from .failures import ErrorWords
from .hidden_tools import CompiledTools
from .hiding_toolset import HidingToolset

ScriptContext: TypeAlias = Callable[[RunContext[Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]

_ARGUMENTS = TypeAdapter(dict[str, Any])


class CodeCallFields(TypedDict, total=False):
    """The fields of `CodeCallOptions`, which says what they are."""

    mode: Literal["codecall_only", "codecall_opt_in", "metadata_driven"]
    top_k: int
    max_definitions: int
    include_tools: Callable[..., bool] | None
    app_ids: Iterable[str] | None
    direct_calls: Any
    vm: Any
    sidecar: Any
    search: Any
    names: Literal["dotted", "colon", "underscore"]
    tool_errors: Literal["hidden", "message"]
    notify: Callable[..., Any] | None
    settings: CodeModeOptions | Mapping[str, Any] | None
    reserved_prefixes: Iterable[str]


def call_options(
    options: CodeCallOptions | Mapping[str, Any] | None,
    fields: Mapping[str, Any],
    pool: WorkerPool | None,
    store: StoreLike | None = None,
) -> CodeCallOptions:
    """Return the options of an agent's CodeCall. Raises `ValueError` naming the full path of what is wrong."""
    below = CodeCallOptions.of(_with_embed_function(options) if isinstance(options, Mapping) else options)
    # Neither OpenAI nor Anthropic accepts a dot or a colon in the name of a tool.
    given = CodeCallOptions.of(_with_embed_function(fields)).over(below).with_defaults(names="underscore")
    refuse_callback(given.settings)
    return given.replaced(settings=agent_settings(given.settings, pool, store=store))


def _with_embed_function(options: Mapping[str, Any]) -> Mapping[str, Any]:
    search: Any = options.get("search")
    if not isinstance(search, Mapping):
        return options
    given = cast("Mapping[str, Any]", search)
    embed = given.get("embed")
    if not isinstance(embed, Embedder):
        return options
    return {**options, "search": {**given, "embed": _embed_function(embed)}}


def _embed_function(embedder: Embedder) -> Callable[[list[str]], Awaitable[Any]]:
    async def embed(texts: list[str]) -> Any:
        return (await embedder.embed_documents(texts)).embeddings

    return embed


class CodeCallFace:
    """The meta-tools over the tools of a step."""

    title = "CodeCall"
    leaves_programs = False
    words = ErrorWords(denied="APPROVAL_DENIED", wrong_input="VALIDATION", shows_details=True)

    def __init__(
        self,
        options: CodeCallOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
        script_context: ScriptContext | None,
        fields: Mapping[str, Any],
        store: StoreLike | None = None,
        library: ProgramLibrary | None = None,
    ) -> None:
        if script_context is not None and not callable(script_context):
            raise ValueError(f"script_context must be a function, got {script_context!r}")
        self.options = call_options(options, fields, pool, store)
        self.settings = self.options.settings
        self._script_context = script_context
        self._of_no_tools = create_code_call_tools([], self.options, pool=pool, library=library)
        self._compiled = CompiledTools[CoreToolset](self._make)

    def _make(self, tools: Mapping[str, codemode.Tool], newest: CoreToolset | None) -> CoreToolset:
        # What was indexed and embedded for another step, or for another conversation, is not again.
        return (newest or self._of_no_tools).over(list(tools.values()))

    async def shown(self, hidden: Mapping[str, ToolsetTool[Any]]) -> ShownTools:
        """Return the meta-tools, and the names of the tools that are listed beside them."""
        made = await self._compiled.of(hidden)
        listed = {tool.name for tool in made.list_tools()}
        return ShownTools(own=tuple(self._own(made, tool) for tool in made.tools), visible=listed & hidden.keys())

    def _own(self, made: CoreToolset, tool: codemode.Tool) -> FaceTool:
        schema: Any = tool.input_schema
        takes_script = tool.name.endswith("execute")
        definition = ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=schema,
            metadata=code_argument("script") if takes_script else None,
        )
        return FaceTool(
            kind="code_call",
            definition=definition,
            validator=_ARGUMENTS.validator,
            new_call=partial(_MetaCall, made, tool.name, self._script_context),
            makes_calls=not tool.annotations["readOnlyHint"],
        )

    def is_taken(self, name: str) -> bool:
        """Tell whether a model might take this for a meta-tool."""
        return CodeCallOptions.is_meta_tool_name(name)

    def outer_call(self, opened: OpenedContinuation) -> tuple[str, dict[str, Any]]:
        """Return the call of execute or invoke that paused. What only the host gave it is not in it."""
        prefix = self._of_no_tools.tools[0].name.removesuffix("search")
        given = opened.given or {}
        if given.get("source") == "invoke":
            request = opened.interrupt.requests[0]
            return f"{prefix}invoke", {"tool": request.tool_name, "input": request.input}
        allowed = given.get("allowedTools")
        return f"{prefix}execute", {"script": opened.js, **({} if allowed is None else {"allowedTools": allowed})}


class _MetaCall:
    """One call of a meta-tool."""

    def __init__(
        self, made: CoreToolset, name: str, script_context: ScriptContext | None, *, is_repeated: bool
    ) -> None:
        self._made = made.without_journal() if is_repeated else made
        self._name = name
        self._script_context = script_context

    def text(self, arguments: dict[str, Any]) -> str:
        return str(arguments.get("script", ""))

    async def begin(self, arguments: dict[str, Any], ctx: RunContext[Any], call: CallContext) -> Any:
        given = None if self._script_context is None else self._script_context(ctx)
        script_context = await given if inspect.isawaitable(given) else given
        return await self._made.call(self._name, arguments, call, script_context=script_context)

    async def go_on(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        return await self._made.resume(interrupt, call=call, resolutions=answers)

    def shown(self, answer: Any, tool_call_id: str) -> Any:  # noqa: ARG002 - as the other faces have it
        return answer


@dataclass
class CodeCallToolset(HidingToolset[AgentDepsT]):
    """Replaces the tools of another toolset with the meta-tools of CodeCall, except those that must stay native.

    ``options``: `CodeCallOptions` or a mapping. The rest is as `CodeModeToolset` has it. The `CodeCall` capability uses
    it; without that, a pause defers the call of the meta-tool itself.
    """

    store: StoreLike | None = None
    library: ProgramLibrary | None = None

    def _own_face(self) -> Face:
        return CodeCallFace(self.options, self.pool, None, {}, self.store, self.library)
