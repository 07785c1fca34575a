"""A whole invocation as data, as text and as HTML. Its texts are hostile: one line each, and escaped in HTML."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, cast

from ..records import record
from .events import ConsoleEvent, Event, FetchResultEvent, NestedToolResultEvent
from .failures import failure_line, message_of
from .late_values import Late, held, late
from .visible_text import aligned, counted, one_line

_MAX_LABEL_CHARACTERS = 80
_MAX_ROWS = 200
_MAX_CONSOLE_LINES = 50
_MAX_HTML_LABEL = 60
_MAX_TEXT_CHARACTERS = 300
_MIN_BAR_PERCENT = 0.5
_MAX_INPUT_CHARACTERS = 60
_MAX_SHOWN_INPUT_CHARACTERS = 300
_THROWN = "CodeModeError"  # the class of an error that the program itself has thrown
_MASK = '"[secret]"'
_MAX_SECRET_CHARACTERS = 500
# In the JSON text of an input, perhaps of its beginning alone: a text that its name calls a secret.
_SECRETS = re.compile(
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
_HATCH = "repeating-linear-gradient(45deg,rgba(255,255,255,.55) 0 2px,transparent 2px 6px)"
_MONO = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
_FAINT = "opacity:.65"
_BELOW = "grid-column:1/-1;margin:-3px 0 0 12px"  # a line under that of its call


@late("bridge_requests")
@record(kw_only=True)
class Trace(Event):
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
        head = [f"{self.status} in {self.duration_ms:.1f} ms, {counted(len(self.bridge_requests), 'call')}"]
        if self.error is not None:
            head.append("  " + _reason(self.error))
        head += [f"  note: {note}" for note in self.notes or ()]
        rows = [_timeline_row(request, self.started_at_ms) for request in self.bridge_requests]
        return "\n".join([*head, *("  " + line for line in aligned(rows))])

    def to_html(self) -> str:
        """Return a waterfall for a notebook or a page: one ``<div>`` that needs no style sheet and no script."""
        return _trace_html(self)

    def _repr_html_(self) -> str:
        return self.to_html()


def _reason(error: BaseException) -> str:
    """Return why a program failed, on one line: what was thrown, what is behind it, and where."""
    found = getattr(error, "details", None)
    details = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    name, line, column = (details.get(key) for key in ("name", "line", "column"))
    thrown = name if isinstance(name, str) and type(error).__name__ == _THROWN else type(error).__name__
    cause = "" if error.__cause__ is None else f" ({failure_line(error)})"
    place = f" at line {line}, column {column}" if type(line) is int and type(column) is int else ""
    return one_line(f"{thrown}: {message_of(error)}{cause}", _MAX_TEXT_CHARACTERS) + place


def _input_text(request: NestedToolResultEvent | FetchResultEvent, most: int) -> str:
    """Return the input of a call on one line, shortened, without secrets. The label of a fetch says its URL."""
    if isinstance(request, FetchResultEvent):
        return ""
    value: object = held(request, "input")
    text = value.text if isinstance(value, Late) else ""
    if not text:
        plain = request.input
        text = "" if not plain else json.dumps(plain, ensure_ascii=False, default=str, separators=(",", ":"))
    text = text[: most + _MAX_SECRET_CHARACTERS]
    return one_line(_CREDENTIALS.sub("", _SECRETS.sub(rf"\1{_MASK}", text)), most)


def _timeline_row(request: NestedToolResultEvent | FetchResultEvent, zero_ms: float) -> tuple[str, ...]:
    size = "" if request.output_bytes is None else f", {counted(request.output_bytes, 'byte')}"
    replayed = ", replayed" if request.replayed else ""
    started, lasted = request.started_at_ms - zero_ms, request.duration_ms
    label = one_line(request.label, _MAX_LABEL_CHARACTERS)
    failure = f": {failure_line(request.error)}" if request.status == "rejected" and request.error else ""
    ending = f"{request.status}{size}{replayed}{failure}"
    call = f"{label} {_input_text(request, _MAX_INPUT_CHARACTERS)}".rstrip()
    return f"{started:8.1f} ms", f"+{lasted:7.1f} ms", call, ending


def _trace_html(trace: Trace) -> str:
    """Return one ``<div>`` with everything in it. Styles are inline, because notebooks remove style sheets."""
    span_ms = max([trace.duration_ms, *(_end_ms(trace, one) for one in trace.bridge_requests), 0.001])
    rows = [_row(request, trace, span_ms) for request in trace.bridge_requests[:_MAX_ROWS]]
    parts = [_heading(trace), _error(trace), _waterfall(rows, span_ms)]
    parts += [_left_out(len(trace.bridge_requests), _MAX_ROWS, "calls"), _console(trace.console)]
    return f'<div style="font:13px/1.5 system-ui,sans-serif;max-width:860px;color:inherit">{"".join(parts)}</div>'


def _heading(trace: Trace) -> str:
    count = len(trace.bridge_requests)
    replayed = sum(request.replayed for request in trace.bridge_requests)
    facts = f"{trace.duration_ms:.1f} ms · {counted(count, 'call')}"
    facts += f", {replayed} replayed" if replayed else ""
    colour = _COLOURS[trace.status]
    return (
        f'<div style="margin:4px 0 6px"><b style="color:{colour}">{trace.status}</b> '
        f'<span style="{_FAINT}">in {facts} · {_shown(trace.outer_tool_call_id, _MAX_HTML_LABEL)}</span></div>'
    )


def _waterfall(rows: list[str], span_ms: float) -> str:
    if not rows:
        return ""
    ends = "display:flex;justify-content:space-between"
    axis = f'<div style="{ends};{_FAINT};font-size:11px"><span>0</span><span>{span_ms:.1f} ms</span></div>'
    columns = "display:grid;grid-template-columns:minmax(90px,max-content) minmax(120px,1fr) max-content"
    return (
        f'<div style="{columns};gap:3px 12px;align-items:center"><span></span>{axis}<span></span>{"".join(rows)}</div>'
    )


def _row(request: NestedToolResultEvent | FetchResultEvent, trace: Trace, span_ms: float) -> str:
    left = min(max((request.started_at_ms - trace.started_at_ms) / span_ms * 100, 0.0), 100 - _MIN_BAR_PERCENT)
    width = min(max(_width_ms(request) / span_ms * 100, _MIN_BAR_PERCENT), 100 - left)
    colour = _COLOURS[request.status]
    fill = f"{_HATCH},{colour}" if request.replayed else colour
    label = _shown(request.label, _MAX_HTML_LABEL)
    narrowest = "14px" if request.replayed else "3px"  # wide enough to see the hatching
    place = f"left:min({left:.2f}%,100% - {narrowest});width:{width:.2f}%;min-width:{narrowest}"
    bar = f"position:absolute;top:2px;bottom:2px;{place};border-radius:2px"
    track = "position:relative;height:16px;background:rgba(128,128,128,.14);border-radius:2px"
    return (
        f'<span style="{_MONO};overflow-wrap:anywhere" title="{label}">{label}</span>'
        f'<div style="{track}"><div style="{bar};background:{fill}"></div></div>'
        f'<span style="{_FAINT};white-space:nowrap;font-variant-numeric:tabular-nums">{_ending(request)}</span>'
        f"{_input(request)}{_failure(request)}"
    )


def _input(request: NestedToolResultEvent | FetchResultEvent) -> str:
    if not (text := _input_text(request, _MAX_SHOWN_INPUT_CHARACTERS)):
        return ""
    style = f"{_BELOW};{_MONO};font-size:12px;{_FAINT};overflow-wrap:anywhere"
    return f'<span style="{style}">{_escape(text)}</span>'


def _failure(request: NestedToolResultEvent | FetchResultEvent) -> str:
    if request.status != "rejected" or request.error is None:
        return ""
    style = f"{_BELOW};{_MONO};font-size:12px;color:{_COLOURS['rejected']};overflow-wrap:anywhere"
    return f'<span style="{style}">{_shown(failure_line(request.error), _MAX_TEXT_CHARACTERS)}</span>'


def _ending(request: NestedToolResultEvent | FetchResultEvent) -> str:
    words = [f"{request.duration_ms:.1f} ms"]
    if request.status != "fulfilled":
        words.append(request.status)
    if request.output_bytes is not None:
        words.append(counted(request.output_bytes, "byte"))
    if request.replayed:
        words.append("replayed")
    return " · ".join(words)


def _error(trace: Trace) -> str:
    if trace.error is None:
        return ""
    text = _escape(_reason(trace.error))
    return f'<div style="color:{_COLOURS["failed"]};margin:0 0 6px;overflow-wrap:anywhere">{text}</div>'


def _console(lines: tuple[ConsoleEvent, ...]) -> str:
    if not lines:
        return ""
    shown = "".join(_console_line(line) for line in lines[:_MAX_CONSOLE_LINES])
    more = _left_out(len(lines), _MAX_CONSOLE_LINES, "lines")
    edge = "border-left:2px solid rgba(128,128,128,.4);padding-left:8px"
    return f'<div style="{_MONO};font-size:12px;margin-top:8px;{edge}">{shown}{more}</div>'


def _console_line(line: ConsoleEvent) -> str:
    colour = {"error": f"color:{_COLOURS['failed']}", "warn": f"color:{_COLOURS['interrupted']}"}.get(line.level, "")
    level = f'<span style="{_FAINT}">{_escape(line.level)}</span>'
    text = _shown(line.text, _MAX_TEXT_CHARACTERS)
    return f'<div style="overflow-wrap:anywhere;{colour}">{level} {text}</div>'


def _left_out(count: int, maximum: int, what: str) -> str:
    return f'<div style="{_FAINT}">and {count - maximum} more {what}</div>' if count > maximum else ""


def _end_ms(trace: Trace, request: NestedToolResultEvent | FetchResultEvent) -> float:
    return request.started_at_ms + _width_ms(request) - trace.started_at_ms


def _width_ms(request: NestedToolResultEvent | FetchResultEvent) -> float:
    """Return how long a call took in this run, in which one that was replayed took next to nothing."""
    return request.completed_at_ms - request.started_at_ms if request.replayed else request.duration_ms


def _escape(text: str) -> str:
    from html import escape  # late: only a notebook needs it

    return escape(text)


def _shown(text: str, max_characters: int) -> str:
    return _escape(one_line(text, max_characters))
