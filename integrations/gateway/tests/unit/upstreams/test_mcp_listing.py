"""Lists of servers: every one ends, none is larger than allowed, and no tool costs another."""

import asyncio
from typing import Any

from codemode_gateway.config.redaction import SecretRedactor
from codemode_gateway.upstreams import tool_listing
from codemode_gateway.upstreams.tool_listing import fetch_listing, parse_listed_tools
from hypothesis import given
from hypothesis import strategies as st

from codemode.tools import server_lists


def listed(pages: Any, secrets: SecretRedactor | None = None) -> Any:
    asked = []

    async def ask(params):
        asked.append(params)
        return pages(params)

    return asyncio.run(fetch_listing(ask, secrets or SecretRedactor())), asked


def names(found: Any) -> list[str]:
    return [tool.name for tool in found.tools]


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def test_pages_are_followed_to_their_end():
    pages = {None: {"tools": [tool("a")], "nextCursor": "2"}, "2": {"tools": [tool("b")]}}
    found, asked = listed(lambda params: pages[params.get("cursor")])
    assert names(found) == ["a", "b"]
    assert asked == [{}, {"cursor": "2"}]


def test_a_cursor_that_repeats_and_pages_without_end_are_given_up(monkeypatch):
    monkeypatch.setattr(server_lists, "MAX_PAGES", 7)
    found, asked = listed(lambda params: {"tools": [tool("a")], "nextCursor": "same"})
    assert (len(asked), names(found)) == (2, ["a"])
    found, asked = listed(
        lambda params: {"tools": [tool("a" + params.get("cursor", ""))], "nextCursor": params.get("cursor", "") + "x"}
    )
    assert len(asked) == 7


def test_no_more_tools_are_taken_than_anybody_reads(monkeypatch):
    monkeypatch.setattr(tool_listing, "MAX_TOOLS", 5)
    found, _ = listed(lambda params: {"tools": [tool(f"t{n}") for n in range(9)], "nextCursor": "x"})
    assert names(found) == ["t0", "t1", "t2", "t3", "t4"]


def test_what_is_wrong_with_a_tool_costs_no_more_than_that():
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    odd = [
        7,
        None,
        {"name": 5},
        tool("large", description="x" * 300_000),
        tool("deep", outputSchema=deep),
        tool("twice"),
        tool("twice"),
        {"name": "bare"},
        {
            "name": "wrong",
            "inputSchema": [],
            "annotations": "yes",
            "title": 5,
            "description": {},
            "icons": 3,
            "_meta": 4,
        },
        tool("half", annotations={"readOnlyHint": "perhaps"}, execution="now"),
    ]
    kept, texts, _ = parse_listed_tools(odd)
    assert [one.name for one in kept] == ["twice", "bare", "wrong", "half"]
    assert len(texts) == 4


def test_secrets_are_in_no_list():
    found, _ = listed(
        lambda params: {"tools": [tool("t", description="the key is hunter2hunter2")]},
        SecretRedactor(["hunter2hunter2"]),
    )
    assert found.tools[0].description == "the key is [secret]"
    assert "hunter2" not in found.texts[0]


def test_the_digest_is_another_one_whenever_a_tool_is():
    def digest(*tools):
        return listed(lambda params: {"tools": [*tools]})[0].digest

    assert digest(tool("a")) == digest(tool("a"))
    assert len({digest(), digest(tool("a")), digest(tool("a", description="x")), digest(tool("a"), tool("b"))}) == 4


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["name", "inputSchema", "outputSchema", "annotations", "title", "description", "_meta", "icons"]
)


@given(st.lists(st.dictionaries(FIELDS, JSON, max_size=6) | JSON, max_size=4), JSON)
def test_no_list_is_a_reason_to_fail(tools, cursor):
    found, _ = listed(lambda params: {"tools": tools, "nextCursor": cursor, "ttlMs": cursor})
    assert all(isinstance(name, str) for name in names(found))


def test_tools_that_want_headers_which_cannot_be_are_left_out_where_headers_are_sent():
    def wanting(name: str, header: Any, kind: Any = "string", **more: Any) -> dict[str, Any]:
        properties = {"p": {"type": kind, "x-mcp-header": header}, **more}
        return {"name": name, "inputSchema": {"type": "object", "properties": properties}}

    twice = {"q": {"type": "string", "x-mcp-header": "REGION"}}
    wrong = [wanting("empty", ""), wanting("space", "a b"), wanting("colon", "a:b"), wanting("none", None)]
    wrong += [wanting("object", "Region", "object"), wanting("number", "Region", "number")]
    wrong += [wanting("twice", "Region", **twice), wanting("letters", "Regi\u00f6n"), wanting("control", "a\r\nb")]
    page = [tool("plain"), *wrong, wanting("right", "Region")]
    assert [one.name for one in parse_listed_tools(page, supports_argument_headers=True)[0]] == ["plain", "right"]
    assert len(parse_listed_tools(page)[0]) == len(page)


def test_of_a_list_with_more_values_than_allowed_the_first_tools_are_taken(monkeypatch):
    monkeypatch.setattr(tool_listing, "MAX_LIST_VALUES", 100)
    large = {"type": "object", "enum": [*range(40)]}
    asked = []

    def pages(params):
        asked.append(params)
        at = len(asked) * 2
        return {"tools": [tool(f"t{at}", inputSchema=large), tool(f"t{at + 1}")], "nextCursor": str(at)}

    found, _ = listed(pages)
    assert names(found) == ["t2", "t3", "t4", "t5"]
    assert len(asked) == 3


def test_of_a_page_no_more_is_looked_at_than_may_be_taken(monkeypatch):
    monkeypatch.setattr(tool_listing, "MAX_TOOLS", 5)
    hidden = []
    kept, _, _ = parse_listed_tools([tool(f"t{n}") for n in range(1_000)], hide=lambda one: hidden.append(one) or one)
    assert (len(kept), len(hidden)) == (5, 6)


def test_what_is_said_of_a_tool_that_is_left_out_holds_no_secret():
    secrets = SecretRedactor(["hunter2hunter2"])
    large = tool("hunter2hunter2", description="x" * 300_000)
    found, _ = listed(lambda params: {"tools": [large, large, tool("hunter2hunter2"), tool("hunter2hunter2")]}, secrets)
    assert found.left_out == (
        '"[secret]" and 1 more: larger than 256 KiB or 20,000 values',
        '"[secret]": listed more than once; the first is used',
    )
