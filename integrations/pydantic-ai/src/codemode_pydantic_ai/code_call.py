"""CodeCall surface: meta-tools that search, describe and run other tools."""

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

from .conversion import CompiledToolCache
from .error_mapping import ErrorStyle
from .surface_toolset import SurfaceToolset
from .surfaces import (
    ModelTools,
    Surface,
    SurfaceTool,
    make_agent_options,
    make_code_argument_metadata,
    reject_approval_callback,
)

ScriptContext: TypeAlias = Callable[[RunContext[Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]

_ARGUMENTS = TypeAdapter(dict[str, Any])


class CodeCallFields(TypedDict, total=False):
    """The fields of `CodeCallOptions`; see there."""

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


def make_code_call_options(
    options: CodeCallOptions | Mapping[str, Any] | None,
    fields: Mapping[str, Any],
    pool: WorkerPool | None,
    store: StoreLike | None = None,
) -> CodeCallOptions:
    """Return the options with an agent's defaults. Raises `ValueError` with the path of an invalid option."""
    base = CodeCallOptions.of(_convert_embedder_option(options) if isinstance(options, Mapping) else options)
    # Neither OpenAI nor Anthropic accepts a dot or a colon in the name of a tool.
    call_options = (
        CodeCallOptions.of(_convert_embedder_option(fields)).with_fallback(base).with_defaults(names="underscore")
    )
    reject_approval_callback(call_options.settings)
    return call_options.with_changes(settings=make_agent_options(call_options.settings, pool, store=store))


def _convert_embedder_option(options: Mapping[str, Any]) -> Mapping[str, Any]:
    search: Any = options.get("search")
    if not isinstance(search, Mapping):
        return options
    search_options = cast("Mapping[str, Any]", search)
    embed = search_options.get("embed")
    if not isinstance(embed, Embedder):
        return options
    return {**options, "search": {**search_options, "embed": _make_embed_function(embed)}}


def _make_embed_function(embedder: Embedder) -> Callable[[list[str]], Awaitable[Any]]:
    async def embed(texts: list[str]) -> Any:
        return (await embedder.embed_documents(texts)).embeddings

    return embed


class CodeCallSurface:
    """The meta-tools over the tools of a step."""

    title = "CodeCall"
    continues_across_calls = False
    error_style = ErrorStyle(denied_code="APPROVAL_DENIED", invalid_input_code="VALIDATION", omits_details=True)

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
        self.options = make_code_call_options(options, fields, pool, store)
        self.settings = self.options.settings
        self._script_context = script_context
        self._empty_toolset = create_code_call_tools([], self.options, pool=pool, library=library)
        self._compiled = CompiledToolCache[CoreToolset](self._make_toolset)

    def _make_toolset(self, tools: Mapping[str, codemode.Tool], newest: CoreToolset | None) -> CoreToolset:
        # Reuses the search index and embeddings of earlier steps.
        return (newest or self._empty_toolset).with_tools(list(tools.values()))

    async def build_tools(self, program_tools: Mapping[str, ToolsetTool[Any]]) -> ModelTools:
        """Return the meta-tools, and the names of tools that stay visible to the model."""
        toolset = await self._compiled.get_or_compile(program_tools)
        listed_names = {tool.name for tool in toolset.list_tools()}
        return ModelTools(
            surface_tools=tuple(self._make_surface_tool(toolset, tool) for tool in toolset.tools),
            visible_names=listed_names & program_tools.keys(),
        )

    def _make_surface_tool(self, toolset: CoreToolset, tool: codemode.Tool) -> SurfaceTool:
        schema: Any = tool.input_schema
        runs_script = tool.name.endswith("execute")
        definition = ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=schema,
            metadata=make_code_argument_metadata("script") if runs_script else None,
        )
        return SurfaceTool(
            kind="code_call",
            definition=definition,
            validator=_ARGUMENTS.validator,
            new_call=partial(_MetaToolCall, toolset, tool.name, self._script_context),
            makes_calls=not tool.annotations["readOnlyHint"],
        )

    def is_reserved_name(self, name: str) -> bool:
        """Return whether a name looks like that of a meta-tool."""
        return CodeCallOptions.looks_like_meta_tool_name(name)

    def rebuild_outer_call(self, opened: OpenedContinuation) -> tuple[str, dict[str, Any]]:
        """Return the call of execute or invoke that paused, without values that only the host passed."""
        prefix = self._empty_toolset.tools[0].name.removesuffix("search")
        given_arguments = opened.given or {}
        if given_arguments.get("source") == "invoke":
            request = opened.interrupt.requests[0]
            return f"{prefix}invoke", {"tool": request.tool_name, "input": request.input}
        allowed = given_arguments.get("allowedTools")
        return f"{prefix}execute", {"script": opened.js, **({} if allowed is None else {"allowedTools": allowed})}


class _MetaToolCall:
    """One call of a meta-tool."""

    def __init__(
        self, toolset: CoreToolset, name: str, script_context: ScriptContext | None, *, is_durable: bool
    ) -> None:
        self._toolset = toolset.without_journal() if is_durable else toolset
        self._name = name
        self._script_context = script_context

    def get_program_text(self, arguments: dict[str, Any]) -> str:
        return str(arguments.get("script", ""))

    async def start(self, arguments: dict[str, Any], ctx: RunContext[Any], call: CallContext) -> Any:
        context_value = None if self._script_context is None else self._script_context(ctx)
        script_context = await context_value if inspect.isawaitable(context_value) else context_value
        return await self._toolset.call(self._name, arguments, call, script_context=script_context)

    async def resume(self, interrupt: Interrupt, answers: Mapping[str, Any], call: CallContext) -> Any:
        return await self._toolset.resume(interrupt, call=call, resolutions=answers)

    def format_result(self, result: Any, tool_call_id: str) -> Any:  # noqa: ARG002 - as the other surfaces have it
        return result


@dataclass
class CodeCallToolset(SurfaceToolset[AgentDepsT]):
    """Replaces the tools of another toolset with the meta-tools of CodeCall, except those that only the model can call.

    ``options``: `CodeCallOptions` or a mapping. Other parameters are those of `CodeModeToolset`. The `CodeCall`
    capability uses this toolset; without it, a pause defers the call of the meta-tool.
    """

    store: StoreLike | None = None
    library: ProgramLibrary | None = None

    def _make_surface(self) -> Surface:
        return CodeCallSurface(self.options, self.pool, None, {}, self.store, self.library)
