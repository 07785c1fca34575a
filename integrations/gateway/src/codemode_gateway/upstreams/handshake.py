"""Read the answer of a server to a handshake leniently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from pydantic import ValidationError

from codemode.data.narrowing import is_array, is_mapping

from .lines import NO_OBJECT, shorten
from .losses import Lost

HANDSHAKES = ("initialize", "server/discover")
_NO_NAME = "unnamed"


def read_handshake(method: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the answer to a handshake as the SDK accepts it, and notes on the fields that were wrong.

    A capability of a wrong type counts as one without fields. Raises `Lost` for an answer that names no revision of the
    protocol.
    """
    notes: list[str] = []
    result = dict(given)
    if method == "initialize" and not isinstance(given.get("protocolVersion"), str):
        raise unreadable_handshake(method, "protocolVersion", given, "protocolVersion" in given)
    if method == "server/discover" and not is_array(given.get("supportedVersions")):
        raise unreadable_handshake(method, "supportedVersions", given, "supportedVersions" in given)
    result["capabilities"] = _capabilities(given.get("capabilities"), notes)
    if method == "initialize":
        result["serverInfo"] = _server_info(given.get("serverInfo"), notes)
    if not isinstance(given.get("instructions", ""), str):
        if given["instructions"] is not None:
            notes.append(f"instructions is {shorten(given['instructions'])}")
        del result["instructions"]
    if not is_mapping(given.get("_meta", {})):
        del result["_meta"]
    return result, notes


def unreadable_handshake(method: str, field: str, given: Mapping[str, Any], is_there: bool) -> Lost:
    """Return the reason to raise for a field without which a server cannot be connected to."""
    if is_there:
        what = f"{field} is {shorten(given[field])}"
    elif list(given) == [NO_OBJECT]:
        what = f"it is {shorten(given[NO_OBJECT])}"
    else:
        what = f"{field} is missing in {shorten(given)}"
    return Lost(f"its answer to {method} cannot be read: {what}", never_arrived=True, is_final=True)


def why_invalid(error: ValidationError) -> str:
    """Return the first wrong field of a value, with what it holds."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"])) or "it"
    if first["type"] == "missing":
        return f"{where} is missing"
    return f"{where} is {shorten(first['input'])}"


def _capabilities(given: Any, notes: list[str]) -> dict[str, Any]:
    if not is_mapping(given):
        if given is not None:
            notes.append(f"capabilities is {shorten(given)}")
        return {}
    result: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or value is False:
            continue
        try:
            types.ServerCapabilities.model_validate({name: value}, by_name=False)
        except ValidationError:
            notes.append(f"capabilities.{shorten(name)} is {shorten(value)}")
            result[str(name)] = {}
        else:
            result[str(name)] = value
    return result


def _server_info(given: Any, notes: list[str]) -> dict[str, Any]:
    try:
        types.Implementation.model_validate(given, by_name=False)
    except ValidationError:
        notes.append("serverInfo is missing" if given is None else f"serverInfo is {shorten(given)}")
    else:
        return dict(given)
    info: Mapping[str, Any] = given if is_mapping(given) else {}
    name, version = info.get("name"), info.get("version")
    return {
        "name": name if isinstance(name, str) else _NO_NAME,
        "version": "" if version is None or is_mapping(version) or is_array(version) else str(version),
    }
