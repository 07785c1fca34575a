"""The `codeMode` tool: its description, its input schema and its execution."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...cached_property import cached_property
from ...data.json_shape import run_off_loop_if_large
from ...data.json_values import NOT_GIVEN
from ...data.rich_values import using_rich_values
from ...errors import CodeModeToolError, Resumable
from ...execution.call_context import (
    CallContext,
    OuterCallSettings,
    StateBackend,
    call_context_or_empty,
    make_state_backend,
)
from ...execution.large_results import is_longer_than
from ...execution.optional_parts import describe_fetch, import_and_require_optional_parts
from ...execution.starting import (
    add_saved_programs_to_catalog,
    append_library_description,
    bind_optional_library_unless_shadowed,
    get_pool_and_import_execution,
    import_execution_module,
    resume_with_answers,
)
from ...execution.sync_forms import SyncMethodsMixin
from ...host.threads import run_in_thread_if_large_or_slow
from ...options.parts import CodeModeOptions
from ...source.program_input import rename_program_field
from ...stores.durability import StoreLike, open_store_and_make_options_durable
from ...tools.catalog import Catalog
from ...tools.collecting import collect_tools
from ...tools.prepared import compile_tools_and_log_missing_outputs
from ...workers.pool import WorkerPool, require_open_pool
from .model_output import ModelOutputFormatter, OneCallOutputFormatter
from .outcome import CODE_MODE, unwrap_outcome, with_media_and_python_values, with_plain_json_value, with_python_values

if TYPE_CHECKING:
    from ...data.content import MediaContent
    from ...execution.outcome import RunOutcome
    from ...execution.program_library import ProgramLibrary
    from ...tools.catalog import ToolCatalog
    from ...tools.prepared import PreparedTool
    from .openai_custom_tool import OpenAICustomTool

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


class CodeModeTool(SyncMethodsMixin):
    """One tool that runs programs over other tools. Create it with `create_code_mode_tool`."""

    name = CODE_MODE.outer_tool

    @staticmethod
    def fill_program_field(value: Any, field: str | Collection[str] = "js") -> Any:
        """Return a tool input with the program in ``field``, moved there from another common field name.

        ``field`` may also be all field names of the input; the one for the program is chosen. Other input is returned
        as is.
        """
        return rename_program_field(value, field)

    def __init__(
        self,
        tools: Mapping[str, Any] | Iterable[Any],
        options: CodeModeOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
        store: StoreLike | None = None,
        library: ProgramLibrary | None = None,
    ) -> None:
        self.options, self.store = open_store_and_make_options_durable(CodeModeOptions.of(options), store)
        # Report an invalid origin or a missing extra now, not in the first run.
        import_and_require_optional_parts(self.options)
        require_open_pool(pool)
        self._pool = pool
        collected = collect_tools(tools)
        compile_tools_and_log_missing_outputs(collected.items())
        self.catalog = Catalog(collected)
        self.library = bind_optional_library_unless_shadowed(library, self.catalog, collected)
        self._output_formatter = ModelOutputFormatter(self.options.model_output, self._get_tool_formatter)
        self._default_outer_call = OuterCallSettings(is_traced=self.options.model_output.shows_run_details)

    def __repr__(self) -> str:
        return f"<CodeModeTool over {len(self.catalog)} tools>"

    @property
    def description(self) -> str:
        """The description for the model: the rules, the tools as TypeScript, an example and saved programs."""
        return append_library_description(self._description, self.library)

    @cached_property
    def _description(self) -> str:
        from .description import describe_code_mode_tool

        policy = self.options.execution_policy
        with using_rich_values(policy.values == "rich"):
            return describe_code_mode_tool(
                self.catalog.list_tools(),
                fetch_line=describe_fetch(self.options),
                has_state=self.options.has_state,
                max_characters=policy.max_description_characters,
                listing=policy.listing,
                max_at_once=policy.max_in_flight_bridge_requests if policy.in_flight_limit == "fail" else None,
            )

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the tool's input, exactly ``{"js": string}``."""
        return {**_INPUT_SCHEMA, "properties": {"js": dict(_INPUT_SCHEMA["properties"]["js"])}}

    async def execute(self, program: str | Mapping[str, Any], call: CallContext | None = None) -> Any:
        """Run a program and return its value: plain JSON, None for undefined, or an `Interrupt` if it paused.

        With ``execution_policy.values`` "rich" the value can contain `datetime`, `bytes` and `set`.

        ``program``: the JavaScript, or the tool input ``{"js": string}``. ``call``: the call context. Raises
        `CodeModeError` or a subclass; `CodeModeToolError` for any other input.
        """
        js = extract_program(program)
        if call is None and not self.options.has_state:
            outer, state_location = self._default_outer_call, None
        else:
            outer, state_location = self._create_outer_call_and_state_backend(call_context_or_empty(call))
        pool = await get_pool_and_import_execution(self._pool, self.options)
        run = import_execution_module()
        catalog: ToolCatalog[PreparedTool] = self.catalog
        if self.library is not None:
            catalog = add_saved_programs_to_catalog(self.catalog, self.library, js, call_context_or_empty(call), pool)
        execution = run.Execution(CODE_MODE, catalog, self.options, outer, pool)
        return await self._remember_run_and_unwrap_outcome(await execution.start(js), state_location, js)

    async def resume(
        self,
        interrupt: Resumable | Mapping[str, Any],
        resolution: Any = NOT_GIVEN,
        call: CallContext | None = None,
        *,
        resolutions: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer pending requests and resume the program; see `continue_interrupt`.

        Uses this tool's tools, options and pool, and ``call`` except for its ``tool_call_id`` and ``started_at_ms``,
        which stay those of the paused call.
        """
        outer, state_location = self._create_outer_call_and_state_backend(call := call_context_or_empty(call))
        catalog = add_saved_programs_to_catalog(self.catalog, self.library, None, call, self._pool)
        outcome = await resume_with_answers(
            CODE_MODE, interrupt, resolution, resolutions, catalog, self.options, outer, self._pool
        )
        return await self._remember_run_and_unwrap_outcome(outcome, state_location)

    def to_model_output(self, result: Any, *, tool_call_id: str | None = None) -> dict[str, Any]:
        """Return a result in the format that the model sees: ``{"type": "text" | "json", "value": ...}``.

        For a program that returned nothing, the text contains its console output if ``tool_call_id`` identifies its
        run. If calls failed whose errors the program did not handle, the text names them after the result. With
        ``options.model_output`` the value is ``{"result", "nestedTools"?, "console"?}`` of the run that produced this
        result. Small results (None, numbers, booleans) need the ``tool_call_id`` of the run; a result that matches no
        single run gets an empty summary. An `Interrupt` is never wrapped.
        """
        return self._output_formatter.format(result, tool_call_id)

    def to_model_parts(self, result: Any, *, tool_call_id: str | None = None) -> tuple[Any, list[MediaContent]]:
        """Return the ``value`` of `to_model_output` without images, audio and files, and these. For plugins."""
        output, media = self._output_formatter.format_with_separate_media(result, tool_call_id)
        return output["value"], media

    def as_openai_custom_tool(self) -> OpenAICustomTool:
        """Return this tool as a custom tool of OpenAI's Responses API, whose input is the program as raw text."""
        from .openai_custom_tool import OpenAICustomTool

        return OpenAICustomTool(
            self.name, describe=lambda: self.description, execute=self.execute, to_model_output=self.to_model_output
        )

    def for_one_call(self) -> CodeModeTool:
        """Return a copy of this tool for one call, for plugins that format each result at once.

        Its results are never confused with those of other calls, even if ids repeat.
        """
        tool = copy(self)
        tool._output_formatter = OneCallOutputFormatter(self.options.model_output, self._get_tool_formatter)  # noqa: SLF001 - of the class
        return tool

    def without_journal(self) -> CodeModeTool:
        """Return a copy of this tool without a journal, for plugins whose engine records every call itself."""
        tool = copy(self)
        tool.options = self.options.without_journal()
        return tool

    def _create_outer_call_and_state_backend(self, call: CallContext) -> tuple[OuterCallSettings, StateBackend | None]:
        """Return the outer call of a run, and where its programs share values.

        Raises `TypeError` for an invalid state store.
        """
        state_location = make_state_backend(self.options, call)
        if state_location is not None:
            call = replace(call, state=state_location)
        return OuterCallSettings(call=call, is_traced=self.options.model_output.shows_run_details), state_location

    async def _remember_run_and_unwrap_outcome(
        self, outcome: RunOutcome, state_location: StateBackend | None, js: str = ""
    ) -> Any:
        """Return the value or raise the error of a run; remember what its model output needs."""
        if outcome.status == "failed" and state_location is not None:
            from ...execution.program_state import save_large_call_results_and_set_keys

            await save_large_call_results_and_set_keys(outcome, state_location)
        if outcome.status != "completed":
            return unwrap_outcome(outcome)
        contents = None if outcome.ledger is None else outcome.ledger.contents
        is_plain = contents is None or not contents.parts
        plain_outcome, size = outcome, outcome.result_bytes or 0
        if outcome.is_tagged:
            self._output_formatter.has_rich_values = True
            plain_outcome = await run_in_thread_if_large_or_slow(size, partial(with_plain_json_value, outcome))
            outcome = await run_in_thread_if_large_or_slow(size, partial(with_python_values, outcome))
        is_rich = plain_outcome is not outcome
        adds_details = self._output_formatter.adds_run_details or bool(outcome.unhandled_failures)
        if is_plain and outcome.value is not None and not adds_details and not is_rich:
            return outcome.value
        replacement_text = await self._save_large_result_and_build_replacement_text(plain_outcome, state_location, js)
        if is_plain and outcome.unhandled_failures:
            replacement_text = await run_in_thread_if_large_or_slow(
                size, partial(_add_unhandled_failures, replacement_text, plain_outcome)
            )
        if not is_plain:
            outcome = await run_off_loop_if_large(outcome.value, partial(with_media_and_python_values, outcome))
        details: Any = {"replacement_text": replacement_text, "json_bytes": size, "is_plain": is_plain}
        details["as_json"] = plain_outcome.value if is_rich and is_plain else None
        self._output_formatter.remember_run(outcome.outer_tool_call_id, outcome.value, outcome.trace, **details)
        return outcome.value

    async def _save_large_result_and_build_replacement_text(
        self, outcome: RunOutcome, state_location: StateBackend | None, js: str
    ) -> str:
        """Return the text that replaces a result of None or a result that is too large."""
        value, max_characters = outcome.value, self.options.model_output.max_model_characters
        if value is None:
            from ...execution.outcome_texts import describe_missing_result

            return describe_missing_result(outcome, js)
        if max_characters is None or not is_longer_than(value, max_characters, outcome.result_bytes):
            return ""
        from ...execution.program_state import save_and_describe_large_result  # late: it imports the ledger

        return await save_and_describe_large_result(outcome, max_characters, state_location)

    def _get_tool_formatter(self, name: str) -> Callable[..., Any] | None:
        tool = self.catalog.get(name)
        return None if tool is None else tool.to_model_output


def _add_unhandled_failures(text: str, outcome: RunOutcome) -> str:
    """Return the text of a result, or the result as text, with the warning about failed calls."""
    from ...execution.outcome_texts import describe_unhandled_failures

    value = outcome.value
    if not text:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "\n\n".join([text, *describe_unhandled_failures(outcome.unhandled_failures)])


def create_code_mode_tool(
    tools: Mapping[str, Any] | Iterable[Any],
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    *,
    pool: WorkerPool | None = None,
    store: StoreLike | None = None,
    library: ProgramLibrary | None = None,
) -> CodeModeTool:
    """Turn many tools into one.

    ``tools``: a mapping of names to tools, or an iterable of tools; a tool is a `Tool`, a function or a framework's
    tool object. ``options``: `CodeModeOptions` or a mapping. ``pool``: a `WorkerPool`; None for the process-wide pool.
    ``store``: an interrupt store or its URL, such as ``sqlite:///pauses.db``. With a store, calls that need approval
    pause, pauses survive this process, and any process with the key in ``CODEMODE_SIGNING_KEY`` can resume them,
    exactly once; the store is then `CodeModeTool.store`. ``library``: saved programs, which programs call as
    ``saved.name(input)``. Raises `ValueError` for invalid tools, options, names, schemas, pools or stores, and for a
    store without a key.
    """
    return CodeModeTool(tools, options, pool, store, library)


def extract_program(value: object) -> str:
    """Return the program from a text or ``{"js": string}``. Raises `CodeModeToolError` for anything else."""
    if isinstance(value, str):
        return value
    value_type: Any = type(value)
    filled: Any = value
    if value_type is dict and len(filled) == 1 and type(js := filled.get("js")) is str:
        return js  # the usual input
    filled = rename_program_field(value, "js")
    is_mapping = type(value) is dict or isinstance(value, Mapping)
    if is_mapping and isinstance(js := filled.get("js"), str) and len(filled) == 1:
        return js
    raise CodeModeToolError(
        'the input of codeMode is {"js": "<program>"} and nothing else', details={"tool_name": CodeModeTool.name}
    )
