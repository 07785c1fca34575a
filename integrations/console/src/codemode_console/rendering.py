"""Pages from templates, all of what they show escaped. Knows no store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import StoredRequest
from codemode.tools.tool import parse_summary

from .errors import Problem
from .sessions import ROOTS_KEY
from .visible import ago, cut, fold, json_beginning, moment, visible, visible_json

_BRIEF_CHARACTERS = 200
_GLIMPSE_CHARACTERS = 120
MAX_LINE_CHARACTERS = 240
"""An input of more characters is not shown whole in a row of the list."""
_HEADLINE_FIELDS = 3
_HEADLINE_VALUE_CHARACTERS = 60


def _environment() -> Environment:
    loader = PackageLoader("codemode_console")
    settings: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "auto_reload": False}
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, **settings)
    made.filters["visible"] = lambda text: visible(str(text))  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    made.filters["json_text"] = visible_json
    made.filters["moment"] = moment
    made.filters["ago"] = ago
    made.filters["headline"] = headline
    made.filters["link_host"] = link_host
    made.filters["brief"] = brief
    made.filters["beginning"] = beginning
    made.filters["glimpse"] = glimpse
    made.filters["fold"] = fold
    return made


def brief(text: str) -> Markup:
    """Return a name that strangers may have chosen, in one line that is not long."""
    more = "\N{HORIZONTAL ELLIPSIS}" if len(text) > _BRIEF_CHARACTERS else ""
    return visible(text[:_BRIEF_CHARACTERS], one_line=True) + more


def beginning(text: str) -> Markup:
    """Return as much of a text that strangers may have written as a page shows of a value."""
    begun = cut(text)
    return begun.text if begun.is_whole else begun.text + " \N{HORIZONTAL ELLIPSIS}"


def glimpse(value: Any) -> Markup:
    """Return the beginning of a value in one line, by which it is told from others."""
    text, is_whole = json_beginning(value, _GLIMPSE_CHARACTERS, indent=None)
    return escape(text) + ("" if is_whole else "\N{HORIZONTAL ELLIPSIS}")


def headline(one: StoredRequest) -> Markup:
    """Say in words what a call will do: the title and summary of the host's tool, else its name and first fields."""
    title = visible((one.title or one.tool_name)[:_BRIEF_CHARACTERS], one_line=True)
    summary = _summary(one) if one.summary else _first_fields(one)
    return title + " " + summary if summary else title


def _summary(one: StoredRequest) -> Markup:
    try:
        parts = parse_summary(one.summary)
    except ValueError:  # of another version of codemode
        return _first_fields(one)
    text = Markup()
    for words, path, number_format in parts:
        text += visible(words, one_line=True)
        if path is not None:
            text += _headline_value(_member(one.input, path), number_format)
    return text


def _first_fields(one: StoredRequest) -> Markup:
    message = one.payload.get("message")
    if isinstance(message, str) and one.kind not in (APPROVAL_KIND, UNKNOWN_OUTCOME_KIND):
        return _headline_value(message)  # what a tool asks in its own words
    values = [value for _, value in _members(one) if isinstance(value, str | int | float) and value != ""]
    return Markup(" \N{MIDDLE DOT} ").join(_headline_value(value) for value in values[:_HEADLINE_FIELDS])


def _member(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = _object(value).get(name)
    return value


def _headline_value(value: Any, number_format: str = "") -> Markup:
    # Marked as a value: what a program chose is told from the words of the host.
    return Markup("<strong>{}</strong>").format(_value_words(value, number_format))


def _value_words(value: Any, number_format: str) -> Markup | str:
    if number_format and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return format(value, number_format)
        except (OverflowError, ValueError):
            pass
    if isinstance(value, str):
        begun = visible(value[:_HEADLINE_VALUE_CHARACTERS], one_line=True)
        return begun + ("" if len(value) <= _HEADLINE_VALUE_CHARACTERS else "\N{HORIZONTAL ELLIPSIS}")
    if value is None:
        return "\N{EM DASH}"
    text, is_whole = json_beginning(value, _HEADLINE_VALUE_CHARACTERS, indent=None)
    return escape(text) + ("" if is_whole else "\N{HORIZONTAL ELLIPSIS}")


def _members(one: StoredRequest) -> list[tuple[str, Any]]:
    """Return the fields of an input in the order of its schema."""
    given, properties = _object(one.input), _object(_object(one.input_schema).get("properties"))
    known = [name for name in properties if name in given]
    return [(name, given[name]) for name in dict.fromkeys([*known, *given])]


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class InputLine:
    """An input in one line of a row: every field with its name, values as JSON, and whether that is all of it."""

    text: Markup
    is_whole: bool


def input_line(one: StoredRequest) -> InputLine:
    """Return the input of a call in one line of at most `MAX_LINE_CHARACTERS`, or the beginning of a longer one."""
    if one.input in (None, {}):
        return InputLine(Markup("no input"), is_whole=True)
    line = _line(one, MAX_LINE_CHARACTERS)
    return line if line.is_whole else _line(one, _GLIMPSE_CHARACTERS)


def _line(one: StoredRequest, most: int) -> InputLine:
    members = _members(one)
    if not members:
        text, is_whole = json_beginning(one.input, most, indent=None)
        return InputLine(escape(text) + ("" if is_whole else "\N{HORIZONTAL ELLIPSIS}"), is_whole)
    pieces, left = list[Markup](), most
    for name, value in members:
        # A name with anything but letters and digits could look like several fields.
        shown = name if name.isidentifier() and name.isascii() else json_beginning(name, left, indent=None)[0]
        text, is_whole = json_beginning(value, max(0, left - len(shown)), indent=None)
        left -= len(shown) + len(text) + 2
        if left < 0 or not is_whole:
            pieces.append(Markup("<i>{}</i>: {}\N{HORIZONTAL ELLIPSIS}").format(shown[:most], text))
            return InputLine(Markup(", ").join(pieces), is_whole=False)
        pieces.append(Markup("<i>{}</i>: {}").format(shown, text))
    return InputLine(Markup(", ").join(pieces), is_whole=True)


def link_host(text: str) -> str:
    """Return the host of a URL of http or https; nothing for all else, which no page links."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return ""
    is_plain = text.isascii() and text.isprintable() and not set(text) & set(' "<>\\^`{|}')
    return host or "" if is_plain and parts.scheme in ("http", "https") and "@" not in parts.netloc else ""


_ENVIRONMENT = _environment()


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
    """Return a page. In templates ``root`` is where the console is mounted, ``here`` the path below it.

    ``principal`` is the signed-in user, None without one.
    """
    scope = request.scope
    known = {"root": scope.get("root_path", ""), "principal": scope.get("console_principal")}
    known["here"] = scope["path"].removeprefix(known["root"]) or "/"
    known |= {"sequence": scope.get("console_sequence"), "is_posted": scope["method"] == "POST"}
    known["is_private"] = ROOTS_KEY in scope and scope[ROOTS_KEY][1] == known["root"]
    text = _ENVIRONMENT.get_template(template).render(**known, **context)
    return HTMLResponse(text, status)


def wants_json(request: Request) -> bool:
    """Say whether the caller is a program that reads JSON."""
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def problem_page(request: Request, problem: Problem) -> Response:
    """Return what is said of a problem, as a page or as JSON."""
    if wants_json(request):
        response: Response = JSONResponse({"error": problem.to_json()}, problem.status)
    else:
        response = page(request, "problem.html", status=problem.status, problem=problem)
    response.headers.update(problem.headers)
    return response
