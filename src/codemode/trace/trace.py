"""A whole invocation as data, text and HTML; texts are hostile and escaped, one a line."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, cast

from ..records import record
from .events import ConsoleEvent, FetchResultEvent, InvocationEvent, NestedToolResultEvent
from .failures import format_cause_or_error_line, get_exception_text
from .late_values import LazyValue, get_stored_value, with_lazy_fields
from .visible_text import align_columns, clip_to_visible_line, format_count

_MAX_LABEL_CHARACTERS = 80
_MAX_ROWS = 200
_MAX_CONSOLE_LINES = 50
_MAX_HTML_LABEL_CHARACTERS = 60
_MAX_TEXT_CHARACTERS = 300
_MIN_BAR_PERCENT = 0.5
_MAX_INPUT_CHARACTERS = 60
_MAX_SHOWN_INPUT_CHARACTERS = 300
_GUEST_ERROR_CLASS = "CodeModeError"  # the class of an error that the program itself has thrown
_REDACTED = '"[secret]"'
_MAX_SECRET_CHARACTERS = 500
# In the JSON text of an input, perhaps of its beginning alone: a text that its name calls a secret.
_SECRET_MEMBER = re.compile(
    r'("[^"\\]{0,40}(?:(?:passw|passphrase|secret|api_?-?key|authoriz|credential|private_?-?key|cookie)[^"\\]{0,40}|token)"'
    r'\s?:\s?)"(?:[^"\\]|\\.)*+(?:"|\\?\Z)',
    re.IGNORECASE,
)
_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s\"'<>]{1,500}@")

# Mid tones that stand out from a white page and from a black one; all other text has the page's own colour.
_COLOURS = {
    "fulfilled": "#2e9e6b",
    "completed": "#2e9e6b",
    "rejected": "#e0484d",
    "failed": "#e0484d",
    "interrupted": "#d08a1e",
    "aborted": "#8a8f98",
}
_REPLAYED_PATTERN = "repeating-linear-gradient(45deg,rgba(255,255,255,.55) 0 2px,transparent 2px 6px)"
_MONOSPACE_STYLE = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
_FAINT_STYLE = "opacity:.65"
_DETAIL_LINE_STYLE = "grid-column:1/-1;margin:-3px 0 0 12px"  # a line under that of its call


@with_lazy_fields("bridge_requests")
@record(kw_only=True)
class Trace(InvocationEvent):
    """A whole invocation: every bridge request in the order in which they ended, and the console output.

    ``source_bytes`` counts the program, ``result_bytes`` the JSON text that it returned. ``tool_kind`` and
    ``tool_input_kind`` are those of `InvocationStarted`. ``notes`` say what was done to
    the program's text before it ran.
    """

    status: Literal["completed", "failed", "interrupted"]
    started_at_ms: float
    completed_at_ms: float
    duration_ms: float
    bridge_requests: tuple[NestedToolResultEvent | FetchResultEvent, ...]
    console: tuple[ConsoleEvent, ...]
    source_bytes: int = 0
    result_bytes: int | None = None
    interrupted_by: Any = None
    error: BaseException | None = None
    tool_kind: str | None = None
    tool_input_kind: str | None = None
    notes: tuple[str, ...] | None = None

    def to_text(self) -> str:
        """Return an aligned timeline for a terminal: why it failed, and each call with its input, shortened."""
        head = [f"{self.status} in {self.duration_ms:.1f} ms, {format_count(len(self.bridge_requests), 'call')}"]
        if self.error is not None:
            head.append("  " + _describe_failure(self.error))
        head += [f"  note: {note}" for note in self.notes or ()]
        rows = [_create_timeline_row(request, self.started_at_ms) for request in self.bridge_requests]
        return "\n".join([*head, *("  " + line for line in align_columns(rows))])

    def to_html(self) -> str:
        """Return a waterfall for a notebook or a page: one ``<div>`` that needs no style sheet and no script."""
        return _render_trace(self)

    def _repr_html_(self) -> str:
        return self.to_html()


def _describe_failure(error: BaseException) -> str:
    """Return why a program failed, on one line: what was thrown, what is behind it, and where."""
    details_found = getattr(error, "details", None)
    details = cast("dict[str, Any]", details_found) if isinstance(details_found, dict) else {}
    name, line, column = (details.get(key) for key in ("name", "line", "column"))
    class_name = name if isinstance(name, str) and type(error).__name__ == _GUEST_ERROR_CLASS else type(error).__name__
    cause = "" if error.__cause__ is None else f" ({format_cause_or_error_line(error)})"
    location = f" at line {line}, column {column}" if type(line) is int and type(column) is int else ""
    return clip_to_visible_line(f"{class_name}: {get_exception_text(error)}{cause}", _MAX_TEXT_CHARACTERS) + location


def _format_redacted_input(request: NestedToolResultEvent | FetchResultEvent, max_characters: int) -> str:
    """Return the input of a call on one line, shortened, without secrets. The label of a fetch says its URL."""
    if isinstance(request, FetchResultEvent):
        return ""
    value: object = get_stored_value(request, "input")
    text = value.text if isinstance(value, LazyValue) else ""
    if not text:
        input_value = request.input
        text = (
            "" if not input_value else json.dumps(input_value, ensure_ascii=False, default=str, separators=(",", ":"))
        )
    text = text[: max_characters + _MAX_SECRET_CHARACTERS]
    return clip_to_visible_line(_CREDENTIALS.sub("", _SECRET_MEMBER.sub(rf"\1{_REDACTED}", text)), max_characters)


def _create_timeline_row(
    request: NestedToolResultEvent | FetchResultEvent, trace_started_at_ms: float
) -> tuple[str, ...]:
    size = "" if request.output_bytes is None else f", {format_count(request.output_bytes, 'byte')}"
    replayed = ", replayed" if request.replayed else ""
    started, lasted = request.started_at_ms - trace_started_at_ms, request.duration_ms
    label = clip_to_visible_line(request.label, _MAX_LABEL_CHARACTERS)
    failure = f": {format_cause_or_error_line(request.error)}" if request.status == "rejected" and request.error else ""
    status_text = f"{request.status}{size}{replayed}{failure}"
    call = f"{label} {_format_redacted_input(request, _MAX_INPUT_CHARACTERS)}".rstrip()
    return f"{started:8.1f} ms", f"+{lasted:7.1f} ms", call, status_text


def _render_trace(trace: Trace) -> str:
    """Return one ``<div>`` with everything in it. Styles are inline, because notebooks remove style sheets."""
    total_ms = max([trace.duration_ms, *(_compute_end_offset_ms(trace, call) for call in trace.bridge_requests), 0.001])
    rows = [_render_row(request, trace, total_ms) for request in trace.bridge_requests[:_MAX_ROWS]]
    parts = [_render_heading(trace), _render_program_error(trace), _render_waterfall(rows, total_ms)]
    parts += [_render_omitted(len(trace.bridge_requests), _MAX_ROWS, "calls"), _render_console(trace.console)]
    return f'<div style="font:13px/1.5 system-ui,sans-serif;max-width:860px;color:inherit">{"".join(parts)}</div>'


def _render_heading(trace: Trace) -> str:
    count = len(trace.bridge_requests)
    replayed = sum(request.replayed for request in trace.bridge_requests)
    facts = f"{trace.duration_ms:.1f} ms · {format_count(count, 'call')}"
    facts += f", {replayed} replayed" if replayed else ""
    colour = _COLOURS[trace.status]
    call_id = _escape_line(trace.outer_tool_call_id, _MAX_HTML_LABEL_CHARACTERS)
    return (
        f'<div style="margin:4px 0 6px"><b style="color:{colour}">{trace.status}</b> '
        f'<span style="{_FAINT_STYLE}">in {facts} · {call_id}</span></div>'
    )


def _render_waterfall(rows: list[str], span_ms: float) -> str:
    if not rows:
        return ""
    axis_style = "display:flex;justify-content:space-between"
    axis = f'<div style="{axis_style};{_FAINT_STYLE};font-size:11px"><span>0</span><span>{span_ms:.1f} ms</span></div>'
    columns = "display:grid;grid-template-columns:minmax(90px,max-content) minmax(120px,1fr) max-content"
    return (
        f'<div style="{columns};gap:3px 12px;align-items:center"><span></span>{axis}<span></span>{"".join(rows)}</div>'
    )


def _render_row(request: NestedToolResultEvent | FetchResultEvent, trace: Trace, span_ms: float) -> str:
    left = min(max((request.started_at_ms - trace.started_at_ms) / span_ms * 100, 0.0), 100 - _MIN_BAR_PERCENT)
    width = min(max(_compute_bar_duration_ms(request) / span_ms * 100, _MIN_BAR_PERCENT), 100 - left)
    colour = _COLOURS[request.status]
    fill = f"{_REPLAYED_PATTERN},{colour}" if request.replayed else colour
    label = _escape_line(request.label, _MAX_HTML_LABEL_CHARACTERS)
    min_width = "14px" if request.replayed else "3px"  # wide enough to see the hatching
    position_style = f"left:min({left:.2f}%,100% - {min_width});width:{width:.2f}%;min-width:{min_width}"
    bar = f"position:absolute;top:2px;bottom:2px;{position_style};border-radius:2px"
    track = "position:relative;height:16px;background:rgba(128,128,128,.14);border-radius:2px"
    return (
        f'<span style="{_MONOSPACE_STYLE};overflow-wrap:anywhere" title="{label}">{label}</span>'
        f'<div style="{track}"><div style="{bar};background:{fill}"></div></div>'
        f'<span style="{_FAINT_STYLE};white-space:nowrap;font-variant-numeric:tabular-nums">'
        f"{_format_status(request)}</span>"
        f"{_render_input(request)}{_render_call_failure(request)}"
    )


def _render_input(request: NestedToolResultEvent | FetchResultEvent) -> str:
    if not (text := _format_redacted_input(request, _MAX_SHOWN_INPUT_CHARACTERS)):
        return ""
    style = f"{_DETAIL_LINE_STYLE};{_MONOSPACE_STYLE};font-size:12px;{_FAINT_STYLE};overflow-wrap:anywhere"
    return f'<span style="{style}">{_escape_html(text)}</span>'


def _render_call_failure(request: NestedToolResultEvent | FetchResultEvent) -> str:
    if request.status != "rejected" or request.error is None:
        return ""
    style = (
        f"{_DETAIL_LINE_STYLE};{_MONOSPACE_STYLE};font-size:12px;color:{_COLOURS['rejected']};overflow-wrap:anywhere"
    )
    return (
        f'<span style="{style}">{_escape_line(format_cause_or_error_line(request.error), _MAX_TEXT_CHARACTERS)}</span>'
    )


def _format_status(request: NestedToolResultEvent | FetchResultEvent) -> str:
    facts = [f"{request.duration_ms:.1f} ms"]
    if request.status != "fulfilled":
        facts.append(request.status)
    if request.output_bytes is not None:
        facts.append(format_count(request.output_bytes, "byte"))
    if request.replayed:
        facts.append("replayed")
    return " · ".join(facts)


def _render_program_error(trace: Trace) -> str:
    if trace.error is None:
        return ""
    text = _escape_html(_describe_failure(trace.error))
    return f'<div style="color:{_COLOURS["failed"]};margin:0 0 6px;overflow-wrap:anywhere">{text}</div>'


def _render_console(lines: tuple[ConsoleEvent, ...]) -> str:
    if not lines:
        return ""
    rendered_lines = "".join(_render_console_line(line) for line in lines[:_MAX_CONSOLE_LINES])
    more = _render_omitted(len(lines), _MAX_CONSOLE_LINES, "lines")
    border_style = "border-left:2px solid rgba(128,128,128,.4);padding-left:8px"
    return f'<div style="{_MONOSPACE_STYLE};font-size:12px;margin-top:8px;{border_style}">{rendered_lines}{more}</div>'


def _render_console_line(line: ConsoleEvent) -> str:
    colour = {"error": f"color:{_COLOURS['failed']}", "warn": f"color:{_COLOURS['interrupted']}"}.get(line.level, "")
    level = f'<span style="{_FAINT_STYLE}">{_escape_html(line.level)}</span>'
    text = _escape_line(line.text, _MAX_TEXT_CHARACTERS)
    return f'<div style="overflow-wrap:anywhere;{colour}">{level} {text}</div>'


def _render_omitted(count: int, maximum: int, noun: str) -> str:
    return f'<div style="{_FAINT_STYLE}">and {count - maximum} more {noun}</div>' if count > maximum else ""


def _compute_end_offset_ms(trace: Trace, request: NestedToolResultEvent | FetchResultEvent) -> float:
    return request.started_at_ms + _compute_bar_duration_ms(request) - trace.started_at_ms


def _compute_bar_duration_ms(request: NestedToolResultEvent | FetchResultEvent) -> float:
    """Return how long a call took in this run; a replayed call takes almost no time."""
    return request.completed_at_ms - request.started_at_ms if request.replayed else request.duration_ms


def _escape_html(text: str) -> str:
    from html import escape  # late: only a notebook needs it

    return escape(text)


def _escape_line(text: str, max_characters: int) -> str:
    return _escape_html(clip_to_visible_line(text, max_characters))
