"""A request, read by hand: what is wrong with it is said in an answer like any other. Runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...data.narrowing import is_mapping, is_object, is_sequence
from ...data.records import record
from ...schemas.compiled import json_type
from ...source.program_input import with_program_field
from .diagnostic import Diagnostic, diagnostic
from .limits import LEAST, WIRE_NAMES, RunLimits
from .options import RunOptions

_MOST_CAPABILITIES = 1_000
_HINT = 'Send {"code": "<an ES module>"}; limits is an object, requestedCapabilities a list of server ids.'
_ADJUSTED_HINT = "Ask for a whole number within what the description of this tool says."


@record
class RunRequest:
    """What is asked for. ``limits`` None are the defaults; ``notes`` say what of it holds otherwise."""

    code: str
    limits: RunLimits | None
    capabilities: tuple[str, ...]
    notes: tuple[Diagnostic, ...]


def read_request(given: Any, options: RunOptions) -> RunRequest | list[Diagnostic]:
    """Return what is asked for, or the diagnostics of a request that cannot be understood."""
    if is_object(given) and len(given) == 1 and isinstance(only := given.get("code"), str):
        return RunRequest(only, None, (), ())  # as most are
    given = with_program_field(given, "code")
    if not is_mapping(given):
        return [_wrong("", f"the input must be an object, got {json_type(given)}")]
    code, limits, capabilities = given.get("code"), given.get("limits"), given.get("requestedCapabilities")
    wrong: list[Diagnostic] = []
    if not isinstance(code, str):
        said = "is required" if code is None else f"must be a string, got {json_type(code)}"
        wrong.append(_wrong("/code", f"code {said}"))
    if limits is not None and not is_mapping(limits):
        wrong.append(_wrong("/limits", f"limits must be an object, got {json_type(limits)}"))
    said = None if capabilities is None else _wrong_capabilities(capabilities)
    if said is not None:
        wrong.append(said)
    if wrong or not isinstance(code, str):
        return wrong
    if limits is None and capabilities is None:
        return RunRequest(code, None, (), ())
    asked, notes = _limits(limits if is_mapping(limits) else {}, options)
    ids = tuple(dict.fromkeys(capabilities)) if capabilities is not None else ()
    return RunRequest(code, asked, ids, tuple(notes))


def _wrong_capabilities(given: Any) -> Diagnostic | None:
    field = "requestedCapabilities"
    if not is_sequence(given):
        return _wrong(f"/{field}", f"{field} must be a list of strings, got {json_type(given)}")
    if len(given) > _MOST_CAPABILITIES:
        return _wrong(f"/{field}", f"{field} has {len(given)} entries; at most {_MOST_CAPABILITIES} are allowed")
    for at, one in enumerate(given):
        if not isinstance(one, str):
            return _wrong(f"/{field}/{at}", f"{field} must be a list of strings, and entry {at} is {json_type(one)}")
    return None


def _limits(given: Mapping[str, Any], options: RunOptions) -> tuple[RunLimits | None, list[Diagnostic]]:
    """Return the limits that hold, None for the defaults, and what was adjusted. Unknown keys mean nothing."""
    values: dict[str, Any] = {}
    notes: list[Diagnostic] = []
    for option, name in WIRE_NAMES.items():
        if name not in given:
            continue
        default, most = getattr(options.limits, option), getattr(options.ceilings, option)
        asked = _whole(given[name])
        value = default if asked is None else min(max(asked, LEAST[option]), most)
        if value != asked:
            notes.append(_adjusted(name, given[name], asked, value))
        if value != default:
            values[option] = value
    if not values:
        return None, notes
    return RunLimits(**{option: values.get(option) or getattr(options.limits, option) for option in WIRE_NAMES}), notes


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else None


def _adjusted(name: str, given: Any, asked: int | None, value: int) -> Diagnostic:
    if asked is None:
        message = f"limits.{name} must be a whole number, got {json_type(given)}: {value} holds, the default"
    else:
        side = "most" if asked > value else "least"
        message = f"limits.{name} is {_shown(asked)}: {value} holds, the {side} that is allowed"
    return diagnostic("warning", "LIMIT_ADJUSTED", message, hint=_ADJUSTED_HINT, path=f"/limits/{name}")


def _shown(number: int) -> str:
    return str(number) if abs(number) < 10**20 else "a number of many digits"


def _wrong(path: str, message: str) -> Diagnostic:
    return diagnostic("error", "BAD_REQUEST", message, hint=_HINT, path=path)
