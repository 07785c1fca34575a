"""Format results for the model, with a summary of the run that produced each."""

from __future__ import annotations

import dataclasses
from base64 import b64encode
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ...data.json_values import decode_json, encode_canonical_json, encode_json
from ...data.rich_values import tagged_to_plain_json, to_tagged_json
from ...errors import CodeModeProtocolError
from ...execution.large_results import describe_too_large_result, escape_and_shorten_console, is_longer_than
from ...host.forks import create_fork_safe_lock, register_fork_reset
from ...options.parts import ModelOutput
from ...records import record
from ...trace.failures import log_tool_failure
from ...trace.late_values import get_stored_value

if TYPE_CHECKING:
    from ...data.content import MediaContent
    from ...trace.events import FetchResultEvent, NestedToolResultEvent
    from ...trace.trace import Trace


def to_content_output(output: dict[str, Any], parts: Sequence[MediaContent]) -> dict[str, Any]:
    """Return an output with media parts: ``{"type": "content", "value": [text, media, ...]}``.

    The text refers to each part by its number in ``content``, counted from 1. Without parts the output is unchanged.
    """
    if not parts:
        return output
    value = output["value"]
    text = value if output["type"] == "text" else encode_canonical_json(value)
    media = [{"type": "media", "mediaType": part.mime_type, "data": b64encode(part.data).decode()} for part in parts]
    return {"type": "content", "value": [{"type": "text", "text": text}, *media]}


ModelOutputDict: TypeAlias = dict[str, Any]  # {"type": "text" | "json", "value": ...}
OutputFormatter: TypeAlias = Callable[[Any], Any]

MAX_RETAINED_RUNS = 256
# In bytes of JSON; the Python values take several times as much.
MAX_RETAINED_BYTES = 4 << 20
_MAX_EVICTED_RESULTS = 1 << 14
_UNAVAILABLE_OUTPUT: ModelOutputDict = {"type": "text", "value": "(this output cannot be shown)"}


class ModelOutputFormatter:
    """Formats the results of one `CodeModeTool` with details of the run of each. Thread-safe.

    ``adds_run_details``: whether an output can contain more than the value.
    """

    def __init__(self, options: ModelOutput, get_tool_formatter: Callable[[str], OutputFormatter | None]) -> None:
        self._options = options
        self.has_rich_values = False  # whether results can contain dates, bytes and sets
        self.adds_run_details = options.shows_run_details or options.max_model_characters is not None
        self._get_tool_formatter = get_tool_formatter  # returns a tool's own to_model_output by its name
        self._runs: deque[_CompletedRun] = deque()
        self._retained_bytes = 0
        self._evicted_results: OrderedDict[tuple[str, type, Any], None] = OrderedDict()  # results of evicted runs
        self._lock = create_fork_safe_lock()
        register_fork_reset(self)

    def after_fork(self) -> None:
        """Recount retained bytes in a forked child: a thread of the parent may have been adding or evicting a run."""
        self._retained_bytes = sum(run.size for run in self._runs)

    def remember_run(
        self,
        outer_tool_call_id: str,
        result: Any,
        trace: Trace | None,
        replacement_text: str = "",
        json_bytes: int = 0,
        *,
        is_plain: bool = False,
        as_json: Any = None,
    ) -> None:
        """Remember a run by its result, if its output needs details of the run.

        ``trace`` is None for a recorded outcome, which must not match another run; the same holds for runs too large to
        retain. ``replacement_text`` replaces a result that is None, or one of ``json_bytes`` that is too large.
        ``is_plain``: the result contains no media. ``as_json``: the result without dates, bytes and sets.
        """
        if result is not None and not replacement_text and as_json is None and not self._options.shows_run_details:
            return
        run = self._build_completed_run(
            outer_tool_call_id, result, trace, replacement_text, json_bytes, is_plain, as_json
        )
        with self._lock:
            self._runs.append(run)
            self._retained_bytes += run.size
            while len(self._runs) > MAX_RETAINED_RUNS or self._retained_bytes > MAX_RETAINED_BYTES:
                self._record_eviction(self._runs.popleft())

    def _build_completed_run(
        self,
        outer_tool_call_id: str,
        result: Any,
        trace: Trace | None,
        replacement_text: str,
        json_bytes: int,
        is_plain: bool,
        as_json: Any,
    ) -> _CompletedRun:
        stripped_trace = (
            None if trace is None or not self._options.shows_run_details else self._strip_unused_values(trace)
        )
        size = len(replacement_text) + (json_bytes if stripped_trace is None else _estimate_trace_bytes(stripped_trace))
        if size > MAX_RETAINED_BYTES:
            return _CompletedRun(
                outer_tool_call_id, result if _may_be_interned(result) else None, None, 0, replacement_text, is_plain
            )
        return _CompletedRun(outer_tool_call_id, result, stripped_trace, size, replacement_text, is_plain, as_json)

    def _record_eviction(self, run: _CompletedRun) -> None:
        self._retained_bytes -= run.size
        if _may_be_interned(run.result):
            # A caller may still hold this result: an equal one of a later run under the same id must not match it.
            self._evicted_results[run.outer_tool_call_id, type(run.result), run.result] = None
            if len(self._evicted_results) > _MAX_EVICTED_RESULTS:
                self._evicted_results.popitem(last=False)

    def format(self, result: Any, tool_call_id: str | None) -> ModelOutputDict:
        """Return ``{"type": "text" | "json", "value": ...}`` for a result. An interrupt is not wrapped."""
        return to_content_output(*self.format_with_separate_media(result, tool_call_id))

    def format_with_separate_media(
        self, result: Any, tool_call_id: str | None
    ) -> tuple[ModelOutputDict, list[MediaContent]]:
        """Return the output without images, audio and files, and the list of these."""
        if _is_interrupt(result):
            return format_result_without_run_details(result), []
        from ...data.content import split_content

        run, max_characters = self._find_run(result, tool_call_id), self._options.max_model_characters
        if run is not None and run.as_json is not None:
            result = run.as_json
        elif self.has_rich_values:
            result = _to_plain_json(result)
        result, parts = (result, []) if run is not None and run.is_plain else split_content(result)
        replacement_text = "" if run is None else run.replacement_text
        if not replacement_text and max_characters is not None and is_longer_than(result, max_characters):
            replacement_text = describe_too_large_result(result, max_characters)
        if not self._options.shows_run_details:
            return {"type": "text", "value": replacement_text} if replacement_text else _to_model_output(result), parts
        value = self._add_run_details(result, replacement_text, None if run is None else run.trace)
        if max_characters is not None and is_longer_than(value, max_characters):
            for entry in value.get("nestedTools", ()):
                entry.pop("output", None)
            value["outputsLeftOut"] = True
        return {"type": "json", "value": value}, parts

    def _add_run_details(self, result: Any, replacement_text: str, trace: Trace | None) -> dict[str, Any]:
        """Return a result, or its replacement text, with the configured details of its run."""
        value: dict[str, Any] = {"result": replacement_text if replacement_text and result is not None else result}
        if replacement_text and result is None:
            value["note"] = replacement_text
        if self._options.includes_calls:
            value |= self._summarise_calls(trace)
        if self._options.include_console:
            lines = () if trace is None else trace.console
            is_bounded = self._options.max_model_characters is not None
            value["console"] = (
                escape_and_shorten_console(lines) if is_bounded else "\n".join(line.text for line in lines)
            )
        return value

    def _strip_unused_values(self, trace: Trace) -> Trace:
        """Return the trace without values that are never shown, which may be large."""
        from ...trace.events import NestedToolResultEvent

        outputs = self._options.include_nested_tool_outputs
        requests = tuple(
            _strip_call_values(request, keeps_output=outputs) if isinstance(request, NestedToolResultEvent) else request
            for request in trace.bridge_requests
        )
        return dataclasses.replace(trace, bridge_requests=requests)

    def _find_run(self, result: Any, tool_call_id: str | None) -> _CompletedRun | None:
        """Return the run that certainly produced this result, or None."""
        with self._lock:
            if _may_be_interned(result) and (tool_call_id or "", type(result), result) in self._evicted_results:
                return None
            runs = [run for run in self._runs if run.may_have_returned(result, tool_call_id)]
        return runs[0] if len(runs) == 1 else None

    def _summarise_calls(self, trace: Trace | None) -> dict[str, Any]:
        entries = list(self._iter_summary_entries(trace)) if trace is not None else []
        maximum = self._options.max_summary_entries
        left_out = len(entries) - maximum
        return {"nestedTools": entries[:maximum], **({"nestedToolsLeftOut": left_out} if left_out > 0 else {})}

    def _iter_summary_entries(self, trace: Trace) -> Iterator[dict[str, Any]]:
        from ...trace.events import FetchResultEvent

        options = self._options
        for request in trace.bridge_requests:
            status_fields = {"status": request.status, "replayed": request.replayed}
            if isinstance(request, FetchResultEvent):
                if options.include_fetch_summary:
                    yield {"kind": "fetch", "method": request.method, "url": request.url, **status_fields}
            elif options.include_nested_tool_summary or options.include_nested_tool_outputs:
                yield {
                    "kind": "tool",
                    "toolName": request.tool_name,
                    "toolCallId": request.tool_call_id,
                    **status_fields,
                    **self._format_call_output(request),
                }

    def _format_call_output(self, request: NestedToolResultEvent) -> dict[str, ModelOutputDict]:
        if not self._options.include_nested_tool_outputs or request.status != "fulfilled":
            return {}
        formatter, max_characters = self._get_tool_formatter(request.tool_name), self._options.max_model_characters
        output = (
            _to_model_output(request.output)
            if formatter is None
            else _format_with_tool_formatter(formatter, request.output)
        )
        if max_characters is not None and is_longer_than(output.get("value"), max_characters):
            output = {"type": "text", "value": describe_too_large_result(output.get("value"), max_characters)}
        return {"output": output}


class OneCallOutputFormatter(ModelOutputFormatter):
    """Formats the results of one tool call: a result belongs to the last run or to no known run."""

    def __init__(self, options: ModelOutput, get_tool_formatter: Callable[[str], OutputFormatter | None]) -> None:
        super().__init__(options, get_tool_formatter)
        self._last_run: _CompletedRun | None = None
        self.adds_run_details = True  # the last run is always known

    def remember_run(
        self,
        outer_tool_call_id: str,
        result: Any,
        trace: Trace | None,
        replacement_text: str = "",
        json_bytes: int = 0,
        *,
        is_plain: bool = False,
        as_json: Any = None,
    ) -> None:
        """Remember the run, of any size, in place of the previous one."""
        run = self._build_completed_run(
            outer_tool_call_id, result, trace, replacement_text, json_bytes, is_plain, as_json
        )
        self._last_run = dataclasses.replace(run, result=result)

    def _find_run(self, result: Any, tool_call_id: str | None) -> _CompletedRun | None:
        run = self._last_run
        return run if run is not None and run.may_have_returned(result, tool_call_id) else None


@record
class _CompletedRun:
    """A completed run. It holds the result itself, so that no other object can get the same identity.

    ``size`` is in bytes. ``replacement_text`` is what the model reads in place of the result.
    """

    outer_tool_call_id: str
    result: Any
    trace: Trace | None
    size: int
    replacement_text: str = ""
    is_plain: bool = False
    as_json: Any = None

    def may_have_returned(self, result: Any, tool_call_id: str | None) -> bool:
        """Return True if the result may come from this run.

        Other values are compared by identity. Values that Python may share (None, small numbers) also need the tool
        call id. Models reuse ids, so two runs with equal values under one id cannot be distinguished.
        """
        if not _may_be_interned(result):
            return result is self.result and tool_call_id in (None, self.outer_tool_call_id)
        return tool_call_id == self.outer_tool_call_id and _is_equal_of_same_type(result, self.result)


def _to_plain_json(result: Any) -> Any:
    """Return a result with dates, bytes and sets converted to JSON."""
    from ...data.content import ContentResult

    if isinstance(result, ContentResult):
        return ContentResult(_to_plain_json(result.value), result.content)
    return tagged_to_plain_json(to_tagged_json(result))


def _may_be_interned(value: Any) -> bool:
    """Return True if Python may share one object for equal values: None, booleans, numbers, short strings."""
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and len(value) <= 1)


def _strip_call_values(result: NestedToolResultEvent, *, keeps_output: bool) -> NestedToolResultEvent:
    output = get_stored_value(result, "output") if keeps_output else None
    remaining = {"output": output, "output_bytes": get_stored_value(result, "output_bytes")}
    return dataclasses.replace(result, input=None, interrupt=None, shown_input=None, **remaining)


def _estimate_trace_bytes(trace: Trace) -> int:
    """Return the size of a trace: result, outputs, names and console output. Stops above the limit."""
    size = trace.result_bytes or 0
    size += sum(len(request.label) for request in trace.bridge_requests) + sum(len(line.text) for line in trace.console)
    for request in trace.bridge_requests:
        if size > MAX_RETAINED_BYTES:
            break
        size += (request.output_bytes or 0) if _has_output(request) else 0
    return size


def _has_output(request: NestedToolResultEvent | FetchResultEvent) -> bool:
    return request.kind == "tool" and get_stored_value(request, "output") is not None


def _is_equal_of_same_type(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right


def _to_model_output(value: Any) -> ModelOutputDict:
    return {"type": "text" if isinstance(value, str) else "json", "value": value}


def _format_with_tool_formatter(formatter: OutputFormatter, output: Any) -> ModelOutputDict:
    """Return the output in the format of the tool's own function, which is host code and may fail."""
    try:
        output_value: Any = formatter(output)
        plain = decode_json(encode_json(output_value, what="the model output of a tool"))
    except Exception as error:  # noqa: BLE001 - a failing summary must not lose the result
        log_tool_failure("to_model_output of a tool failed", error)
        return dict(_UNAVAILABLE_OUTPUT)
    if isinstance(plain, dict) and {"type", "value"} <= set(cast("dict[str, Any]", plain)):
        return cast("ModelOutputDict", plain)
    return _to_model_output(plain)


def format_result_without_run_details(result: Any) -> ModelOutputDict:
    """Return a result in the model output format without details of its run."""
    from ...data.content import MediaContent, split_content
    from ...interrupts.interrupt import Interrupt

    if isinstance(result, Interrupt):
        return {"type": "json", "value": result.to_dict()}
    plain, parts = split_content(result) if MediaContent.has_instances else (result, [])
    return to_content_output(_to_model_output(plain), parts)


def _is_interrupt(value: Any) -> bool:
    from ...interrupts.interrupt import Interrupt

    if not isinstance(value, Mapping) or "continuation" not in value:
        return isinstance(value, Interrupt)
    try:
        Interrupt.from_dict(cast("Mapping[str, Any]", value))
    except CodeModeProtocolError:
        return False
    return True
