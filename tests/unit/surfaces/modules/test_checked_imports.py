"""What a module imports against what there is: every mistake at once, each with its place and one thing to do."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode import ModuleServer
from codemode.errors import CodeModeSyntaxError
from codemode.protocol.messages import AnalysisFacts
from codemode.surfaces.modules.catalog import ModuleCatalog, parse_module_facts
from codemode.surfaces.modules.server_set import ServerSet

TOOLS = {name: lambda: 1 for name in ("create-issue", "list_issues", "then", "default")}
CATALOG = ServerSet([ModuleServer("Git Hub", TOOLS, version="2"), ModuleServer("mail", {})]).get_or_build_catalog()


def members(*names: str, of: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, of))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | members("from", "names", "line", of=inner),
    max_leaves=6,
)


def facts(
    imports: list[tuple[str, list[str]]] = [],  # noqa: B006 - never changed
    dynamic: list[str | None] = [],  # noqa: B006
    calls: list[tuple[str, str]] = [],  # noqa: B006
) -> Any:
    return {
        "module": {
            "prefix": 12,
            "take": "$codemode",
            "imports": [
                {"from": one, "names": [[name, f"local{at}"] for name in names], "line": at + 1, "column": 1}
                for at, (one, names) in enumerate(imports)
            ],
            "dynamic": [{"from": one, "line": 50, "column": 5} for one in dynamic],
            "namespace_calls": [
                {"from": one, "name": name, "line": 90 + at, "column": 7} for at, (one, name) in enumerate(calls)
            ],
        }
    }


def problems(catalog: ModuleCatalog = CATALOG, **given: Any) -> list[dict[str, Any]]:
    refusal = catalog.find_program_error(facts(**given))
    if refusal is None:
        return []
    assert type(refusal) is CodeModeSyntaxError
    return refusal.details["problems"]


@each_row(
    "specifier, names",
    [
        ("@codemode/servers/git-hub", ["create_issue", "list_issues", "then_", "default_", "__meta__", "*"]),
        ("@codemode/servers/mail", ["__meta__", "*"]),
        ("@codemode/servers/mail", []),
        ("@codemode/errors", ["CodemodeError", "SchemaValidationError", "SandboxLimitError", "*"]),
        ("@codemode/discovery", ["specVersion", "searchTools", "getTool", "*"]),
    ],
)
def test_what_there_is_can_be_imported(specifier: str, names: list[str]):
    assert problems(imports=[(specifier, names)]) == []


@each_row(
    "specifier, hint",
    [
        ("@codemode/servers/git-hubb", "@codemode/servers/git-hub"),
        ("@codemode/servers/Git Hub", "@codemode/servers/git-hub"),
        ("@codemode/servers/GIT_HUB", "@codemode/servers/git-hub"),
        ("@codemode/servers/zzzzz", "listServers"),
        ("@codemode/error", "@codemode/errors"),
        ("mail", "@codemode/servers/mail"),
        ("node:fs", "no others"),
        ("", "no others"),
    ],
)
def test_an_import_of_an_unknown_module_is_refused_with_a_hint(specifier: str, hint: str):
    [problem] = problems(imports=[("@codemode/errors", []), (specifier, ["x", "y"])])
    assert (problem["code"], problem["line"], problem["column"]) == ("IMPORT_FAILURE", 2, 1)
    assert hint in problem["hint"]


@each_row(
    "specifier, name, hint",
    [
        ("@codemode/servers/git-hub", "create_isue", "Import create_issue."),
        ("@codemode/servers/git-hub", "create-issue", "create_issue"),
        ("@codemode/servers/git-hub", "default", "import * as"),
        ("@codemode/servers/git-hub", "qqqq", "@codemode/discovery"),
        ("@codemode/errors", "ToolError", "ToolCallError"),
        ("@codemode/discovery", "searchTool", "searchTools"),
        (
            "@codemode/discovery",
            "qqqq",
            "It has describeServer, getTool, listServers, ",
        ),
    ],
)
def test_an_import_of_an_unknown_export_is_refused_with_a_hint(specifier: str, name: str, hint: str):
    [problem] = problems(imports=[(specifier, [name, "*", name])])
    assert problem["code"] == "IMPORT_FAILURE"
    assert name in problem["message"]
    assert hint in problem["hint"]


def test_a_call_of_a_name_that_a_namespace_has_not():
    calls = [("@codemode/servers/git-hub", name) for name in ("create_issue", "creat_issue", "__meta__", "zzz")]
    found = problems(imports=[("@codemode/servers/git-hub", ["*"])], calls=calls)
    assert [(one["code"], one["error_class"], one["line"]) for one in found] == [
        ("TOOL_NOT_FOUND", "ToolNotFoundError", 91),
        ("TOOL_NOT_FOUND", "ToolNotFoundError", 93),
    ]
    assert "create_issue" in found[0]["hint"]


def test_all_mistakes_come_at_once_in_order_and_bounded():
    wrong = [("@codemode/servers/git-hub", [f"nothing_{at}" for at in range(100)]), ("fs", [])]
    found = problems(imports=wrong[::-1])
    assert len(found) == 32
    assert [one["line"] for one in found] == [1] + [2] * 31
    assert len({one["message"] for one in found}) == 32


def test_a_dynamic_import_is_left_to_run_time():
    assert problems(dynamic=["@codemode/servers/nothing", None, "fs"]) == []


def test_a_server_that_could_not_be_listed_is_told_apart():
    catalog = ModuleCatalog(CATALOG.servers, {"drive": "it cannot be reached now"})
    [problem] = problems(catalog, imports=[("@codemode/servers/drive", ["x"])])
    assert problem["code"] == "IMPORT_FAILURE"
    assert "cannot be reached now" in problem["message"]


def test_given_are_the_servers_that_are_named():
    given = CATALOG.build_invocation_data(
        facts(
            imports=[("@codemode/servers/git-hub", ["create_issue"]), ("@codemode/errors", ["*"])],
            dynamic=["@codemode/servers/mail", "@codemode/servers/nothing"],
        )
    )
    assert given == {
        "module": {
            "prefix": 12,
            "take": "$codemode",
            "imports": ["@codemode/servers/git-hub", "@codemode/errors"],
            "all": False,
            "servers": {
                "git-hub": {
                    "serverId": "git-hub",
                    "serverName": "Git Hub",
                    "serverVersion": "2",
                    "tools": [
                        {"toolName": "create-issue", "exportName": "create_issue"},
                        {"toolName": "default", "exportName": "default_"},
                        {"toolName": "list_issues", "exportName": "list_issues"},
                        {"toolName": "then", "exportName": "then_"},
                    ],
                },
                "mail": {"serverId": "mail", "serverName": "mail", "tools": []},
            },
        }
    }


@each_row(
    "given, wants_all",
    [
        ({"imports": [("@codemode/servers/mail", ["*"])]}, False),
        ({"imports": [("@codemode/discovery", [])]}, True),
        ({"dynamic": ["@codemode/discovery"]}, True),
        ({"dynamic": ["@codemode/servers/mail"]}, False),
        ({"dynamic": [None]}, True),
    ],
)
def test_what_may_ask_for_any_server(given: Any, wants_all: bool):
    assert CATALOG.build_invocation_data(facts(**given))["module"]["all"] is wants_all


def test_the_same_program_is_given_the_very_same():
    one, two = (CATALOG.build_invocation_data(facts(imports=[("@codemode/errors", ["*"])]))["module"] for _ in range(2))
    assert one is two


def test_the_facts_of_one_analysis_are_parsed_once():
    analysis = AnalysisFacts(facts(imports=[("@codemode/errors", ["*"])]))
    assert parse_module_facts(analysis) is parse_module_facts(analysis)
    assert parse_module_facts(analysis) == parse_module_facts({**analysis})


def test_of_very_many_names_the_first_are_read_and_every_import_keeps_its_place():
    many = [{"from": f"@codemode/servers/s{number}", "names": [["x", "x"]] * 4000} for number in range(20)]
    read = parse_module_facts({"module": {"imports": many}}).imports
    assert [one.specifier for one in read] == [one["from"] for one in many]
    assert 0 < sum(len(one.names) for one in read) < 20_000


@given(members("prefix", "take", "imports", "dynamic", "namespace_calls", of=ANYTHING))
def test_no_facts_make_the_host_raise(module: Any):
    parse_module_facts({"module": module})
    CATALOG.find_program_error({"module": module})
    assert CATALOG.build_invocation_data({"module": module})["module"]["servers"].keys() <= {"git-hub", "mail"}


@each_row("given", [None, {}, {"module": None}, [], {"module": {"imports": {}}}])
def test_facts_that_are_none_import_nothing(given: Any):
    assert CATALOG.find_program_error(given) is None
    assert CATALOG.build_invocation_data(given)["module"]["imports"] == []


def test_a_name_that_is_missing_has_its_own_place():
    given = facts(imports=[("@codemode/servers/mail", ["a", "__meta__", "b", "b"])])
    (one,) = given["module"]["imports"]
    for places, expected in (
        ([[1, 10], [1, 13], [2, 3], [4, 4]], [(1, 10), (2, 3)]),
        ([[1, 10]], [(1, 1), (1, 10)]),
        (None, [(1, 1), (1, 1)]),
        ([[1], "x", [-1, True, 9], 5], [(1, 1), (1, 1)]),
        (7, [(1, 1), (1, 1)]),
    ):
        one["places"] = places
        refusal = CATALOG.find_program_error(given)
        assert refusal is not None
        assert [(one["line"], one["column"]) for one in refusal.details["problems"]] == expected
