"""Results as the model is shown them, with a summary of the very run that each came from. Runs nothing."""

from __future__ import annotations

import dataclasses
from base64 import b64encode
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ...data.content import ContentResult, MediaContent, split_content
from ...data.json_values import canonical_json, decode_json, encode_json
from ...data.rich_values import to_plain, to_tagged
from ...errors import CodeModeProtocolError
from ...execution.large_results import is_beyond, printed, too_large_text
from ...host.forks import begin_anew_in_forks, forkable_lock
from ...options.parts import ModelOutput
from ...records import record
from ...trace.failures import log_tool_failure
from ...trace.late_values import held

if TYPE_CHECKING:
    from ...trace.events import FetchResultEvent, NestedToolResultEvent
    from ...trace.trace import Trace


def with_content(shown: dict[str, Any], parts: Sequence[MediaContent]) -> dict[str, Any]:
    """Return what is shown with these parts beside it: ``{"type": "content", "value": [text, media, ...]}``.

    In the text a part is a description with its number, ``content``, from 1. Without parts it stays as it is.
    """
    if not parts:
        return shown
    value = shown["value"]
    text = value if shown["type"] == "text" else canonical_json(value)
    media = [{"type": "media", "mediaType": one.mime_type, "data": b64encode(one.data).decode()} for one in parts]
    return {"type": "content", "value": [{"type": "text", "text": text}, *media]}


Shown: TypeAlias = dict[str, Any]  # {"type": "text" | "json", "value": ...}
Show: TypeAlias = Callable[[Any], Any]

MAX_KEPT_TRACES = 256
# Of JSON, and of what else is kept of a run; the values that it stands for take some times as much.
MAX_KEPT_BYTES = 4 << 20
_MAX_FORGOTTEN = 1 << 14
_NOT_SHOWN: Shown = {"type": "text", "value": "(this output cannot be shown)"}


class ModelOutputs:
    """Shows the results of one `CodeModeTool`, each beside what its own run did. Safe to use from several threads.

    ``tells_beside``: of a run that has given a result more than that may be shown.
    """

    def __init__(self, options: ModelOutput, show_of: Callable[[str], Show | None]) -> None:
        self._options = options
        self.has_rich_values = False  # whether a result may hold dates, bytes and sets
        self.tells_beside = options.tells_of_runs or options.max_model_characters is not None
        self._show_of = show_of  # a tool's own to_model_output, by the tool's name
        self._kept: deque[_Run] = deque()
        self._kept_bytes = 0
        self._forgotten: OrderedDict[tuple[str, type, Any], None] = OrderedDict()  # results that a run once gave
        self._lock = forkable_lock()
        begin_anew_in_forks(self)

    def after_fork(self) -> None:
        """In a forked child: a thread that is not in it may have kept a run, or let go of one, that is not counted."""
        self._kept_bytes = sum(run.size for run in self._kept)

    def keep(
        self,
        outer_tool_call_id: str,
        result: Any,
        trace: Trace | None,
        said: str = "",
        json_bytes: int = 0,
        *,
        is_plain: bool = False,
        as_json: Any = None,
    ) -> None:
        """Remember a run for its result, when anything of it is to be shown.

        ``trace`` None: the result is a recorded outcome, of which nothing is known here, and which must not pass for
        another run's. So is what is too large to be kept. ``said`` stands in place of a result that is nothing, or of
        one of ``json_bytes`` that is too large. ``is_plain``: it holds no content. ``as_json``: what it is without the
        dates, bytes and sets that it holds.
        """
        if result is not None and not said and as_json is None and not self._options.tells_of_runs:
            return
        run = self._run_of(outer_tool_call_id, result, trace, said, json_bytes, is_plain, as_json)
        with self._lock:
            self._kept.append(run)
            self._kept_bytes += run.size
            while len(self._kept) > MAX_KEPT_TRACES or self._kept_bytes > MAX_KEPT_BYTES:
                self._forget(self._kept.popleft())

    def _run_of(
        self,
        outer_tool_call_id: str,
        result: Any,
        trace: Trace | None,
        said: str,
        json_bytes: int,
        is_plain: bool,
        as_json: Any,
    ) -> _Run:
        needed = None if trace is None or not self._options.tells_of_runs else self._needed(trace)
        size = len(said) + (json_bytes if needed is None else _kept_bytes(needed))
        if size > MAX_KEPT_BYTES:
            return _Run(outer_tool_call_id, result if _is_shared(result) else None, None, 0, said, is_plain)
        return _Run(outer_tool_call_id, result, needed, size, said, is_plain, as_json)

    def _forget(self, run: _Run) -> None:
        self._kept_bytes -= run.size
        if _is_shared(run.result):
            # Whoever had it may still ask: an equal result of a later run under the same id must not pass for it.
            self._forgotten[run.outer_tool_call_id, type(run.result), run.result] = None
            if len(self._forgotten) > _MAX_FORGOTTEN:
                self._forgotten.popitem(last=False)

    def show(self, result: Any, tool_call_id: str | None) -> Shown:
        """Return ``{"type": "text" | "json", "value": ...}`` for a result. An interrupt stays as it is."""
        return with_content(*self.show_apart(result, tool_call_id))

    def show_apart(self, result: Any, tool_call_id: str | None) -> tuple[Shown, list[MediaContent]]:
        """Return the same without images, audio and files, and these."""
        if _is_interrupt(result):
            return shown(result), []
        run, most = self._run_that_gave(result, tool_call_id), self._options.max_model_characters
        if run is not None and run.as_json is not None:
            result = run.as_json
        elif self.has_rich_values:
            result = _without_rich_values(result)
        result, parts = (result, []) if run is not None and run.is_plain else split_content(result)
        said = "" if run is None else run.said
        if not said and most is not None and is_beyond(result, most):
            said = too_large_text(result, most)
        if not self._options.tells_of_runs:
            return {"type": "text", "value": said} if said else _shown(result), parts
        value = self._told(result, said, None if run is None else run.trace)
        if most is not None and is_beyond(value, most):
            for entry in value.get("nestedTools", ()):
                entry.pop("output", None)
            value["outputsLeftOut"] = True
        return {"type": "json", "value": value}, parts

    def _told(self, result: Any, said: str, trace: Trace | None) -> dict[str, Any]:
        """Return a result, or what is said in its place, beside what is to be told of its run."""
        value: dict[str, Any] = {"result": said if said and result is not None else result}
        if said and result is None:
            value["note"] = said
        if self._options.summarises:
            value |= self._summary(trace)
        if self._options.include_console:
            lines = () if trace is None else trace.console
            is_bounded = self._options.max_model_characters is not None
            value["console"] = printed(lines) if is_bounded else "\n".join(line.text for line in lines)
        return value

    def _needed(self, trace: Trace) -> Trace:
        """Return the trace without what is never shown: it is kept for a while, and outputs may be large."""
        from ...trace.events import NestedToolResultEvent

        outputs = self._options.include_nested_tool_outputs
        requests = tuple(
            _without_values(one, keeps_output=outputs) if isinstance(one, NestedToolResultEvent) else one
            for one in trace.bridge_requests
        )
        return dataclasses.replace(trace, bridge_requests=requests)

    def _run_that_gave(self, result: Any, tool_call_id: str | None) -> _Run | None:
        """Return the one run that this result certainly came from, else None."""
        with self._lock:
            if _is_shared(result) and (tool_call_id or "", type(result), result) in self._forgotten:
                return None
            runs = [run for run in self._kept if run.gave(result, tool_call_id)]
        return runs[0] if len(runs) == 1 else None

    def _summary(self, trace: Trace | None) -> dict[str, Any]:
        entries = list(self._entries(trace)) if trace is not None else []
        maximum = self._options.max_summary_entries
        left_out = len(entries) - maximum
        return {"nestedTools": entries[:maximum], **({"nestedToolsLeftOut": left_out} if left_out > 0 else {})}

    def _entries(self, trace: Trace) -> Iterator[dict[str, Any]]:
        from ...trace.events import FetchResultEvent

        options = self._options
        for request in trace.bridge_requests:
            ended = {"status": request.status, "replayed": request.replayed}
            if isinstance(request, FetchResultEvent):
                if options.include_fetch_summary:
                    yield {"kind": "fetch", "method": request.method, "url": request.url, **ended}
            elif options.include_nested_tool_summary or options.include_nested_tool_outputs:
                yield {
                    "kind": "tool",
                    "toolName": request.tool_name,
                    "toolCallId": request.tool_call_id,
                    **ended,
                    **self._output(request),
                }

    def _output(self, request: NestedToolResultEvent) -> dict[str, Shown]:
        if not self._options.include_nested_tool_outputs or request.status != "fulfilled":
            return {}
        show, most = self._show_of(request.tool_name), self._options.max_model_characters
        output = _shown(request.output) if show is None else _shown_by(show, request.output)
        if most is not None and is_beyond(output.get("value"), most):
            output = {"type": "text", "value": too_large_text(output.get("value"), most)}
        return {"output": output}


class OneCallOutputs(ModelOutputs):
    """Shows the results of one call of the tool: a result is that of its last run, or of none that is known."""

    def __init__(self, options: ModelOutput, show_of: Callable[[str], Show | None]) -> None:
        super().__init__(options, show_of)
        self._last: _Run | None = None
        self.tells_beside = True  # its last run is known, whatever it gave

    def keep(
        self,
        outer_tool_call_id: str,
        result: Any,
        trace: Trace | None,
        said: str = "",
        json_bytes: int = 0,
        *,
        is_plain: bool = False,
        as_json: Any = None,
    ) -> None:
        """Remember the run, in place of the one before, however large it is."""
        run = self._run_of(outer_tool_call_id, result, trace, said, json_bytes, is_plain, as_json)
        self._last = dataclasses.replace(run, result=result)

    def _run_that_gave(self, result: Any, tool_call_id: str | None) -> _Run | None:
        run = self._last
        return run if run is not None and run.gave(result, tool_call_id) else None


@record
class _Run:
    """A run that completed. Keeping the result itself means that no other object can ever take its identity.

    ``size`` counts the bytes that are kept. ``said`` is what a model reads in place of the result.
    """

    outer_tool_call_id: str
    result: Any
    trace: Trace | None
    size: int
    said: str = ""
    is_plain: bool = False
    as_json: Any = None

    def gave(self, result: Any, tool_call_id: str | None) -> bool:
        """Return True when the result may come from this run.

        It is the very object. Values that are one object everywhere need the id, which is none of an invocation's own:
        models repeat theirs, and two runs that gave the same value under one id cannot be told apart.
        """
        if not _is_shared(result):
            return result is self.result and tool_call_id in (None, self.outer_tool_call_id)
        return tool_call_id == self.outer_tool_call_id and _is_same(result, self.result)


def _without_rich_values(result: Any) -> Any:
    """Return a result with JSON in place of its dates, bytes and sets."""
    if isinstance(result, ContentResult):
        return ContentResult(_without_rich_values(result.value), result.content)
    return to_plain(to_tagged(result))


def _is_shared(value: Any) -> bool:
    """Return True for what Python may keep one object of: None, booleans, numbers, short text."""
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and len(value) <= 1)


def _without_values(result: NestedToolResultEvent, *, keeps_output: bool) -> NestedToolResultEvent:
    output = held(result, "output") if keeps_output else None
    kept = {"output": output, "output_bytes": held(result, "output_bytes")}
    return dataclasses.replace(result, input=None, interrupt=None, shown_input=None, **kept)


def _kept_bytes(trace: Trace) -> int:
    """Count what a trace keeps: the result, outputs, names and console output. What is too much is not counted on."""
    size = trace.result_bytes or 0
    size += sum(len(one.label) for one in trace.bridge_requests) + sum(len(line.text) for line in trace.console)
    for request in trace.bridge_requests:
        if size > MAX_KEPT_BYTES:
            break
        size += (request.output_bytes or 0) if _has_output(request) else 0
    return size


def _has_output(request: NestedToolResultEvent | FetchResultEvent) -> bool:
    return request.kind == "tool" and held(request, "output") is not None


def _is_same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right


def _shown(value: Any) -> Shown:
    return {"type": "text" if isinstance(value, str) else "json", "value": value}


def _shown_by(show: Show, output: Any) -> Shown:
    """Return what a tool's own function makes of its output; it is host code and may fail."""
    try:
        made: Any = show(output)
        plain = decode_json(encode_json(made, what="the model output of a tool"))
    except Exception as error:  # noqa: BLE001 - a summary must not cost the result it stands beside
        log_tool_failure("to_model_output of a tool failed", error)
        return dict(_NOT_SHOWN)
    if isinstance(plain, dict) and {"type", "value"} <= set(cast("dict[str, Any]", plain)):
        return cast("Shown", plain)
    return _shown(plain)


def shown(result: Any) -> Shown:
    """Return a result as it is shown with nothing beside it."""
    from ...interrupts.interrupt import Interrupt

    if isinstance(result, Interrupt):
        return {"type": "json", "value": result.to_dict()}
    plain, parts = split_content(result) if MediaContent.exist else (result, [])
    return with_content(_shown(plain), parts)


def _is_interrupt(value: Any) -> bool:
    from ...interrupts.interrupt import Interrupt

    if not isinstance(value, Mapping) or "continuation" not in value:
        return isinstance(value, Interrupt)
    try:
        Interrupt.from_dict(cast("Mapping[str, Any]", value))
    except CodeModeProtocolError:
        return False
    return True
