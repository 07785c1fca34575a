"""Capabilities that replace an agent's tools with those of a surface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import WrapRunHandler
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import AgentDepsT
from pydantic_ai.toolsets import AbstractToolset
from typing_extensions import Unpack

from codemode import CodeCallOptions, CodeModeOptions, ExecWaitOptions, NamespaceRegistry, ProgramLibrary, WorkerPool
from codemode.plugins import Listing
from codemode.stores import StoreLike, open_store

from .code_call import CodeCallFields, CodeCallSurface, ScriptContext
from .code_mode import CodeModeSurface, OptionsLike
from .exec_wait import ExecWaitConfig, ExecWaitSurface, ExecWaitToolset, make_exec_wait_options
from .surface_capability import SurfaceCapability
from .surfaces import MAX_RETRIES, ProgramToolSelector, ToolSelector, require_valid_selectors_and_retries

_TOOL_SEARCH = "tool_search"


@dataclass(init=False)
class ToolCheckedModel(WrapperModel):
    """A model that refuses requests with other tools than allowed.

    ``get_allowed_names`` returns the tool names, or None to allow any.
    """

    def __init__(self, wrapped: Model, get_allowed_names: Callable[[], frozenset[str] | None]) -> None:
        super().__init__(wrapped)
        self._get_allowed_names = get_allowed_names

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make a request. Raises `UserError` if its tools differ from the allowed ones."""
        require_exact_tools(model_request_parameters, self._get_allowed_names())
        return await super().request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse, None]:
        """Make a streamed request. Raises as `request` does."""
        require_exact_tools(model_request_parameters, self._get_allowed_names())
        async with super().request_stream(messages, model_settings, model_request_parameters, run_context) as response:
            yield response


def require_exact_tools(parameters: ModelRequestParameters, allowed_names: frozenset[str] | None) -> None:
    """Raise `UserError` unless the request has exactly these tools, except output tools."""
    if allowed_names is None:
        return
    has_tool_search = any(tool.with_native == _TOOL_SEARCH for tool in parameters.function_tools)
    native_names = {tool.kind for tool in parameters.native_tools if has_tool_search or tool.kind != _TOOL_SEARCH}
    offered_names = {tool.name for tool in parameters.function_tools} | native_names
    added, missing = sorted(offered_names - allowed_names), sorted(allowed_names - offered_names)
    if not added and not missing:
        return
    problems = [f"{', '.join(map(repr, added))} would be added"] if added else []
    problems += [f"{', '.join(map(repr, missing))} would be missing"] if missing else []
    raise UserError(
        f"The model must get exactly {', '.join(sorted(allowed_names))}, but {', and '.join(problems)}. Name tools that"
        " the model calls directly in `direct`; other capabilities must not add or remove tools."
    )


@dataclass
class CodeMode(SurfaceCapability[AgentDepsT]):
    """Lets the model write programs over the agent's tools instead of calling them one by one.

    ``options``: `CodeModeOptions` or a mapping. ``keep``: tools that the model calls directly; ``tools``: tools that
    programs call. Each is a collection of names, a mapping that a tool's metadata must contain, or
    ``(ctx, definition) -> bool``, sync or async; ``tools`` may be "all". A tool in both is called both ways, one in
    neither directly; without ``tools`` programs call all tools not in ``keep``. A name that matches no tool ends the
    first run with a `UserError`. ``max_retries``: how often the model may correct a failed program. ``pool``: the
    `WorkerPool` that runs programs, such as a tenant's share; default is the process-wide pool. ``listing``:
    ``execution_policy.listing``. Continuations are always sealed and expire after ``continuation.max_age_ms`` (default
    one week). ``store``: as in `codemode.create_code_mode_tool`; any process with the key and the messages can resume,
    and only one does. ``library``: saved programs, as there; for an agent with several users, its ``owner`` is a
    function of the call, whose ``context.run_context.deps`` are the run's deps.

    Raises `ValueError` for invalid options.
    """

    options: OptionsLike = None
    tools: ProgramToolSelector | None = None
    listing: Listing | None = None
    store: StoreLike | None = None
    library: ProgramLibrary | None = None

    def __post_init__(self) -> None:
        """Validate the options at creation."""
        require_valid_selectors_and_retries(self.keep, self.max_retries, self.tools)
        self.store = None if self.store is None else open_store(self.store)
        self._surface = CodeModeSurface(self.options, self.pool, self.listing, self.store, self.library)
        self.options = self._surface.settings

    @property
    def _program_tool_selector(self) -> ProgramToolSelector | None:
        return self.tools


@dataclass(init=False)
class CodeCall(SurfaceCapability[AgentDepsT]):
    """Lets the model search the agent's tools, read definitions of matches, and call them from scripts.

    ``options``: `CodeCallOptions` or a mapping; fields may also be passed as keyword arguments, such as
    ``direct_calls=``, which take precedence. The meta-tools are named ``codecall_search`` etc. unless ``names`` changes
    that. ``search={"embed": ...}`` also accepts a pydantic-ai `Embedder`. A tool's CodeCall metadata is its
    ``metadata["codecall"]``. ``script_context``: ``(ctx: RunContext) -> mapping``, sync or async, which scripts read as
    ``codecallContext``. ``keep``, ``max_retries``, ``pool``, ``store`` and ``library`` are those of `CodeMode`. A
    failed script is a result and uses no retry.
    """

    options: CodeCallOptions  # pyright: ignore[reportGeneralTypeIssues] - the base's default is for its own __init__
    script_context: ScriptContext | None

    def __init__(
        self,
        options: CodeCallOptions | Mapping[str, Any] | None = None,
        keep: ToolSelector = (),
        max_retries: int = MAX_RETRIES,
        pool: WorkerPool | None = None,
        *,
        script_context: ScriptContext | None = None,
        store: StoreLike | None = None,
        library: ProgramLibrary | None = None,
        id: str | None = None,  # noqa: A002 - these three are every capability's
        description: str | None = None,
        defer_loading: bool = False,
        **fields: Unpack[CodeCallFields],
    ) -> None:
        require_valid_selectors_and_retries(keep, max_retries)
        super().__init__(id=id, description=description, defer_loading=defer_loading)
        self._surface = surface = CodeCallSurface(options, pool, script_context, fields, store, library)
        self.options, self.keep, self.max_retries, self.pool = surface.options, keep, max_retries, pool
        self.script_context = script_context


@dataclass(init=False)
class ExecWait(SurfaceCapability[AgentDepsT]):
    """Replaces the tools with ``exec``, which runs programs over a catalog of tools, and ``wait``, which continues one.

    The catalog contains the agent's tools and those of ``sources``: a `ToolSource`, several, or tools. ``direct``:
    tools, or names of tools, that the model calls directly. ``options``: `ExecWaitOptions`, a mapping, True or False,
    or a whole configuration with ``tools.codeMode``; ``enabled: False`` turns the capability off. The other parameters
    are those of `codemode.create_exec_wait_tools`. A program belongs to its conversation. When a run of the agent ends,
    its programs with calls in flight are aborted.

    Raises `ValueError` for invalid options.
    """

    options: ExecWaitOptions  # pyright: ignore[reportGeneralTypeIssues] - the base's default is for its own __init__
    direct: tuple[str, ...]

    def __init__(
        self,
        sources: Any = (),
        direct: Iterable[Any] = (),
        options: ExecWaitOptions | Mapping[str, Any] | bool | None = None,
        *,
        settings: CodeModeOptions | Mapping[str, Any] | None = None,
        namespaces: NamespaceRegistry | None = None,
        pool: WorkerPool | None = None,
        store: StoreLike | None = None,
        tenant: str | None = None,
        app: str | None = None,
        library: ProgramLibrary | None = None,
        id: str | None = None,  # noqa: A002 - these three are every capability's
        description: str | None = None,
        defer_loading: bool = False,
    ) -> None:
        if defer_loading:
            raise ValueError("defer_loading cannot be used with ExecWait: exec and wait replace all other tools")
        super().__init__(id=id, description=description, defer_loading=defer_loading)
        opened_store = None if store is None else open_store(store)
        config_fields: dict[str, Any] = {"settings": settings, "namespaces": namespaces, "store": opened_store}
        config_fields |= {"tenant": tenant, "app": app, "library": library}
        config = ExecWaitConfig(options=make_exec_wait_options(options), pool=pool, **config_fields)
        surface = ExecWaitSurface(config, sources, direct)
        self.options, self.direct, self.keep, self.pool = config.options, surface.direct, surface.direct, pool
        self._surface = surface if config.options.enabled else None

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT] | None:
        """Replace the agent's tools with exec and wait."""
        if self._surface is None:
            return None
        surface_fields: dict[str, Any] = {
            "surface": self._surface,
            "run_state": self._run,
            "covers_all_agent_tools": True,
        }
        return ExecWaitToolset(toolset, self.options, self.direct, self.max_retries, self.pool, **surface_fields)

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Check the tools of each request after all other capabilities."""
        return None if self._surface is None else ToolCheckedModel(model, lambda: self._run.allowed_tools)

    async def before_model_request(
        self,
        ctx: RunContext[AgentDepsT],  # noqa: ARG002 - the framework's signature
        request_context: ModelRequestContext,
    ) -> ModelRequestContext:
        """Raise the fatal error of a program's call in flight."""
        fatal_error = next(
            (program.fatal_error for program in self._run.waiting_programs.values() if program.fatal_error is not None),
            None,
        )
        if fatal_error is not None:
            raise fatal_error
        return request_context

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> Any:  # noqa: ARG002 - as above
        """Abort calls in flight when the run ends: connections that they use belong to the run."""
        try:
            return await handler()
        finally:
            finishing = [
                program.clear_error_and_abort_if_in_flight(self._run) for program in self._run.waiting_programs.values()
            ]
            # Finish even if the run is cancelled again.
            await asyncio.shield(asyncio.gather(*finishing, return_exceptions=True))

    async def aclose(self) -> None:
        """End waiting programs; release those in a store, so that other processes can continue them."""
        if isinstance(self._surface, ExecWaitSurface):
            await self._surface.aclose()
