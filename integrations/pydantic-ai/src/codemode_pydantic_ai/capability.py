"""The capabilities: the tools of a surface in place of an agent's own."""

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
from .surfaces import MAX_RETRIES, ProgramToolSelector, ToolSelector, check_options

_TOOL_SEARCH = "tool_search"


@dataclass(init=False)
class ToolCheckedModel(WrapperModel):
    """A model that is offered exactly certain tools, or not asked. ``offered`` gives their names, or None for any."""

    def __init__(self, wrapped: Model, get_allowed_names: Callable[[], frozenset[str] | None]) -> None:
        super().__init__(wrapped)
        self._get_allowed_names = get_allowed_names

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make a request. Raises `UserError` for one that offers something else."""
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
        """Make a request whose response is streamed. Raises as `request` does."""
        require_exact_tools(model_request_parameters, self._get_allowed_names())
        async with super().request_stream(messages, model_settings, model_request_parameters, run_context) as response:
            yield response


def require_exact_tools(parameters: ModelRequestParameters, allowed_names: frozenset[str] | None) -> None:
    """Raise `UserError` unless exactly these tools are offered, beside those that take the run's output."""
    if allowed_names is None:
        return
    has_tool_search = any(tool.with_native == _TOOL_SEARCH for tool in parameters.function_tools)
    native_names = {tool.kind for tool in parameters.native_tools if has_tool_search or tool.kind != _TOOL_SEARCH}
    offered_names = {tool.name for tool in parameters.function_tools} | native_names
    added, missing = sorted(offered_names - allowed_names), sorted(allowed_names - offered_names)
    if not added and not missing:
        return
    problems = [f"{', '.join(map(repr, added))} would be offered too"] if added else []
    problems += [f"{', '.join(map(repr, missing))} would be missing"] if missing else []
    raise UserError(
        f"The model is to be offered exactly {', '.join(sorted(allowed_names))}: {', and '.join(problems)}. What the"
        " model calls"
        " itself is named in `direct`; what other capabilities add to a request, or take from it, is none of that."
    )


@dataclass
class CodeMode(SurfaceCapability[AgentDepsT]):
    """Lets the model write programs over the agent's tools instead of calling them one by one.

    ``options``: `CodeModeOptions` or a mapping. ``keep``: tools that the model goes on calling directly, ``tools``
    those that programs call: names, a mapping that a tool's metadata must hold, or ``(ctx, definition) -> bool``, sync
    or async; "all" for ``tools`` alone. One in both is called both ways, one in neither directly; without ``tools``
    programs call all that are not kept. A name that fits no tool ends the first run with a `UserError`.
    ``max_retries``: how often the model may correct a program that failed. ``pool``: the `WorkerPool` that runs the
    programs, such as a tenant's share; without one they wait for workers of the process-wide pool. ``listing``:
    ``execution_policy.listing``, what the model is told of the tools. Continuations are always sealed, and hold for a
    week unless ``continuation.max_age_ms`` says otherwise. ``store`` is as in `codemode.create_code_mode_tool`: any
    process that has the key and the messages resumes, and only one does. ``library``: saved programs, as there; of an
    agent of several users its ``owner`` is a function of the call, whose ``context.run_context.deps`` are the run's.
    Raises `ValueError` for what means nothing.
    """

    options: OptionsLike = None
    tools: ProgramToolSelector | None = None
    listing: Listing | None = None
    store: StoreLike | None = None
    library: ProgramLibrary | None = None

    def __post_init__(self) -> None:
        """Check the options now, not in the first run."""
        check_options(self.keep, self.max_retries, self.tools)
        self.store = None if self.store is None else open_store(self.store)
        self._surface = CodeModeSurface(self.options, self.pool, self.listing, self.store, self.library)
        self.options = self._surface.settings

    @property
    def _program_tools(self) -> ProgramToolSelector | None:
        return self.tools


@dataclass(init=False)
class CodeCall(SurfaceCapability[AgentDepsT]):
    """Lets the model search the agent's tools, read the definitions of those that fit, and call them from scripts.

    ``options``: `CodeCallOptions` or a mapping; its fields may also be given by name, such as ``direct_calls=``, and
    then stand above it. The meta-tools are called ``codecall_search`` and so on unless ``names`` says otherwise.
    ``search={"embed": ...}`` also takes a pydantic-ai `Embedder`. A tool says what it is to CodeCall in its
    ``metadata["codecall"]``. ``script_context``: ``(ctx: RunContext) -> mapping``, sync or async, of what scripts read
    in ``codecallContext``. ``keep``, ``max_retries``, ``pool``, ``store`` and ``library`` are those of `CodeMode`; a
    script that failed is an answer, and costs no retry.
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
        check_options(keep, max_retries)
        super().__init__(id=id, description=description, defer_loading=defer_loading)
        self._surface = surface = CodeCallSurface(options, pool, script_context, fields, store, library)
        self.options, self.keep, self.max_retries, self.pool = surface.options, keep, max_retries, pool
        self.script_context = script_context


@dataclass(init=False)
class ExecWait(SurfaceCapability[AgentDepsT]):
    """Shows the model ``exec``, which runs programs over a hidden catalog of tools, and ``wait``, to go on with one.

    The catalog holds the agent's tools and those of ``sources``: a `ToolSource`, several, or tools. ``direct``: tools,
    or names of some, that the model calls itself. ``options``: `ExecWaitOptions`, a mapping, True or False, or a whole
    configuration, of which ``tools.codeMode`` is read; the capability is on unless that says ``enabled: False``, and
    then changes nothing. The rest is what `codemode.create_exec_wait_tools` takes. A program belongs to its
    conversation. When a run of the agent ends, programs of its that have calls in flight are aborted. Raises
    `ValueError` for what means nothing.
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
            raise ValueError("exec and wait cannot be loaded late: they stand in the place of all other tools")
        super().__init__(id=id, description=description, defer_loading=defer_loading)
        opened_store = None if store is None else open_store(store)
        config_fields: dict[str, Any] = {"settings": settings, "namespaces": namespaces, "store": opened_store}
        config_fields |= {"tenant": tenant, "app": app, "library": library}
        config = ExecWaitConfig(options=make_exec_wait_options(options), pool=pool, **config_fields)
        surface = ExecWaitSurface(config, sources, direct)
        self.options, self.direct, self.keep, self.pool = config.options, surface.direct, surface.direct, pool
        self._surface = surface if config.options.enabled else None

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT] | None:
        """Put exec and wait in the place of the agent's tools."""
        if self._surface is None:
            return None
        surface_fields: dict[str, Any] = {
            "surface": self._surface,
            "run_state": self._run,
            "covers_all_agent_tools": True,
        }
        return ExecWaitToolset(toolset, self.options, self.direct, self.max_retries, self.pool, **surface_fields)

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Look at what each request offers the model, when all other capabilities have had their say."""
        return None if self._surface is None else ToolCheckedModel(model, lambda: self._run.allowed_tools)

    async def before_model_request(
        self,
        ctx: RunContext[AgentDepsT],  # noqa: ARG002 - the framework's signature
        request_context: ModelRequestContext,
    ) -> ModelRequestContext:
        """End the run when a call that a program has in flight has raised what ends it."""
        fatal_error = next(
            (program.fatal_error for program in self._run.waiting_programs.values() if program.fatal_error is not None),
            None,
        )
        if fatal_error is not None:
            raise fatal_error
        return request_context

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> Any:  # noqa: ARG002 - as above
        """Leave no call in flight behind the run: what it uses, such as a connection, is the run's."""
        try:
            return await handler()
        finally:
            finishing = [program.on_run_end(self._run) for program in self._run.waiting_programs.values()]
            # It is finished even if the run is cancelled once more.
            await asyncio.shield(asyncio.gather(*finishing, return_exceptions=True))

    async def aclose(self) -> None:
        """End the programs that wait; those that a store keeps are given back, for other processes to go on with."""
        if isinstance(self._surface, ExecWaitSurface):
            await self._surface.aclose()
