"""The one tool that a model sees: its description, its input, and how it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from ...cached_property import cached_property
from ...data.json_values import NOT_GIVEN
from ...errors import CodeModeToolError, Resumable
from ...host.sync import run_sync
from ...host.threads import run_check
from ...options.parts import CodeModeOptions
from ...run.large_results import is_beyond
from ...run.optional_parts import binding_of, fetch_line, require_optional_parts
from ...run.starting import load_continuations, load_execution, prepared, started
from ...run.state_places import StatePlace, place_of
from ...source.program_input import with_program_field
from ...tools.catalog import Catalog
from ...tools.collecting import collect_tools
from ...tools.undeclared import compile_all
from ...workers.given_pools import check_pool
from ...workers.pool import WorkerPool
from .model_output import ModelOutputs, OneCallOutputs
from .outcome import told, with_value
from .profile import CODE_MODE

if TYPE_CHECKING:
    from ...data.content import Content
    from ...run.outcome import RunOutcome

_INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "js": {
            "type": "string",
            "description": "The body of an async JavaScript (or TypeScript) function: use await, end with return.",
        }
    },
    "required": ["js"],
    "additionalProperties": False,
}


class CodeModeTool:
    """One tool that runs programs over other tools. Make it with `create_code_mode_tool`."""

    name = CODE_MODE.outer_tool

    def __init__(
        self,
        tools: Mapping[str, Any] | Iterable[Any],
        options: CodeModeOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
    ) -> None:
        self.options = CodeModeOptions.of(options)
        # A wrong origin and a missing extra are told of here, not in the first run.
        require_optional_parts(self.options)
        check_pool(pool)
        self._pool = pool
        collected = collect_tools(tools)
        compile_all(collected.items())
        self.catalog = Catalog(collected)
        self._outputs = ModelOutputs(self.options.model_output, self._own_model_output)

    def __repr__(self) -> str:
        return f"<CodeModeTool over {len(self.catalog)} tools>"

    @cached_property
    def description(self) -> str:
        """What the model reads: the rules, the tools as TypeScript, examples."""
        from .description import describe_tools

        policy = self.options.execution_policy
        return describe_tools(
            self.catalog.tools(),
            fetch_line=fetch_line(self.options),
            has_state=self.options.has_state,
            max_characters=policy.max_description_characters,
            listing=policy.listing,
            max_at_once=policy.max_in_flight_bridge_requests if policy.in_flight_limit == "fail" else None,
        )

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the tool's input, exactly ``{"js": string}``."""
        return {**_INPUT_SCHEMA, "properties": {"js": dict(_INPUT_SCHEMA["properties"]["js"])}}

    async def execute(
        self,
        input: Mapping[str, Any],  # noqa: A002 - the name that every framework uses
        *,
        tool_call_id: str | None = None,
        messages: Sequence[Any] = (),
        context: Any = None,
        started_at_ms: int | None = None,
        context_binding: str | None = None,
        clock_ms: Callable[[], int] | None = None,
        state: Any = None,
    ) -> Any:
        """Run ``input["js"]`` and return its value: plain JSON, None for undefined; or an `Interrupt` when it paused.

        ``tool_call_id`` names the outer call (random when None); ``messages`` and ``context`` reach every tool.
        ``context_binding`` names the conversation, thread or workflow, beside the one in the options: a pause goes on
        only under the same one. With a signing key that was set, a ``tool_call_id`` and a binding, request ids and
        random numbers of a program are the same whenever it is run with the same ``started_at_ms`` (Unix time), where
        its clock starts if that is given: an engine that runs a step again finds the pause that it knows. With each
        answer that clock goes on to ``clock_ms()``, the host's when None: such an engine gives times that it has
        recorded. ``state`` is the place of this call's state, in place of what the options say.
        Raises `CodeModeError` or a subclass, `CodeModeToolError` for an input that is not ``{"js": string}``.
        """
        js = program_of(input)
        pool = await prepared(self._pool, self.options)
        run = load_execution()
        traced = self.options.model_output.tells_of_runs
        place = self._place_of(state, context_binding)
        own: dict[str, Any] = {"state": place}
        outer = run.OuterCall(tool_call_id, messages, context, traced, started_at_ms, context_binding, clock_ms, **own)
        execution = run.Execution(CODE_MODE, self.catalog, self.options, outer, pool)
        return await self._noted(await execution.start(js), place, js)

    def execute_sync(
        self,
        input: Mapping[str, Any],  # noqa: A002 - as above
        *,
        tool_call_id: str | None = None,
        messages: Sequence[Any] = (),
        context: Any = None,
        started_at_ms: int | None = None,
        context_binding: str | None = None,
        clock_ms: Callable[[], int] | None = None,
        state: Any = None,
    ) -> Any:
        """Do what `execute` does, from code that is not async. Works inside a running loop too."""
        program_of(input)
        started(self._pool)
        return run_sync(
            self.execute(
                input,
                tool_call_id=tool_call_id,
                messages=messages,
                context=context,
                started_at_ms=started_at_ms,
                context_binding=context_binding,
                clock_ms=clock_ms,
                state=state,
            )
        )

    async def resume(
        self,
        interrupt: Resumable | Mapping[str, Any],
        resolution: Any = NOT_GIVEN,
        *,
        resolutions: Mapping[str, Any] | None = None,
        messages: Sequence[Any] = (),
        context: Any = None,
        context_binding: str | None = None,
        clock_ms: Callable[[], int] | None = None,
        state: Any = None,
    ) -> Any:
        """Answer pending requests and go on; see `continue_interrupt`. Uses this tool's tools, options and pool.

        ``clock_ms`` is the one that `execute` takes.
        """
        pool = await prepared(self._pool, self.options)
        if not load_continuations.cache_info().currsize:
            await pool.off_loop(load_continuations)
        run, go_on = load_execution(), load_continuations()
        answers_to = partial(go_on.answers_of, resolution=resolution, resolutions=resolutions)
        traced = self.options.model_output.tells_of_runs
        place = self._place_of(state, context_binding)
        outer = run.OuterCall(None, messages, context, traced, None, context_binding, clock_ms, state=place)
        outcome = go_on.resume(CODE_MODE, interrupt, answers_to, self.catalog, self.options, outer, pool)
        return await self._noted(await outcome, place)

    def resume_sync(
        self,
        interrupt: Resumable | Mapping[str, Any],
        resolution: Any = NOT_GIVEN,
        *,
        resolutions: Mapping[str, Any] | None = None,
        messages: Sequence[Any] = (),
        context: Any = None,
        context_binding: str | None = None,
        clock_ms: Callable[[], int] | None = None,
        state: Any = None,
    ) -> Any:
        """Do what `resume` does, from code that is not async."""
        return run_sync(
            self.resume(
                interrupt,
                resolution,
                resolutions=resolutions,
                messages=messages,
                context=context,
                context_binding=context_binding,
                clock_ms=clock_ms,
                state=state,
            )
        )

    def to_model_output(self, result: Any, *, tool_call_id: str | None = None) -> dict[str, Any]:
        """Return what the model is shown for a result: ``{"type": "text" | "json", "value": ...}``.

        A program that returned nothing is told of with what it printed, where ``tool_call_id`` names its run.
        With ``options.model_output`` the value is ``{"result", "nestedTools"?, "console"?}``, about the very run that
        gave this result. Short results (None, numbers, booleans) need the ``tool_call_id`` of that run to be told
        apart; a result that cannot be told apart has an empty summary. An `Interrupt` is never wrapped.
        """
        return self._outputs.show(result, tool_call_id)

    def to_model_parts(self, result: Any, *, tool_call_id: str | None = None) -> tuple[Any, list[Content]]:
        """Return the ``value`` of `to_model_output` without images, audio and files, and these, for plugins."""
        shown, parts = self._outputs.show_apart(result, tool_call_id)
        return shown["value"], parts

    def for_one_call(self) -> CodeModeTool:
        """Return this tool as if it had never run: its results are told apart from all others, whatever their ids.

        For plugins, which show each result as it comes.
        """
        tool = copy(self)
        tool._outputs = OneCallOutputs(self.options.model_output, self._own_model_output)  # noqa: SLF001 - of the class
        return tool

    def without_journal(self) -> CodeModeTool:
        """Return this tool without its journal: for plugins whose engine keeps a record of every call itself."""
        tool = copy(self)
        tool.options = self.options.without_journal()
        return tool

    def _place_of(self, state: Any, context_binding: str | None) -> StatePlace | None:
        """Return where the programs of a call leave values for each other. Raises `TypeError` for what is no place."""
        if state is None and not self.options.has_state:
            return None
        return place_of(self.options.state if state is None else state, binding_of(self.options, context_binding))

    async def _noted(self, outcome: RunOutcome, place: StatePlace | None, js: str = "") -> Any:
        """Return or raise what a run came to; what is to be shown beside its result is kept."""
        if outcome.status == "failed" and place is not None:
            from ...run.kept_results import keep_call_results

            await keep_call_results(outcome, place)
        if outcome.status != "completed":
            return told(outcome)
        is_plain = outcome.ledger is None or not outcome.ledger.contents
        if is_plain and outcome.value is not None and not self._outputs.tells_beside:
            return outcome.value
        said, size = await self._said_of(outcome, place, js), outcome.result_bytes or 0
        if not is_plain:
            outcome = await run_check(0, partial(with_value, outcome))
        more: Any = {"said": said, "json_bytes": size, "is_plain": is_plain}
        self._outputs.keep(outcome.outer_tool_call_id, outcome.value, outcome.trace, **more)
        return outcome.value

    async def _said_of(self, outcome: RunOutcome, place: StatePlace | None, js: str) -> str:
        """Return what a model reads in place of a result that is nothing, or too large."""
        value, most = outcome.value, self.options.model_output.max_model_characters
        if value is None:
            from ...run.no_result import no_result_text

            return no_result_text(outcome, js)
        if most is None or not is_beyond(value, most, outcome.result_bytes):
            return ""
        from ...run.kept_results import told_of_large  # late: it brings the ledger along

        return await told_of_large(outcome, most, place)

    def _own_model_output(self, name: str) -> Callable[..., Any] | None:
        tool = self.catalog.get(name)
        return None if tool is None else tool.to_model_output


def create_code_mode_tool(
    tools: Mapping[str, Any] | Iterable[Any],
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    *,
    pool: WorkerPool | None = None,
) -> CodeModeTool:
    """Turn many tools into one.

    ``tools``: a mapping name -> tool or an iterable of tools; a tool is a `Tool`, a function, or a framework's tool
    object. ``options``: `CodeModeOptions` or a mapping. ``pool``: a `WorkerPool`; the process-wide one when None.
    Raises `ValueError` for wrong options, names, schemas or pools, and for what is no tool.
    """
    return CodeModeTool(tools, options, pool)


def program_of(value: object) -> str:
    """Return the program in a tool input. Raises `CodeModeToolError` for anything but ``{"js": string}``."""
    given: Any = with_program_field(value, "js")
    is_mapping = type(value) is dict or isinstance(value, Mapping)
    if is_mapping and isinstance(js := given.get("js"), str) and len(given) == 1:
        return js
    raise CodeModeToolError(
        'the input of codeMode is {"js": "<program>"} and nothing else', details={"tool_name": CodeModeTool.name}
    )
