"""Render pages from templates, with all values escaped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import StoredRequest
from codemode.tools.tool import parse_summary_template

from .decisions import find_edited_input
from .errors import Problem
from .forms import ABSENT
from .record_view import pair_changes
from .sessions import ROOTS_KEY
from .visible_text import (
    create_expandable_excerpt,
    create_relative_time_element,
    create_time_element,
    to_truncated_visible_json,
    to_visible_html,
    to_visible_json,
)

_MAX_NAME_CHARACTERS = 200
_MAX_PREVIEW_CHARACTERS = 120
MAX_ROW_INPUT_CHARACTERS = 240
"""Longer inputs are truncated in rows of the list."""
_MAX_HEADLINE_FIELDS = 3
_MAX_HEADLINE_VALUE_CHARACTERS = 60


def _create_environment() -> Environment:
    loader = PackageLoader("codemode_console")
    settings: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "auto_reload": False}
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, **settings)
    environment.filters["visible"] = lambda text: to_visible_html(str(text))  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    environment.filters["json_text"] = to_visible_json
    environment.filters["time"] = create_time_element
    environment.filters["age"] = create_relative_time_element
    environment.filters["headline"] = create_headline
    environment.filters["link_host"] = find_link_host
    environment.filters["change_pairs"] = cast("Any", pair_changes)
    environment.filters["name"] = to_short_visible_name_html
    environment.filters["preview"] = preview_value
    environment.filters["expandable_excerpt"] = create_expandable_excerpt
    return environment


def to_short_visible_name_html(text: str) -> Markup:
    """Return an untrusted name as one short line."""
    more = "\N{HORIZONTAL ELLIPSIS}" if len(text) > _MAX_NAME_CHARACTERS else ""
    return to_visible_html(text[:_MAX_NAME_CHARACTERS], one_line=True) + more


def preview_value(value: Any) -> Markup:
    """Return the beginning of a value as one line."""
    text, is_whole = to_truncated_visible_json(value, _MAX_PREVIEW_CHARACTERS, indent=None)
    return escape(text) + ("" if is_whole else "\N{HORIZONTAL ELLIPSIS}")


def create_headline(call: StoredRequest) -> Markup:
    """Return what a call does: the title and summary of its tool, or the tool's name and its first fields.

    A call that was approved with changes is described by its changed input.
    """
    approved_input = find_edited_input(call)
    if approved_input is not ABSENT:
        call = replace(call, input=approved_input)
    title = to_visible_html((call.title or call.tool_name)[:_MAX_NAME_CHARACTERS], one_line=True)
    summary = _format_summary(call) if call.summary else _format_first_fields(call)
    return title + " " + summary if summary else title


def _format_summary(call: StoredRequest) -> Markup:
    try:
        parts = parse_summary_template(call.summary)
    except ValueError:  # written by another version of codemode
        return _format_first_fields(call)
    text = Markup()
    for text_part, path, number_format in parts:
        text += to_visible_html(text_part, one_line=True)
        if path is not None:
            text += _format_headline_value(_find_member(call.input, path), number_format)
    return text


def _format_first_fields(call: StoredRequest) -> Markup:
    message = call.payload.get("message")
    if isinstance(message, str) and call.kind not in (APPROVAL_KIND, UNKNOWN_OUTCOME_KIND):
        return _format_headline_value(message)  # the tool's question
    values = [value for _, value in _sort_input_fields(call) if isinstance(value, str | int | float) and value != ""]
    return Markup(" \N{MIDDLE DOT} ").join(_format_headline_value(value) for value in values[:_MAX_HEADLINE_FIELDS])


def _find_member(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = _as_object_or_empty(value).get(name)
    return value


def _format_headline_value(value: Any, number_format: str = "") -> Markup:
    # Values that a program chose are marked, to distinguish them from the host's text.
    return Markup("<strong>{}</strong>").format(_format_value(value, number_format))


def _format_value(value: Any, number_format: str) -> Markup | str:
    if number_format and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return format(value, number_format)
        except (OverflowError, ValueError):
            pass
    if isinstance(value, str):
        beginning = to_visible_html(value[:_MAX_HEADLINE_VALUE_CHARACTERS], one_line=True)
        return beginning + ("" if len(value) <= _MAX_HEADLINE_VALUE_CHARACTERS else "\N{HORIZONTAL ELLIPSIS}")
    if value is None:
        return "\N{EM DASH}"
    text, is_whole = to_truncated_visible_json(value, _MAX_HEADLINE_VALUE_CHARACTERS, indent=None)
    return escape(text) + ("" if is_whole else "\N{HORIZONTAL ELLIPSIS}")


def _sort_input_fields(call: StoredRequest) -> list[tuple[str, Any]]:
    """Return the fields of an input in the order of its schema."""
    fields, properties = (
        _as_object_or_empty(call.input),
        _as_object_or_empty(_as_object_or_empty(call.input_schema).get("properties")),
    )
    declared_names = [name for name in properties if name in fields]
    return [(name, fields[name]) for name in dict.fromkeys([*declared_names, *fields])]


def _as_object_or_empty(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class InputLine:
    """An input as one line of fields and JSON values. ``is_whole`` is False if it is truncated."""

    text: Markup
    is_whole: bool


def format_input_line(call: StoredRequest) -> InputLine:
    """Return an input as one line of at most `MAX_ROW_INPUT_CHARACTERS`, or the beginning of a longer one."""
    if call.input in (None, {}):
        return InputLine(Markup("no input"), is_whole=True)
    line = _format_input_line_within(call, MAX_ROW_INPUT_CHARACTERS)
    return line if line.is_whole else _format_input_line_within(call, _MAX_PREVIEW_CHARACTERS)


def _format_input_line_within(call: StoredRequest, max_characters: int) -> InputLine:
    members = _sort_input_fields(call)
    if not members:
        text, is_whole = to_truncated_visible_json(call.input, max_characters, indent=None)
        return InputLine(escape(text) + ("" if is_whole else "\N{HORIZONTAL ELLIPSIS}"), is_whole)
    pieces, characters_left = list[Markup](), max_characters
    for name, value in members:
        # Other names are quoted, since they could look like several fields.
        displayed_name = (
            name
            if name.isidentifier() and name.isascii()
            else to_truncated_visible_json(name, characters_left, indent=None)[0]
        )
        text, is_whole = to_truncated_visible_json(value, max(0, characters_left - len(displayed_name)), indent=None)
        characters_left -= len(displayed_name) + len(text) + 2
        if characters_left < 0 or not is_whole:
            pieces.append(Markup("<i>{}</i>: {}\N{HORIZONTAL ELLIPSIS}").format(displayed_name[:max_characters], text))
            return InputLine(Markup(", ").join(pieces), is_whole=False)
        pieces.append(Markup("<i>{}</i>: {}").format(displayed_name, text))
    return InputLine(Markup(", ").join(pieces), is_whole=True)


def find_link_host(text: str) -> str:
    """Return the host of an http or https URL; "" for other texts, which pages do not link."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return ""
    is_unambiguous = text.isascii() and text.isprintable() and not set(text) & set(' "<>\\^`{|}')
    return host or "" if is_unambiguous and parts.scheme in ("http", "https") and "@" not in parts.netloc else ""


_ENVIRONMENT = _create_environment()


def render_page(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """Return a page made from a template.

    Templates also get ``root`` (where the console is mounted), ``here`` (the path below it) and ``principal`` (the
    signed-in user, None without one).
    """
    scope = request.scope
    root = scope.get("root_path", "")
    common = {
        "root": root,
        "here": scope["path"].removeprefix(root) or "/",
        "principal": scope.get("console_principal"),
        "sequence": scope.get("console_sequence"),
        "is_posted": scope["method"] == "POST",
        "is_private": ROOTS_KEY in scope and scope[ROOTS_KEY][1] == root,
    }
    return HTMLResponse(_ENVIRONMENT.get_template(template).render(**common, **values), status)


def wants_json(request: Request) -> bool:
    """Return whether the caller asks for JSON."""
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def problem_response(request: Request, problem: Problem) -> Response:
    """Return a problem as a page or as JSON."""
    if wants_json(request):
        response: Response = JSONResponse({"error": problem.to_json()}, problem.status)
    else:
        response = render_page(request, "problem.html", status=problem.status, problem=problem)
    response.headers.update(problem.headers)
    return response
