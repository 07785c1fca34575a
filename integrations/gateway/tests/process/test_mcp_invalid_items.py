"""Servers that list invalid prompts, resources and templates: clients get the valid ones."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from codemode_gateway import connect
from codemode_gateway.passthrough.proxy import PROMPTS, RESOURCES, TEMPLATES, ListKind, ServerItemLists
from mcp_servers.configured import odd, of
from waiting import within

CAPABILITIES = {"capabilities": {"tools": {}, "prompts": {}, "resources": {}}}
GOOD = {"uri": "file:///1", "name": "good"}

# Per list: its kind, its entries, the keys of the items that remain, and words of the log line.
INVALID: list[tuple[ListKind, list[Any], list[str], list[str]]] = [
    (
        PROMPTS,
        [{"name": "good"}, {"description": "no name"}],
        ["good"],
        ["list of prompts", "entry 2: name is missing"],
    ),
    (PROMPTS, [None, {"name": "good"}], ["good"], ["entry 1: null, not an object"]),
    (PROMPTS, [{"name": "bad", "arguments": ["a"]}, {"name": "good"}], ["good"], ['"bad": arguments is ["a"]']),
    (
        PROMPTS,
        [{"name": "bad", "arguments": [{"name": "x", "required": "yes please"}]}, {"name": "good"}],
        ["good"],
        ['"bad": arguments is [{"name": "x"'],
    ),
    (RESOURCES, [GOOD, {"uri": "file:///2"}], ["file:///1"], ['"file:///2": name is missing']),
    (RESOURCES, [GOOD, {"name": "bad", "uri": 7}], ["file:///1"], ["list of resources", '"bad": uri is 7']),
    (TEMPLATES, [{"name": "bad"}], [], ["list of resource templates", '"bad": uriTemplate is missing']),
]
# Per list: an entry with an invalid display field, and the name of the field.
INVALID_FIELDS: list[tuple[ListKind, dict[str, Any], str]] = [
    (PROMPTS, {"name": "good", "description": 5}, "description"),
    (RESOURCES, {**GOOD, "size": "12kb"}, "size"),
    (RESOURCES, {**GOOD, "annotations": {"priority": 5}}, "annotations"),
    (RESOURCES, {**GOOD, "icons": [{}]}, "icons"),
    (TEMPLATES, {"name": "good", "uriTemplate": "file:///{x}", "mimeType": []}, "mimeType"),
]


def fetch(*lists: tuple[ListKind, dict[str, Any]]) -> list[list[Any]]:
    """Return the items of lists that one server each answers like this."""

    async def work() -> list[list[Any]]:
        servers = [
            odd({"initialize": CAPABILITIES, "answers": {kind.method: answer}}, f"odd{number}")
            for number, (kind, answer) in enumerate(lists)
        ]
        async with connect(of(*servers)) as connected:
            return [
                [
                    listed.item
                    for listed in await ServerItemLists(
                        connected.upstream(server.name), lambda _kind: None
                    ).get_or_fetch_items(kind)
                ]
                for server, (kind, _) in zip(servers, lists, strict=True)
            ]

    return within(work())


def answer_with(kind: ListKind, entries: list[Any]) -> dict[str, Any]:
    field = {PROMPTS: "prompts", RESOURCES: "resources", TEMPLATES: "resourceTemplates"}[kind]
    return {"result": {field: entries}}


def get_warnings(caplog: pytest.LogCaptureFixture, server: str) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if f"server {server!r}" in entry.getMessage()]


def test_an_invalid_entry_is_left_out_and_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        lists = fetch(*((kind, answer_with(kind, entries)) for kind, entries, _, _ in INVALID))
    for number, (items, (kind, entries, keys, words)) in enumerate(zip(lists, INVALID, strict=True)):
        assert [kind.get_key(item) for item in items] == keys, entries
        (warning,) = get_warnings(caplog, f"odd{number}")
        for word in words:
            assert word in warning, entries


def test_an_entry_with_an_invalid_display_field_is_used_without_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        lists = fetch(*((kind, answer_with(kind, [entry])) for kind, entry, _ in INVALID_FIELDS))
    for number, (items, (_, entry, field)) in enumerate(zip(lists, INVALID_FIELDS, strict=True)):
        (item,) = (item.model_dump(by_alias=True, exclude_none=True) for item in items)
        assert item == {name: value for name, value in entry.items() if name != field}
        (warning,) = get_warnings(caplog, f"odd{number}")
        assert f'"good": used without invalid fields: {field}' in warning


def test_a_server_without_templates_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    no_method = {"error": {"code": -32601, "message": "Method not found"}}
    with caplog.at_level(logging.WARNING):
        assert fetch((TEMPLATES, no_method), (RESOURCES, no_method)) == [[], []]
    assert get_warnings(caplog, "odd0") == []
    assert len(get_warnings(caplog, "odd1")) == 1
