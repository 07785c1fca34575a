"""Read what a server says of itself when it is connected to, leniently. Sends nothing itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from pydantic import ValidationError

from ...data.narrowing import is_array, is_mapping
from .lines import NO_OBJECT, shown
from .losses import Lost

HANDSHAKES = ("initialize", "server/discover")
_NO_NAME = "unnamed"


def read_handshake(method: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the answer to a handshake as the SDK takes it, and what was not as the protocol has it.

    What is wrong in a capability costs that capability, not the server. Raises `Lost` for an answer that tells no
    revision of the protocol.
    """
    notes: list[str] = []
    result = dict(given)
    if method == "initialize" and not isinstance(given.get("protocolVersion"), str):
        raise unreadable(method, "protocolVersion", given, "protocolVersion" in given)
    if method == "server/discover" and not is_array(given.get("supportedVersions")):
        raise unreadable(method, "supportedVersions", given, "supportedVersions" in given)
    result["capabilities"] = _capabilities(given.get("capabilities"), notes)
    if method == "initialize":
        result["serverInfo"] = _server_info(given.get("serverInfo"), notes)
    if not isinstance(given.get("instructions", ""), str):
        if given["instructions"] is not None:
            notes.append(f"instructions is {shown(given['instructions'])}")
        del result["instructions"]
    if not is_mapping(given.get("_meta", {})):
        del result["_meta"]
    return result, notes


def unreadable(method: str, field: str, given: Mapping[str, Any], is_there: bool) -> Lost:
    """Return that a server cannot be connected to for this field of its answer."""
    if is_there:
        what = f"{field} is {shown(given[field])}"
    elif list(given) == [NO_OBJECT]:
        what = f"it is {shown(given[NO_OBJECT])}"
    else:
        what = f"{field} is missing in {shown(given)}"
    return Lost(f"its answer to {method} cannot be read: {what}", never_arrived=True, is_final=True)


def why_invalid(error: ValidationError) -> str:
    """Return the first field that is wrong in a value, and what stands there."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"])) or "it"
    if first["type"] == "missing":
        return f"{where} is missing"
    return f"{where} is {shown(first['input'])}"


def _capabilities(given: Any, notes: list[str]) -> dict[str, Any]:
    if not is_mapping(given):
        if given is not None:
            notes.append(f"capabilities is {shown(given)}")
        return {}
    result: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or value is False:
            continue
        try:
            types.ServerCapabilities.model_validate({name: value}, by_name=False)
        except ValidationError:
            notes.append(f"capabilities.{shown(name)} is {shown(value)}")
            result[str(name)] = {}
        else:
            result[str(name)] = value
    return result


def _server_info(given: Any, notes: list[str]) -> dict[str, Any]:
    try:
        types.Implementation.model_validate(given, by_name=False)
    except ValidationError:
        notes.append("serverInfo is missing" if given is None else f"serverInfo is {shown(given)}")
    else:
        return dict(given)
    info: Mapping[str, Any] = given if is_mapping(given) else {}
    name, version = info.get("name"), info.get("version")
    return {
        "name": name if isinstance(name, str) else _NO_NAME,
        "version": "" if version is None or is_mapping(version) or is_array(version) else str(version),
    }
