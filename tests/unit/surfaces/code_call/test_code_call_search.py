"""Search over the index of CodeCall: filters before ranking, aliases, scores, warnings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sample_tools import sample_tools
from suite import each_row

from codemode import Tool, create_code_call_tools


def one(name: str, description: str, **said: Any) -> Tool:
    return Tool(name, execute=None, description=description, metadata={"codecall": said})


SHOP = [
    one("users:list", "List users. In pages.", appId="user", source="inline", tags=["read", "people"]),
    one("users:add", "Add a user.", appId="user", source="openapi", tags=["write", "people"]),
    one("bills:list", "List bills of a user.", appId="billing", source="openapi", tags=["read"]),
    one("bills:pay", "Pay a bill of a user.", appId="billing", tags=["write", "money"]),
    one("notes", "Notes about a user."),
]
TOOLS = create_code_call_tools(SHOP)


def names(**given: Any) -> list[str]:
    return [found["name"] for found in TOOLS.search_sync({"query": "user", **given})["tools"]]


def test_what_is_found_says_what_it_is():
    answer = TOOLS.search_sync({"query": "list users"})
    first = answer["tools"][0]
    assert first == {
        "name": "users:list",
        "description": "List users.",
        "appId": "user",
        "source": "inline",
        "score": first["score"],
    }
    assert answer["totalAvailableTools"] == 5
    assert "warnings" not in answer
    scores = [found["score"] for found in answer["tools"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)


@each_row(
    "given, found",
    [
        ({}, {"users:list", "users:add", "bills:list", "bills:pay", "notes"}),
        ({"filter": {"appIds": ["billing"]}}, {"bills:list", "bills:pay"}),
        ({"appIds": ["billing"]}, {"bills:list", "bills:pay"}),
        ({"filter": {"appIds": ["billing", "user"]}, "appIds": ["user"]}, {"users:list", "users:add"}),
        ({"filter": {"appIds": []}}, {"users:list", "users:add", "bills:list", "bills:pay", "notes"}),
        ({"filter": {"appIds": ["none"]}}, set()),
        ({"filter": {"tags": ["money", "people"]}}, {"users:list", "users:add", "bills:pay"}),
        ({"filter": {"includeOpenApi": False}}, {"users:list", "bills:pay", "notes"}),
        ({"filter": {"includeInline": False}}, {"users:add", "bills:list", "bills:pay", "notes"}),
        ({"filter": {"includeInline": False, "includeOpenApi": False}}, {"bills:pay", "notes"}),
        ({"excludeToolNames": ["notes", "users:add"]}, {"users:list", "bills:list", "bills:pay"}),
        ({"filter": {"tags": ["read"], "appIds": ["user"]}}, {"users:list"}),
        ({"filter": None, "topK": None}, {"users:list", "users:add", "bills:list", "bills:pay", "notes"}),
    ],
)
def test_filters(given: dict[str, Any], found: set[str]):
    assert set(names(**given)) == found


def test_filters_narrow_before_ranking():
    every = names(topK=50)
    for app in ("user", "billing"):
        app_only = [name for name in every if TOOLS._tools.indexed[name].info.app_id == app]
        assert names(filter={"appIds": [app]}, topK=2) == app_only[:2]
    assert len(names(filter={"tags": ["money"]}, topK=1)) == 1


def test_several_queries_are_one_answer():
    answer = TOOLS.search_sync({"queries": ["pay bill", "add user", "pay bill"]})
    by_name = {found["name"]: found for found in answer["tools"]}
    assert by_name["bills:pay"]["matchedQueries"][0] == "pay bill"
    assert "add user" in by_name["users:add"]["matchedQueries"]
    alone = TOOLS.search_sync({"query": "pay bill"})["tools"][0]
    assert "matchedQueries" not in alone
    assert by_name["bills:pay"]["score"] >= alone["score"]
    assert len(TOOLS.search_sync({"queries": ["pay bill", "add user"], "topK": 1})["tools"]) == 1


def test_a_least_score_cuts_the_list():
    scores = {found["name"]: found["score"] for found in TOOLS.search_sync({"query": "list users"})["tools"]}
    least = sorted(scores.values())[-2]
    kept = TOOLS.search_sync({"query": "list users", "minRelevanceScore": least})["tools"]
    assert {found["name"] for found in kept} == {name for name, score in scores.items() if score >= least}


@each_row("query", ["", "   ", "?!", "\u200b", "zzzzqqqq xyzzy", "()[]{}"])
def test_what_finds_nothing_says_so(query: str):
    answer = TOOLS.search_sync({"query": query})
    assert answer["tools"] == []
    assert answer["warnings"]
    assert all(isinstance(warning, str) and warning for warning in answer["warnings"])


@each_row(
    "given, said",
    [
        (
            {"appIds": ["none"]},
            ["Filters leave 0 of 5 tools.", "No tool has the app 'none'; there are 'user', 'billing'."],
        ),
        ({"filter": {"tags": ["Read"]}}, ["0 of 5", "No tool has the tag 'Read'; there are 'read', 'people'"]),
        ({"filter": {"tags": ["money"], "appIds": ["user"]}}, ["0 of 5"]),
        ({"excludeToolNames": ["notes"], "query": "notes"}, ["No tool has 'notes'", "Filters leave 4 of 5 tools."]),
        ({"minRelevanceScore": 1.5}, ["No tool has the score 1.5; the best has "]),
    ],
)
def test_a_filter_that_leaves_nothing_is_named(given: dict[str, Any], said: list[str]):
    answer = TOOLS.search_sync({"query": "user", **given})
    assert answer["tools"] == []
    assert len(answer["warnings"]) == len(said)
    assert all(part in warning for part, warning in zip(said, answer["warnings"], strict=True))


def test_an_index_without_tools_says_so():
    opted_in = create_code_call_tools(SHOP, {"mode": "codecall_opt_in"})
    assert opted_in.search_sync({"query": "user"})["warnings"] == ["There are no tools to search."]


def test_equal_scores_keep_the_order_of_registration():
    same = [one(f"copy_{at:02}", "Copy a thing.") for at in range(20)]
    tools = create_code_call_tools(same)
    assert [found["name"] for found in tools.search_sync({"query": "copy", "topK": 20})["tools"]] == [
        tool.name for tool in same
    ]


def test_the_default_of_top_k_is_an_option():
    tools = create_code_call_tools(SHOP, {"topK": 2})
    assert len(tools.search_sync({"query": "user"})["tools"]) == 2
    assert len(tools.search_sync({"query": "user", "topK": 4})["tools"]) == 4


def test_eight_results_are_short():
    tools = create_code_call_tools(sample_tools())
    for query in ("create an issue", "read a file", "search the web", "list tables"):
        answer = tools.search_sync({"query": query})
        assert len(json.dumps(answer, separators=(",", ":"))) < 2_000


def test_an_update_is_found_at_once_and_told_of():
    newer = [one("bills:pay", "Pay now."), one("parcels:send", "Send a parcel.")]
    tools = create_code_call_tools(SHOP)
    heard: list[dict[str, Any]] = []
    stop = tools.on_tools_changed(heard.append)
    tools.search_sync({"query": "user"})
    tools.update([*SHOP[1:3], *newer])
    assert heard == [
        {"version": 2, "added": ["parcels:send"], "removed": ["users:list", "notes"], "changed": ["bills:pay"]}
    ]
    assert tools.version == 2
    assert [found["name"] for found in tools.search_sync({"query": "parcel"})["tools"]] == ["parcels:send"]
    assert tools.describe_sync({"tools": ["notes"]}) == {"tools": [], "notFound": ["notes"]}
    tools.update([*SHOP[1:3], *newer])
    assert len(heard) == 1
    stop()
    stop()
    tools.update([])
    assert len(heard) == 1


def test_a_listener_that_raises_stops_no_update_and_no_other(caplog: pytest.LogCaptureFixture):
    tools = create_code_call_tools(SHOP)
    heard: list[Any] = []

    def raises(change: dict[str, Any]) -> None:
        change.clear()
        raise RuntimeError("not today")

    tools.on_tools_changed(raises)
    tools.on_tools_changed(heard.append)
    tools.update(SHOP[:2])
    assert heard[0]["removed"] == ["bills:list", "bills:pay", "notes"]
    assert "a listener for tool changes failed" in caplog.text
    with pytest.raises(ValueError, match="listener"):
        tools.on_tools_changed(None)  # pyright: ignore[reportArgumentType]


def test_embeddings_that_fail_cost_a_warning():
    def broken(texts: list[str]) -> list[list[float]]:
        raise RuntimeError("no model in /srv/models")

    tools = create_code_call_tools(SHOP, {"search": {"embed": broken}})
    answer = tools.search_sync({"query": "pay bill"})
    assert answer["tools"][0]["name"] == "bills:pay"
    assert answer["warnings"]
    assert "/srv" not in json.dumps(answer)


def test_a_strategy_sees_what_the_filters_leave():
    class Backwards:
        def search(self, query: str, tools: list[dict[str, Any]], limit: int) -> list[str]:
            return [tool["name"] for tool in reversed(tools)]

    tools = create_code_call_tools(SHOP, {"search": {"strategy": Backwards()}})
    answer = tools.search_sync({"query": "anything", "filter": {"appIds": ["user"]}})
    assert [found["name"] for found in answer["tools"]] == ["users:add", "users:list"]
    assert all(0 <= found["score"] <= 1 for found in answer["tools"])
