"""What servers ask of a client as it is passed on: in bounds, and with the server's name on every line of it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from pydantic import ValidationError

from codemode.data.json_shape import weigh
from codemode.data.narrowing import is_mapping, mapping_or_empty
from codemode.trace.visible_text import clipped, visible

from ..page_urls import PageURLError, page_host

MAX_MESSAGE_CHARACTERS = 4_000
MAX_FORM_CHARACTERS = 32_000
MAX_FIELDS = 40
MAX_SAMPLING_CHARACTERS = 2_000_000


class Declined(Exception):  # noqa: N818 - an answer
    """A request of a server is not passed on; the text says why, to the server."""


def worded(server: str, method: str, params: Mapping[str, Any]) -> types.InputRequest:
    """Return a request of a server as a client gets it. Raises `Declined` for what no client is to be asked."""
    try:
        if method == "elicitation/create":
            return types.ElicitRequest(params=_elicitation(server, params))
        if method == "sampling/createMessage":
            return types.CreateMessageRequest(params=_sampling(server, params))
    except ValidationError:
        raise Declined(f"the params of {method} are not valid") from None
    if method == "roots/list":
        return types.ListRootsRequest()
    raise Declined(f"{method} is no request that a client answers")


def told_by(server: str, text: str) -> str:
    """Return a text of a server that can be taken for no one else's: each line begins with its name."""
    lines = visible(clipped(text, MAX_MESSAGE_CHARACTERS), keep="\n").split("\n")
    return "\n".join(f"[{visible(server)}] {line}" for line in lines)


def is_from_server(message: str) -> bool:
    """Return whether a question comes from a server: its lines begin as `told_by` writes them, none of ours does."""
    return message.startswith("[")


def refusal(request: types.InputRequest, capabilities: types.ClientCapabilities | None) -> str | None:
    """Return why a client cannot be asked this; None: it can."""
    have = capabilities or types.ClientCapabilities()
    if isinstance(request, types.ListRootsRequest):
        return None if have.roots is not None else "has no roots"
    if isinstance(request, types.CreateMessageRequest):
        if have.sampling is None:
            return "does not sample"
        wants_tools = request.params.tools is not None or request.params.tool_choice is not None
        return "does not sample with tools" if wants_tools and have.sampling.tools is None else None
    if have.elicitation is None:
        return "asks its user nothing"
    # A capability without a mode is that of forms: the revision that had no modes says it so.
    modes = have.elicitation
    if isinstance(request.params, types.ElicitRequestURLParams):
        return None if modes.url is not None else "opens no URLs for its user"
    return None if modes.form is not None or modes.url is None else "shows its user no forms"


def _elicitation(server: str, params: Mapping[str, Any]) -> types.ElicitRequestParams:
    message = told_by(server, str(params.get("message") or ""))
    if params.get("mode") == "url":
        url = str(params.get("url"))
        try:
            host = page_host(url)
        except PageURLError as error:
            raise Declined(f"a URL to open {error}") from None
        said = f"{message}\n[{visible(server)}] opens {host}"
        return types.ElicitRequestURLParams(message=said, url=url, elicitation_id=params.get("elicitationId"))
    schema = params.get("requestedSchema")
    if not is_mapping(schema) or weigh(schema, MAX_FORM_CHARACTERS) >= MAX_FORM_CHARACTERS:
        raise Declined(f"a form needs a requestedSchema of at most {MAX_FORM_CHARACTERS:,} characters")
    if len(mapping_or_empty(schema.get("properties"))) > MAX_FIELDS:
        raise Declined(f"a form has at most {MAX_FIELDS} fields")
    return types.ElicitRequestFormParams(message=message, requested_schema=dict(schema))


def _sampling(server: str, params: Mapping[str, Any]) -> types.CreateMessageRequestParams:
    if weigh(params, MAX_SAMPLING_CHARACTERS) >= MAX_SAMPLING_CHARACTERS:
        raise Declined(f"a request to sample has at most {MAX_SAMPLING_CHARACTERS:,} characters")
    kept = {key: value for key, value in params.items() if key not in ("_meta", "task")}
    asked = types.CreateMessageRequestParams.model_validate(kept)
    prompt = f"The MCP server {json.dumps(visible(server))} asks for this through a gateway."
    asked.system_prompt = f"{prompt}\n\n{asked.system_prompt}" if asked.system_prompt else prompt
    asked.include_context = None  # it would be that of all servers behind the gateway
    return asked
