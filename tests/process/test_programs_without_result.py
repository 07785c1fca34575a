"""A program that returns nothing says so on every surface, with what there is in place of a result."""

from __future__ import annotations

from typing import Any

import pytest
from four_surfaces import SURFACES, answer_on

from codemode import CallContext, CodeModeError, CodeModeToolError, Tool, create_code_mode_tool, failure_text

ROWS = [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}]


def pay(order: str) -> dict[str, str]:
    return {"receipt": f"r-{order}"}


TOOLS = [
    Tool.from_function(pay),
    Tool("find", execute=lambda: ROWS, annotations={"readOnlyHint": True}),
    Tool("nothing", execute=lambda: None, annotations={"readOnlyHint": True}),
]
SAYS = "The program returned nothing"


@pytest.mark.parametrize("surface", SURFACES)
def test_the_value_of_the_last_statement_is_told(surface: str):
    """Each row: what the program is, and what of its last statement is told."""
    table = [
        ("await @find()", '[{"id":1,"name":"Ann"},{"id":2,"name":"Bob"}]'),
        ("const rows = await @find();\nrows.length", "2"),
        ("const rows = await @find()\nrows.map((one) => one.name);  // the names", '["Ann","Bob"]'),
        ("const rows: unknown[] = await @find(); (rows as any[])[0]?.id ?? 'none'", "1"),
        ("'größe ' + '😀'", '"größe 😀"'),
        ("const a = 1, b = 2; a, b", "2"),
        ("let total; total = 1 + 1", "2"),
        ("class A {}\n[1, 2]", "[1,2]"),
        ("2n ** 64n", "18446744073709551616"),
        ("[() => 1][0]", "a function, which nothing has called"),
        ("Promise.resolve(1)", "a promise, which nothing has awaited"),
        ("new RangeError('too far')", '{"name":"RangeError","message":"too far"}'),
        ("const $last = 1; $last + 1", "2"),
        ("({ toJSON() { return 'own' } })", '"own"'),
    ]
    for program, value in table:
        answer = answer_on(surface, TOOLS, program)
        assert (answer.value, SAYS in answer.text) == (None, True), (program, answer)
        assert f"Its last statement has this value: {value}" in answer.text.split("\n"), (program, answer.text)


@pytest.mark.parametrize("surface", SURFACES)
def test_a_last_statement_without_a_value_is_not_told_of(surface: str):
    for program in (
        "// nothing",
        "const rows = await @find()",
        "if (true) { 5 }",
        "undefined",
        "await @nothing()",
        "({ toJSON() { throw new Error('no') } })",
    ):
        answer = answer_on(surface, TOOLS, program)
        assert (answer.value, SAYS in answer.text) == (None, True), (program, answer)
        assert "last statement" not in answer.text, program


@pytest.mark.parametrize("surface", SURFACES)
def test_a_program_that_only_declares_a_function_says_that_nothing_calls_it(surface: str):
    keyword = "export default" if surface == "modules" else "return"
    for program, name in (
        ("export default async function run(input, options) { return await @pay({ order: input }); }", "run"),
        ("async function main(order) {\n  return await @pay({ order: order.id });\n}", "main"),
        ("async function main({ pay }) { return await pay({ order: 'a' }) }", "main"),
        ("const main = async (input, options) => await @pay({ order: input });\nmain;", "main"),
        ("const main = async (input, options) => await @pay({ order: input });\nexport default main;", "main"),
        ("async function main(input, options) { return 1 }", "main"),
        ("const LIMIT = 3;\nfunction first(a) { return a.id }\nfunction second(b) { return b.id }", "second"),
        ("const format = (row) => row.id;\nasync function solve(order) { return order.id }\nclass A {}", "solve"),
    ):
        answer = answer_on(surface, TOOLS, program)
        call = f"It declares the function `{name}` and never calls it: end it with `{keyword} await {name}(...)`."
        assert answer.value is None, program
        assert f"{SAYS}. {call}" in answer.text, (program, answer.text)
        assert "called " + name not in answer.text, program


@pytest.mark.parametrize("surface", SURFACES)
def test_a_program_that_did_something_is_told_what_it_did_and_not_of_its_helpers(surface: str):
    answer = answer_on(surface, TOOLS, "const paid = await @pay({ order: 'a' });\nconst format = (row) => row.id;")
    assert "do not repeat" in answer.text
    assert "format" not in answer.text


@pytest.mark.parametrize("surface", SURFACES)
def test_what_was_printed_and_done_is_told(surface: str):
    answer = answer_on(surface, TOOLS, "const paid = await @pay({ order: 'a' });\nconsole.log('receipt', paid.receipt)")
    assert SAYS in answer.text
    assert "receipt r-a" in answer.text
    (done,) = [line for line in answer.text.split("\n") if "do not repeat" in line]
    assert 'pay({"order":"a"}) -> {"receipt":"r-a"}' in done


@pytest.mark.parametrize("surface", SURFACES)
def test_what_only_read_is_told_where_nothing_else_is(surface: str):
    answer = answer_on(surface, TOOLS, "const rows = await @find();")
    assert "Ann" in answer.text
    assert "do not repeat" not in answer.text


def test_each_surface_says_it_in_its_own_place():
    program = "await @find()"
    assert answer_on("codeMode", TOOLS, program).whole["type"] == "text"
    assert [one["type"] for one in answer_on("exec", TOOLS, program).whole["output"]] == ["text"]
    assert len(answer_on("CodeCall", TOOLS, program).whole["warnings"]) == 1
    (said,) = answer_on("modules", TOOLS, program).whole["diagnostics"]
    assert (said["severity"], said["code"]) == ("info", "NO_RESULT")


@pytest.mark.parametrize("surface", SURFACES)
def test_who_returned_something_is_told_nothing(surface: str):
    give = "globalThis.__codemode_result__ = " if surface == "modules" else "return "
    for value, expected in (("null", None), ("0", 0), ("''", ""), ("[]", [])):
        answer = answer_on(surface, TOOLS, f"1; {give}{value}")
        assert answer.value == expected
        assert SAYS not in answer.text, value


def test_a_program_whose_return_is_undefined_is_not_told_to_return():
    for surface in SURFACES[:3]:
        text = answer_on(surface, TOOLS, "return await @nothing()").text
        assert SAYS in text
        assert "end it with" not in text


def test_exec_with_items_of_output_has_given_something():
    answer = answer_on("exec", TOOLS, "text('seen'); await @find()")
    assert answer.whole["output"] == [{"type": "text", "text": "seen"}]


def test_keeping_the_value_changes_neither_names_nor_what_a_program_sees():
    tool = create_code_mode_tool(TOOLS)
    for js, expected in (
        ("const f = () => 1; if (f.name === 'f') return 'named'; f", "named"),
        ("if (true) return arguments.length; 1", 0),
        ("if (typeof $last === 'undefined' || $last.value === undefined) return 'no value'; 1", "no value"),
        ("const seen = []; for (const one of [1, 2]) seen.push(one); if (seen.length > 1) return seen; seen", [1, 2]),
    ):
        assert tool.execute_sync({"js": js}) == expected, js


def test_places_are_those_of_the_authors_text():
    def refuse(order: str) -> None:
        raise CodeModeToolError("no")

    tool = create_code_mode_tool([Tool.from_function(refuse)])
    for js, place in (
        ("await tools.refuse({ order: 'a' })", (1, 12)),
        ("const a = 1; await tools.refuse({ order: 'a' })", (1, 25)),
        ("/* é😀 */ await tools.refuse({ order: 'a' })", (1, 22)),
        ("const a = 1;\n  a.b.c; // é", (2, 3)),
        ("const a = [1];\n  a.map((one) =>\n  one.b.c)", (3, 3)),
    ):
        for text in (js, f"{js}\nreturn 1"):
            with pytest.raises(CodeModeError) as caught:
                tool.execute_sync({"js": text})
            found = caught.value.details
            assert (found["line"], found["column"]) == place, text
            assert f"at line {place[0]}, column {place[1]}:" in failure_text(caught.value, text)


def test_places_in_a_module_are_those_of_the_authors_text():
    for program in (
        "const a = {}; a.b.c",
        "const a = await @find(); a[9].b",
        "/* é */ const a = await @find(); /* é */ a[9].b",
        "await @find();\n  a.b",
    ):
        kept, plain = (answer_on("modules", TOOLS, text) for text in (program, f"{program}; if (true) {{}}"))
        (error,), (same,) = kept.whole["diagnostics"], plain.whole["diagnostics"]
        assert error["path"] == same["path"], program
    (error,) = answer_on("modules", TOOLS, "/* é😀 */ const a = 1; /* é */ [].b.c").whole["diagnostics"]
    assert error["path"] == "1:32"


def test_a_program_that_pauses_keeps_its_last_value_to_the_end():
    guarded = Tool("refund", execute=lambda value: {"refunded": value["order"]}, needs_approval=True)
    for surface_options in ({}, {"continuation": {"seal": True}}):
        options: Any = {"approval": {"mode": "interrupt"}, **surface_options}
        tool = create_code_mode_tool([guarded], options)
        interrupt = tool.execute_sync(
            {"js": "1;\nawait tools.refund({ order: 'a' })"}, call=CallContext(tool_call_id="call-1")
        )
        assert tool.resume_sync(interrupt, {"approved": True}) is None
        shown = tool.to_model_output(None, tool_call_id="call-1")
        assert 'Its last statement has this value: {"refunded":"a"}' in shown["value"]


def test_a_large_last_value_is_cut():
    text = answer_on("codeMode", TOOLS, "'x'.repeat(100000)").text
    assert len(text) < 3000
    assert "x…" in text
