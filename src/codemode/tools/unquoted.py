"""What is wrong with a value, in words that hold nothing of it: for one that the host's pipeline has not let through.

A validator quotes what it is given, a key of an object is data, and the error of a serialiser says what it likes. Kept
are places that the schema names, and sentences that are made of the schema alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ..data.narrowing import is_array, mapping_or_empty
from ..errors import HOST_TOOL_ERROR, CodeModeError, CodeModeSerializationError, CodeModeToolError
from ..host import steps
from ..schemas.compiled import Problem, SchemaMismatch, unique
from ..schemas.json_schema.walk import subschemas
from .prepared import PreparedTool, wrong_value
from .tool_schemas import Mode

_SIZES = frozenset({"bytes", "max_bytes", "max_values"})
_STEP = re.compile(r"\.?(?P<name>[^\W\d]\w*)|\[(?P<index>[0-9]+)\]|\[(?P<text>\"(?:[^\"\\]|\\.)*\")\]")
# Ours first, then pydantic's: what comes behind the comma of "a valid" may quote.
_OF_THE_SCHEMA = re.compile(
    r"expected [a-z]+(?: or [a-z]+)*, got [a-z]+$|missing required |must be one of |must satisfy |is not allowed$"
    r"|nests too deeply|is too large or too intricate|does not fit in [0-9]+ places$"
    r"|Field required$|Extra inputs are not permitted$|(?:String|List|Tuple|Set|Dictionary|Value|Bytes|Data) should "
    r"|Input should be (?:a valid [^,]*|an? (?!valid)[^,]*|greater |less |finite |')",
)


def without_quotes(error: Exception, tool: PreparedTool, side: Mode) -> CodeModeError:
    """Return what a program and the host may read of a value that was not taken, of input or output."""
    if isinstance(error, CodeModeSerializationError) and _SIZES & error.details.keys():
        return error
    told = _reworded(error, tool, side)
    if isinstance(error, CodeModeError):
        told.reason = error.reason
    return told


def _reworded(error: Exception, tool: PreparedTool, side: Mode) -> CodeModeError:
    if isinstance(error, CodeModeSerializationError):
        return CodeModeSerializationError(f"the {side} of tool {tool.name!r} is not JSON")
    problems: Any = error.details.get("problems") if isinstance(error, CodeModeToolError) else None
    if not is_array(problems):
        return _failed(tool, error)
    return wrong_value(tool.name, side, SchemaMismatch(unquoted_problems(problems, tool, side)))


def unquoted_problems(problems: Iterable[Problem], tool: PreparedTool, side: Mode) -> list[Problem]:
    """Rephrase problems so that their messages quote nothing of the value."""
    names = set(_names(tool.input_json_schema if side == "input" else tool.output_json_schema))
    return unique(_unquoted(problem, names) for problem in problems)


def _failed(tool: PreparedTool, error: Exception) -> CodeModeError:
    details = {"tool_name": tool.name, "raised": type(error.__cause__ or error).__name__}
    return CodeModeToolError(f"tool {tool.name!r} failed", code=HOST_TOOL_ERROR, details=details)


def _names(schema: Any) -> Iterator[str]:
    for one in subschemas(schema):
        properties = mapping_or_empty(one.get("properties"))
        steps.take(1 + len(properties))
        yield from properties


def _unquoted(problem: Problem, names: set[str]) -> Problem:
    sentence = _OF_THE_SCHEMA.match(problem["message"])
    message = "is not valid"
    if sentence is not None:
        is_cut = sentence[0].startswith("Input should be a")
        message = sentence[0] if is_cut else problem["message"]
    return {"path": _known_part(problem["path"], names), "message": message}


def _known_part(path: str, names: set[str]) -> str:
    end = 0
    while (step := _STEP.match(path, end)) is not None:
        name = step["name"] or (json.loads(step["text"]) if step["text"] else None)
        if name is not None and name not in names:
            break
        end = step.end()
    return path[:end]
