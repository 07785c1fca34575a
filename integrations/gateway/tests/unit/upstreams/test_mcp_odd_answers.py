"""Whatever JSON a server answers, it is read as a message of the protocol, or refused in one way."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import mcp_types as types
from codemode_gateway.upstreams.connection import remove_invalid_items_with_notes, repair_handshake_answer_with_notes
from codemode_gateway.upstreams.jsonrpc_lines import parse_answer_body_and_set_id, parse_event_data, parse_message_line
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import jsonrpc_message_adapter

KEYS = st.sampled_from([*"a", "tools", "name", "version", "listChanged", "code", "message", "data"])
OF_MESSAGES = st.sampled_from(["jsonrpc", "id", "result", "error", "method", "params"])
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
)
JSON: Any = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | OF_MESSAGES, inner, max_size=4),
    max_leaves=8,
)


@given(JSON, JSON, JSON, JSON)
def test_a_handshake_with_a_revision_is_accepted_whatever_else_it_holds(
    capabilities: Any, info: Any, instructions: Any, meta: Any
):
    more = {"capabilities": capabilities, "serverInfo": info, "instructions": instructions, "_meta": meta}
    result, _ = repair_handshake_answer_with_notes("initialize", {"protocolVersion": "2025-11-25", **more})
    types.InitializeResult.model_validate(result, by_name=False)
    result, _ = repair_handshake_answer_with_notes("server/discover", {"supportedVersions": ["2026-07-28"], **more})
    types.DiscoverResult.model_validate(result)


ITEM_FIELDS = st.sampled_from(["name", "uri", "uriTemplate", "title", "size", "arguments", "annotations", "icons"])


@given(st.lists(st.dictionaries(ITEM_FIELDS, JSON, max_size=4) | JSON, max_size=4))
def test_a_list_of_items_is_valid_without_its_invalid_items(items: list[Any]):
    listed: dict[str, tuple[str, type[types.Result]]] = {
        "prompts/list": ("prompts", types.ListPromptsResult),
        "resources/list": ("resources", types.ListResourcesResult),
        "resources/templates/list": ("resourceTemplates", types.ListResourceTemplatesResult),
    }
    for method, (field, result_type) in listed.items():
        result, notes = remove_invalid_items_with_notes(method, {field: items})
        result_type.model_validate(result, by_name=False)
        assert bool(notes) == (result[field] != items)


@given(JSON)
def test_any_json_is_a_message_or_none(value: Any):
    text = json.dumps(value).encode()
    for read in (parse_message_line, parse_event_data, lambda text: parse_answer_body_and_set_id(text, 3)):
        with suppress(ValueError):  # from a body that is no answer
            reading = read(text)
            if reading.message is not None:
                jsonrpc_message_adapter.validate_json(reading.text, by_name=False)
