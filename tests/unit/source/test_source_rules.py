"""What a program says against what it may not say; the facts may be anything."""

import sysconfig

from hypothesis import given, settings
from hypothesis import strategies as st
from suite import each_row, rounds

from codemode.guest.analysis import analyse
from codemode.profile import StaticRules
from codemode.source import rules

_analyser = analyse.load_analyser(sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
STRICT = StaticRules(
    disabled_builtins=("eval", "Function"), disabled_globals=("fetch", "eval"), allow_loops=False, runs_unanalysed=False
)
NOT_ANALYSABLE = [{"kind": "NotAnalysable", "location": {"line": 1, "column": 1}}]


def facts_of(source):
    return _analyser(source, 60_000, True)["facts"]


def broken(source, asked=STRICT):
    return [
        (found["kind"], found.get("name"), found["location"]["line"], found["location"]["column"])
        for found in rules.find_violations(facts_of(source), asked, source)
    ]


def test_all_rules_at_once_in_order_of_place():
    source = "for (;;) {\n  fetch(eval);\n}\nimport('é😀'); eval; const Function = 1;"
    assert broken(source) == [
        ("DisallowedLoop", "for", 1, 1),
        ("DisallowedGlobal", "fetch", 2, 3),
        ("IllegalBuiltinAccess", "eval", 2, 9),
        ("DisallowedImport", "import()", 4, 1),
        ("IllegalBuiltinAccess", "eval", 4, 16),
        ("IllegalBuiltinAccess", "Function", 4, 28),
    ]


def test_what_is_allowed():
    assert broken("return a.eval + 'fetch'") == []
    assert broken("for (;;) {}", StaticRules(runs_unanalysed=False)) == []
    assert broken("require('x')") == []


def test_without_rules_in_force_nothing_is_broken():
    assert rules.find_violations(None, StaticRules(), "import 'x'") == []


def test_the_first_of_many_are_told_of():
    source = "for (;;) {}\n" * 100 + "eval;" * 100
    assert broken(source) == [("DisallowedLoop", "for", line, 1) for line in range(1, 65)]
    assert broken("eval;" * 100 + "\nfetch")[:2] == [
        ("IllegalBuiltinAccess", "eval", 1, 1),
        ("IllegalBuiltinAccess", "eval", 1, 6),
    ]


GOOD = {"calls": [], "modules": [], "shadowed": False, "names": {}, "loops": []}


@each_row(
    "facts",
    [
        None,
        {},
        [],
        {**GOOD, "names": None},
        {**GOOD, "names": ["eval"]},
        {**GOOD, "names": {"eval": None}},
        {**GOOD, "names": {"eval": []}},
        {**GOOD, "names": {"eval": [4]}},
        {**GOOD, "names": {"eval": [-1]}},
        {**GOOD, "names": {"eval": [True]}},
        {**GOOD, "names": {"eval": [0.0]}},
        {**GOOD, "loops": None},
        {**GOOD, "loops": [1]},
        {**GOOD, "loops": [{"kind": "for", "line": 0, "column": 1}]},
        {**GOOD, "loops": [{"kind": ["for"], "line": 1, "column": 1}]},
        {**GOOD, "modules": [{"kind": "x", "line": 1, "column": 1}]},
    ],
)
def test_malformed_facts_leave_a_program_unanalysable(facts):
    assert rules.find_violations(facts, STRICT, "eval") == NOT_ANALYSABLE


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("eval"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["eval", "at", "kind", "line"]), inner),
    max_leaves=8,
)


@settings(max_examples=rounds(20, 200), deadline=None)
@given(st.dictionaries(st.sampled_from([*GOOD, "named_calls", "definitions"]), JSON))
def test_any_facts_are_survived(facts):
    for found in rules.find_violations(facts, STRICT, "eval\n(1)"):
        assert found["location"]["line"] >= 1
    rules.find_uncaught_call_of_missing_tool(facts, lambda _name: False)
    assert all(isinstance(name, str) for name in rules.list_requested_definition_names(facts))


def test_the_first_name_that_is_not_known():
    caught = "try { await callTool('b') } catch {}"
    facts = facts_of(f"await callTool('a');\n{caught}\nawait callTool('c'); await callTool('d')")
    assert rules.find_uncaught_call_of_missing_tool(facts, {"a"}.__contains__) == ("c", 3, 7)
    assert rules.find_uncaught_call_of_missing_tool(facts, {"a", "c", "d"}.__contains__) is None
    assert rules.find_uncaught_call_of_missing_tool(None, lambda _name: False) is None


def test_literal_definitions():
    assert rules.list_requested_definition_names(facts_of("getTool('a'); getTool('b'); getTool('a')")) == ["a", "b"]
    assert rules.list_requested_definition_names({"definitions": [1, "a" * 300, "c"]}) == ["c"]
