"""What `@codemode/discovery` answers: shapes, levels of detail, names that lead somewhere and names that do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given as generated
from hypothesis import strategies as st
from listed_servers import listed, sample_servers
from suite import each_row

from codemode import CodeModeToolError
from codemode.data.json_values import encode_json
from codemode.surfaces.modules import discovery
from codemode.surfaces.modules.declarations import declare_server, declare_tool
from codemode.surfaces.modules.discovery import DETAILS, USAGE, build_search_index, call_discovery_function

QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
HINTS = {"readOnlyHint": True}
SERVERS = [
    listed(
        "git-hub",
        [
            {"name": "create-issue", "description": "Opens an issue.", "inputSchema": QUERY, "outputSchema": QUERY},
            {"name": "list", "description": "Lists issues.", "annotations": HINTS},
            {"name": "a_b", "exportName": "a_b__2", "description": "Underscore."},
            {"name": "a-b", "exportName": "a_b", "description": "Hyphen."},
        ],
        server_id="Git Hub",
        name="GitHub",
        version="1.2",
        description="Code hosting.",
        capabilities=("tools",),
    ),
    listed("mail", [{"name": "send", "description": "Sends a message."}], server_id="Mail!"),
    listed("git-hub--2", [], server_id="git-hub"),
]
SAMPLE = sample_servers()


def ask(name: str, *given: Any, servers: Any = SERVERS) -> Any:
    said = call_discovery_function(servers, build_search_index(servers), name, list(given))
    assert json.loads(encode_json(said, what="an answer")) == said
    return said


def refused(name: str, *given: Any, servers: Any = SERVERS) -> CodeModeToolError:
    with pytest.raises(CodeModeToolError) as caught:
        ask(name, *given, servers=servers)
    assert caught.value.details["hint"]
    return caught.value


def test_servers_are_listed_in_the_order_given():
    assert ask("listServers") == [
        {"serverId": "git-hub", "serverName": "GitHub", "capabilities": ["tools"]},
        {"serverId": "mail", "serverName": "mail"},
        {"serverId": "git-hub--2", "serverName": "git-hub--2"},
    ]


def test_a_server_is_described_with_its_declaration():
    assert ask("describeServer", "git-hub") == {
        "serverId": "git-hub",
        "serverName": "GitHub",
        "capabilities": ["tools"],
        "description": "Code hosting.",
        "version": "1.2",
        "declaration": declare_server(SERVERS[0]),
    }
    assert "declaration" not in ask("describeServer", "git-hub", {"detail": "description"})
    assert set(ask("describeServer", "mail", None)) == {"serverId", "serverName", "declaration"}


def test_tools_at_each_level_of_detail():
    assert ask("listTools", "git-hub", {"detail": "name"})[2] == {
        "toolName": "create-issue",
        "exportName": "create_issue",
    }
    named = {"toolName": "create-issue", "exportName": "create_issue", "description": "Opens an issue."}
    assert ask("listTools", "git-hub")[2] == ask("listTools", "git-hub", {"detail": "description"})[2] == named
    assert ask("listTools", "git-hub")[3]["annotations"] == HINTS
    assert ask("listTools", "git-hub", {"detail": "full"})[2] == {**named, "inputSchema": QUERY, "outputSchema": QUERY}
    assert ask("listTools", "git-hub", {"detail": "full"})[3] == {
        "toolName": "list",
        "exportName": "list",
        "description": "Lists issues.",
        "annotations": HINTS,
    }
    assert ask("listTools", "git-hub--2") == []


def test_one_tool_is_told_whole():
    one = next(one for one in SERVERS[0].tools if one.tool_name == "create-issue")
    told = ask("getTool", "git-hub", "create-issue")
    assert told["inputSchema"] == told["outputSchema"] == QUERY
    assert told["declaration"] == declare_tool(SERVERS[0], one)
    assert ask("getTool", "git-hub", "create-issue", {"detail": "name"}) == {
        "toolName": "create-issue",
        "exportName": "create_issue",
    }


def test_a_search_says_what_was_asked_and_where_it_was_found():
    found = ask("searchTools", "send a message")
    assert found["query"] == "send a message"
    assert found["results"][0] == {
        "serverId": "mail",
        "toolName": "send",
        "exportName": "send",
        "description": "Sends a message.",
    }
    assert ask("searchTools", "send", {"serverId": "git-hub"})["results"] == []
    assert [one["serverId"] for one in ask("searchTools", "issue", {"serverId": "Git Hub"})["results"]] == [
        "git-hub"
    ] * 2
    only = ask("searchTools", "open an issue", {"detail": "name", "limit": 1})["results"]
    assert only == [{"serverId": "git-hub", "toolName": "create-issue", "exportName": "create_issue"}]
    assert ask("searchTools", "open an issue", {"detail": "full", "limit": 1.0})["results"][0]["inputSchema"] == QUERY
    assert (
        len(ask("searchTools", "file page issue", {"limit": 10_000}, servers=SAMPLE)["results"]) <= discovery.MAX_FOUND
    )


def found_in(query: str, servers: Any, **options: Any) -> list[tuple[str, ...]]:
    results = ask("searchTools", query, {"detail": "name", **options}, servers=servers)["results"]
    return [(f"{one['serverId']}.{one['toolName']}", *one.get("alsoIn", ())) for one in results]


def test_the_same_tool_of_several_servers_is_found_once_and_leaves_room_for_others():
    opens = {"name": "open", "description": "Opens an issue.", "inputSchema": QUERY}
    other = {"name": "reopen", "description": "Lets somebody work on a closed issue again."}
    names = [f"hub{at}" for at in range(9)]
    servers = [*(listed(name, [opens, other]) for name in names), listed("mail", [{**opens, "inputSchema": {}}])]
    assert found_in("open an issue", servers, limit=3) == [
        ("mail.open",),
        ("hub0.open", *names[1:]),
        ("hub0.reopen", *names[1:]),
    ]
    assert found_in("open", servers, limit=1) == [("hub0.open", *names[1:])]
    # Which of them is meant, the words say or the caller; then that one stands for all.
    assert found_in("open an issue in hub7", servers, limit=1) == [("hub7.open", *names[:7], "hub8")]
    assert found_in("hub7.open", servers, limit=1) == [("hub7.open", *names[:7], "hub8")]
    assert found_in("open an issue", servers, serverId="hub3") == [("hub3.open",), ("hub3.reopen",)]


def test_a_copied_tool_never_hides_the_original():
    transfer = {"name": "transfer", "description": "Transfers money to an account.", "inputSchema": QUERY}
    bait = [{"name": f"transfer_{at}", "description": "Transfers money to an account, safely."} for at in range(5)]
    bank, copy = (
        listed("bank", [transfer, {"name": "rates", "description": "Rates."}]),
        listed("zeta", [transfer, *bait]),
    )
    for query in ("transfer money to an account", "transfer", "money account transfer safely"):
        found = found_in(query, [bank, copy])
        assert ("bank.transfer", "zeta") in found, query
        assert not any(one[0] == "zeta.transfer" for one in found), query


def test_of_tools_that_fit_alike_the_one_among_others_that_fit_comes_first():
    row = {"name": "insert_row", "description": "Inserts a row."}
    beside = [{"name": f"{word}_phase", "description": "Of the moon."} for word in ("print", "watch", "explain")]
    rows = [{"name": f"{word}_row", "description": "Of a row."} for word in ("delete", "find", "lock")]
    servers = [listed("astro", [row, *beside]), listed("tables", [{**row, "description": "Inserts any row."}, *rows])]
    assert found_in("insert a row", servers, limit=2) == [("tables.insert_row",), ("astro.insert_row",)]
    # A name that is written out stays the first.
    assert found_in("print phase", servers, limit=1) == [("astro.print_phase",)]
    assert found_in("astro.insert_row", servers, limit=1) == [("astro.insert_row",)]


def test_tools_that_say_nothing_of_themselves_are_not_taken_for_the_same():
    servers = [listed(name, [{"name": "search"}]) for name in ("hub", "mail")]
    assert found_in("search", servers) == [("hub.search",), ("mail.search",)]


@pytest.mark.parametrize("query", ["browser_click", "search_issues", "get_current_time"])
def test_a_name_that_is_written_out_is_found_first(query: str):
    assert ask("searchTools", query, servers=SAMPLE)["results"][0]["toolName"] == query


def test_words_find_what_they_mean_in_a_hundred_and_fifty_tools():
    for words, name in (("click on a button", "browser_click"), ("convert time zones", "convert_time")):
        assert name in [one["toolName"] for one in ask("searchTools", words, {"limit": 3}, servers=SAMPLE)["results"]]


@each_row(
    "given, path",
    [
        ("git-hub", "git-hub"),
        ("Git Hub", "git-hub"),
        ("Mail!", "mail"),
        ("@codemode/servers/mail", "mail"),
        ("git-hub--2", "git-hub--2"),
    ],
)
def test_a_server_is_known_by_its_path_first_and_by_its_own_id(given: str, path: str):
    assert ask("describeServer", given)["serverId"] == path


@each_row(
    "given, name",
    [
        ("create-issue", "create-issue"),
        ("create_issue", "create-issue"),
        ("a_b", "a_b"),
        ("a-b", "a-b"),
        ("a_b__2", "a_b"),
    ],
)
def test_a_tool_is_known_by_its_name_first_and_by_its_export(given: str, name: str):
    assert ask("getTool", "git-hub", given)["toolName"] == name


@pytest.mark.parametrize("name", ["describeServer", "listTools", "getTool"])
def test_an_unknown_server_is_answered_with_the_nearest(name: str):
    error = refused(name, "Githb", "x")
    assert error.reason == "unknown_server"
    assert error.details["nearest"][0] == "git-hub"
    assert 'Did you mean "git-hub"' in error.message
    assert "no servers here" in refused(name, "x", "y", servers=[]).message
    assert refused("searchTools", "x", {"serverId": "nope"}).reason == "unknown_server"


def test_an_unknown_tool_is_answered_with_the_nearest_or_with_where_it_is():
    error = refused("getTool", "git-hub", "createIssue")
    assert error.reason == "unknown_tool"
    assert set(error.details["nearest"]) & {"create-issue", "create_issue"}
    assert error.details["server_id"] == "git-hub"
    assert 'Server "mail" has a tool of that name.' in refused("getTool", "git-hub", "send").message
    assert len(refused("getTool", "git-hub", "x" * 100_000).message) < 1000


WRONG = [
    ("describeServer", []),
    ("describeServer", [3]),
    ("describeServer", [""]),
    ("describeServer", [{"serverId": "mail"}]),
    ("listTools", [None]),
    ("listTools", ["mail", "full"]),
    ("listTools", ["mail", {"detail": "all"}]),
    ("listTools", ["mail", {"detail": 1}]),
    ("listTools", ["mail", {"detail": ["full"]}]),
    ("getTool", ["mail"]),
    ("getTool", ["mail", 7]),
    ("getTool", ["mail", "send", 1]),
    ("searchTools", []),
    ("searchTools", [" "]),
    ("searchTools", [["words"]]),
    ("searchTools", ["x", {"limit": 0}]),
    ("searchTools", ["x", {"limit": 1.5}]),
    ("searchTools", ["x", {"limit": True}]),
    ("searchTools", ["x", {"limit": "3"}]),
    ("searchTools", ["x", {"serverId": 4}]),
    ("searchTools", ["x", {"serverId": ""}]),
    ("searchTools", ["x", {"limit": -1e308}]),
]


@each_row("name, given", WRONG)
def test_wrong_arguments_are_refused_with_what_was_expected(name: str, given: list[Any]):
    error = refused(name, *given)
    assert error.reason == "validation"
    assert error.message.startswith(f"{name}: expected ")
    assert USAGE[name] in error.message
    assert error.details["pointer"].startswith("/")
    assert error.details["expected"]
    assert error.details["received"]
    assert error.details["problems"]


def test_what_is_no_function_or_no_list_of_arguments_is_refused():
    assert refused("importServer", "x").reason == "validation"
    for given in ({}, "mail", None, 3):
        with pytest.raises(CodeModeToolError) as caught:
            call_discovery_function(SERVERS, build_search_index(SERVERS), "listServers", given)
        assert caught.value.reason == "validation"


def test_unknown_options_and_further_arguments_mean_nothing():
    assert ask("listServers", 1, 2) == ask("listServers")
    assert ask("listTools", "mail", {"detail": None, "sort": 1}, 3) == ask("listTools", "mail")


@generated(
    name=st.sampled_from(sorted(USAGE)),
    given=st.lists(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text()
            | st.sampled_from(["mail", "send", *DETAILS]),
            lambda inner: (
                st.lists(inner) | st.dictionaries(st.sampled_from(["detail", "serverId", "limit", "x"]), inner)
            ),
        ),
        max_size=4,
    ),
)
def test_whatever_is_asked_is_answered_or_refused(name: str, given: list[Any]):
    try:
        said = call_discovery_function(SERVERS, build_search_index(SERVERS), name, given)
    except CodeModeToolError as error:
        assert error.reason in {"validation", "unknown_server", "unknown_tool"}
        assert len(error.message) < 2000
    else:
        encode_json(said, what="an answer")


def test_an_answer_that_is_too_large_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(discovery, "MAX_ANSWER_CHARACTERS", 3_000)
    tools = [{"name": f"t{at}", "description": "x" * 100, "inputSchema": QUERY} for at in range(50)]
    servers = [listed("s", tools)]
    for name, given in (("listTools", ["s"]), ("listTools", ["s", {"detail": "full"}])):
        error = refused(name, *given, servers=servers)
        assert error.reason == "limit"
        assert "getTool" in error.details["hint"]
    assert len(ask("listTools", "s", {"detail": "name"}, servers=servers)) == 50
    large = listed("s", [{"name": "t", "description": "x" * 4_000}])
    assert refused("getTool", "s", "t", servers=[large]).reason == "limit"


def test_schemas_that_are_no_json_are_told_as_objects():
    servers = [listed("s", [{"name": "t", "inputSchema": True, "outputSchema": False}])]
    told = ask("getTool", "s", "t", servers=servers)
    assert told["inputSchema"] == {}
    assert told["outputSchema"] == {"not": {}}


def test_long_declarations_are_cut():
    servers = [listed("s", [{"name": f"t{at}", "description": "x", "inputSchema": QUERY} for at in range(1000)])]
    index = build_search_index(servers)
    assert len(call_discovery_function(servers, index, "describeServer", ["s"])["declaration"]) <= 16_000
    assert call_discovery_function(servers, index, "listServers", []) == [{"serverId": "s", "serverName": "s"}]
