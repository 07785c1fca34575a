"""Saved programs: how they are called, trusted and pinned, on one surface; and that all surfaces have them."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from waiting import within

from codemode import (
    CodeModeError,
    CodeModeProtocolError,
    CodeModeToolError,
    Interrupt,
    ModuleServer,
    ProgramLibrary,
    Tool,
    WorkerPool,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
    failure_text,
)
from codemode.errors import CodeModeSyntaxError
from codemode.stores import MemoryInterruptStore

WEEK = {"type": "object", "properties": {"week": {"type": "integer"}}, "required": ["week"]}
REPORT = "const { week }: { week: number } = input;\nreturn (await tools.get_total({ week })) + 1;"
PAUSES = {"approval": {"mode": "interrupt"}}


def get_total(week: int) -> int:
    """The total of a week."""
    return week * 10


def refund(id: int) -> str:  # noqa: A002 - as a user may write it
    return f"refunded {id}"


def tools_with(total: Any = get_total) -> dict[str, Any]:
    return {"get_total": total, "refund": Tool.from_function(refund, needs_approval=True)}


def library_with(programs: dict[str, str], store: Any = None, **settings: Any) -> ProgramLibrary:
    library = ProgramLibrary(store or MemoryInterruptStore(), **settings)
    for name, program in programs.items():
        within(
            library.save(name, program, description=f"The {name}.", input_schema=WEEK if "week" in program else None)
        )
    return library


def run(library: ProgramLibrary, js: str, tools: Any = None, options: Any = PAUSES, **more: Any) -> Any:
    tool = create_code_mode_tool(tools or tools_with(), options, library=library, **more)
    return within(tool.execute(js))


def refused(library: ProgramLibrary, js: str, tools: Any = None, kind: type[CodeModeError] = CodeModeToolError) -> str:
    with pytest.raises(kind) as raised:
        run(library, js, tools)
    return raised.value.message


def test_a_saved_program_runs_with_its_validated_input():
    library = library_with({"report": REPORT})
    assert run(library, "return await saved.report({ week: 4 })") == 41
    assert "week: expected integer" in refused(library, "return await saved.report({ week: 'x' })")
    assert within(library.get("report")).uses == 1


def test_names_that_are_computed_are_looked_up_when_they_are_called():
    library = library_with({"report": REPORT})
    assert run(library, "const name = 're' + 'port'; return await saved[name]({ week: 4 })") == 41
    assert run(library, "return Object.keys(saved)") == ["report"]
    text = refused(library, "return await saved['rep' + 'orts']({ week: 4 })")
    assert "there is no saved program 'reports'" in text
    assert "saved.report" in text


def test_a_program_that_is_a_function_is_called_with_the_input():
    for program in (
        "async ({ week }) => week + 1",
        "async function main(input) { return input.week + 1 }",
        "async function main(input) { return input.week + 1 }\nmain",
        "function next({ week }) { return week + 1 }\nreturn next(input);",
        "export default async function ({ week }) { return week + 1 }",
        "export const next = async (input: { week: number }): Promise<number> => input.week + 1;",
        "const unused = (input) => 0;\nreturn input.week + 1;",
        "function add(a, b) {\n  return a + b;\n}\n\nexport async function main(i) {\n  return add(i.week, 1);\n}\n",
    ):
        library = library_with({"next": program})
        assert run(library, "return await saved.next({ week: 4 })") == 5, program


def test_a_helper_that_nothing_calls_is_not_the_program():
    for program in (
        "const x = 1;\nfunction unused(input) {\n  throw new Error('called');\n}\nfor (const one of [x]) {\n}\n",
        "const x = 1;\nfunction first() {}\nfunction second() {}\n",
    ):
        assert run(library_with({"quiet": program}), "return (await saved.quiet()) === undefined") is True, program


def test_comments_helpers_and_other_declarations_do_not_hide_the_function_that_is_the_program():
    report = "const report = async ({ week }) => week * 2;"
    for program in (
        f"/** report doubles a week. */\nexport {report}",
        "// doubles\n(async ({ week }) => week * 2)",
        "async ({ week = (1 + 1) }) => week * 2",
        "export const report = async ({ week = (1 + 1) }) => week * 2;",
        f"const FACTOR = 2;\nexport {report}",
        f"class Week {{}}\n{report}",
        f"'use strict';\n{report}",
        "type Input = { week: number };\nconst report = async ({ week }: Input): Promise<number> => week * 2;",
        f"const now = () => 1;\n{report}",
        "const double = (n) => n * 2;\nexport const report = async ({ week }) => double(week);",
        "const double = (n) => n * 2, report = async ({ week }) => double(week);",
        "const double = (n) => n * 2;\nexport default async ({ week }) => double(week);",
        "function double(n) { return n * 2; }\nexport default async function ({ week }) { return double(week); }",
        "const double = (n) => n * 2;\nmodule.exports = async ({ week }) => double(week);",
        "const report = async ({ week }) => double(week);\nfunction double(n) { return n * 2; }",
        "const format = (x) => JSON.stringify(x);\nasync function report({ week }) { return week * 2; }",
        f"export {report}\nconst format = (x) => JSON.stringify(x);",
        "async function run({ week }) { return week * 2; }\nconst format = (x) => `${x}`;\nconst FACTOR = 2;",
        "async function report({ week }) { return week * FACTOR; }\nconst FACTOR = 2;",
        "async function report({ week }) { return week > 4 ? 8 : report({ week: week + 1 }); }",
        "const n = await tools.get_total({ week: 1 });\nasync function report({ week }) { return week + n - 6; }",
    ):
        assert run(library_with({"report": program}), "return await saved.report({ week: 4 })") == 8, program


def test_a_program_of_statements_returns_only_what_it_returns_itself():
    for program, expected in (
        ("const helper = (n) => 1;\nawait tools.get_total({ week: 4 });", None),
        ("function helper(n) { return 1; }\nconst total = await tools.get_total({ week: 4 });", None),
        ("function helper(n) { return 1; }\nreturn await tools.get_total({ week: 4 });", 40),
        ("return await tools.get_total({ week: 4 });\nfunction helper(n) { return 1; }", 40),
        ("const helper = () => 1;\nif (input) return 2;\nreturn 3;", 2),
    ):
        library = library_with({"plain": program})
        assert run(library, "return (await saved.plain({ week: 4 })) ?? null") == expected, program


def test_a_program_may_return_a_function_to_its_caller():
    library = library_with({"make": "const double = (n) => n * 2;\nreturn double;"})
    assert run(library, "return (await saved.make())(4)") == 8


def test_a_text_that_does_not_show_which_function_is_the_program_is_not_saved():
    for program, names in (
        ("const first = (a) => 1;\nconst second = (b) => 2;\nconst FACTOR = 2;", "first, second"),
        ("function first() { return second(); }\nfunction second() { return first(); }", "first, second"),
        ("const double = (n) => n * 2;\nconst total = double(2) + 1;", "double"),
    ):
        with pytest.raises(CodeModeSyntaxError) as raised:
            library_with({"unclear": program})
        name = names.rpartition(", ")[2]
        assert f"unclear which of its functions it is ({names})" in raised.value.message
        assert f"`return await {name}(input);`" in raised.value.message


def test_calls_of_a_saved_program_say_in_the_trace_which_made_them():
    traces: list[Any] = []
    library = library_with({"report": REPORT})
    options = {"lifecycle": {"on_trace": traces.append}}
    run(library, "await tools.get_total({ week: 1 }); return await saved.report({ week: 4 })", options=options)
    calls = [(call.tool_name, call.program, call.line) for call in traces[0].bridge_requests]
    assert calls == [("get_total", None, None), ("saved.report", None, None), ("get_total", "report", 2)]


def test_an_error_names_the_saved_program_and_its_line():
    library = library_with({"broken": "const a = 1;\nreturn a.b.c;"})
    with pytest.raises(CodeModeError) as raised:
        run(library, "return await saved.broken()")
    assert "saved/broken.js:2" in raised.value.details["stack"]
    told = failure_text(raised.value, "return await saved.broken()")
    assert "in saved.broken, line 2, column" in told
    assert "Hint: Call saved.broken with other input, or do without it" in told
    module = create_modules_tool([ModuleServer("shop", tools={"get_total": get_total})], library=library)
    code = 'import { broken } from "@codemode/saved";\nexport default await broken();'
    (problem,) = within(module.execute({"code": code}))["diagnostics"]
    assert "(in saved.broken, line 2, column" in problem["message"]
    assert problem["hint"] == "Call saved.broken with other input, or do without it."


def test_saved_programs_call_others_to_a_depth_of_four():
    chain = {f"p{n}": f"return 1 + await saved.p{n + 1}()" for n in range(1, 5)}
    four = library_with({**chain, "p4": "return 1"})
    assert run(four, "return await saved.p1()") == 4
    five = library_with({**chain, "p5": "return 1"})
    assert "deeper than 4" in refused(five, "return await saved.p1()", kind=CodeModeSyntaxError)
    assert run(five, "return await saved.p2()") == 4


def test_cycles_are_refused_before_anything_runs():
    library = library_with({"a": "return saved.b()", "b": "return saved.a()"})
    calls: list[int] = []
    tools = {"get_total": Tool("get_total", execute=lambda _: calls.append(1))}
    text = refused(library, "await tools.get_total({}); return await saved.a()", tools, CodeModeSyntaxError)
    assert "saved.a calls saved.b calls saved.a" in text
    assert not calls


def test_a_computed_cycle_ends_when_it_is_called():
    library = library_with({"a": "return saved['a' + '']()"})
    with pytest.raises(CodeModeError, match=r"a cycle: saved\.a calls saved\.a"):
        run(library, "return await saved.a()")


def test_a_changed_tool_makes_a_program_stale_until_a_person_confirms_it():
    library = library_with({})
    create_code_mode_tool(tools_with(), library=library)  # the tools that it is pinned to
    within(library.save("report", REPORT))

    def changed(week: int, year: int = 2026) -> int:
        """The total of a week."""
        return week + year

    other = tools_with(changed)
    text = refused(library, "return await saved.report({ week: 4 })", other)
    assert "the input schema of the tool 'get_total' has changed since version 1" in text
    assert "stale" in refused(library, "return await saved['repo' + 'rt']({ week: 4 })", other)
    assert within(library.get("report")).is_stale
    assert within(library.confirm("report", by="ann")).current.confirmed_by == "ann"
    assert run(library, "return await saved.report({ week: 4 })", other) == 2031
    assert "stale" in refused(library, "return await saved.report({ week: 4 })")
    assert "'get_total' is gone" in refused(library, "return await saved.report({ week: 4 })", {"refund": refund})


def test_what_is_not_pinned_yet_is_pinned_by_its_first_use():
    library = library_with({"report": REPORT})
    assert within(library.get("report")).current.tools is None
    run(library, "return await saved.report({ week: 4 })")
    assert within(library.get("report")).current.tools == ("get_total",)
    changed = Tool.from_function(get_total, description="Something else.")
    text = refused(library, "return await saved.report({ week: 4 })", tools_with(changed))
    assert "the description of the tool 'get_total'" in text


def test_a_text_that_was_changed_in_the_store_is_refused():
    store = MemoryInterruptStore()
    library = library_with({"report": REPORT}, store)
    with store._database.transaction(writes=True) as session:
        session.run("UPDATE codemode_saved_versions SET body = replace(body, '+ 1', '+ 2')")
    assert "its text in the store has changed" in refused(library, "return await saved.report({ week: 4 })")
    within(library.confirm("report", by="ann"))
    assert run(library, "return await saved.report({ week: 4 })") == 42


def test_a_disabled_program_is_refused_until_it_is_enabled():
    library = library_with({"report": REPORT})
    within(library.disable("report"))
    assert refused(library, "return await saved.report({ week: 4 })") == "saved.report is disabled"
    within(library.enable("report"))
    assert run(library, "return await saved.report({ week: 4 })") == 41


def test_approvals_inside_are_asked_for_and_name_the_saved_program():
    library = library_with({"refund_it": "\nreturn tools.refund({ id: 7 })"})
    pause = run(library, "return await saved.refund_it()")
    assert isinstance(pause, Interrupt)
    assert [(one.tool_name, one.program) for one in pause.requests] == [("refund", "refund_it:2")]
    tool = create_code_mode_tool(tools_with(), PAUSES, library=library)
    assert within(tool.resume(Interrupt.from_value(pause.to_dict()), True)) == "refunded 7"


def test_a_paused_invocation_resumes_with_the_versions_it_started_with():
    library = library_with({"late": "return 'version 1'", "ask": "return tools.refund({ id: 1 })"})
    tool = create_code_mode_tool(tools_with(), PAUSES, library=library)
    pause = within(tool.execute("await saved.ask(); return [await saved.late(), await saved['la' + 'te']()]"))
    within(library.save("late", "return 'version 2'"))
    within(library.delete("ask"))
    assert within(tool.resume(pause, True)) == ["version 1", "version 1"]
    assert run(library, "return await saved.late()") == "version 2"


def test_programs_of_one_owner_never_run_for_another():
    store = MemoryInterruptStore()
    ann = library_with({"report": "return 'planted by ann'"}, store, owner="ann")
    bob = ann.for_owner("bob")
    assert "there is no saved program 'report'" in refused(bob, "return await saved.report()")
    within(bob.save("report", "return 'of bob'"))
    assert run(bob, "return await saved.report()") == "of bob"
    assert run(ann, "return await saved.report()") == "planted by ann"


def test_an_invocation_of_one_owner_goes_on_for_no_other():
    store = MemoryInterruptStore()
    ann = library_with({"ask": "return tools.refund({ id: 1 })"}, store, owner="ann")
    pause = run(ann, "return await saved.ask()")
    tool = create_code_mode_tool(tools_with(), PAUSES, library=ann.for_owner("bob"))
    with pytest.raises(CodeModeProtocolError, match="another owner"):
        within(tool.resume(pause, True))
    assert within(create_code_mode_tool(tools_with(), PAUSES, library=ann).resume(pause, True)) == "refunded 1"


def test_many_programs_that_name_each_other_are_looked_through_once():
    names = [f"p{number}" for number in range(16)]
    tiers = dict.fromkeys(names[12:], "return 1")
    for tier in (0, 4, 8):
        later = ", ".join(f"saved.{name}()" for name in names[tier + 4 : tier + 8])
        tiers |= dict.fromkeys(names[tier : tier + 4], f"return Promise.all([{later}])")
    library = library_with(tiers)
    assert run(library, "return 1 > 2 ? await saved.p0() : 5") == 5


def test_an_owner_can_be_found_out_at_each_call():
    from codemode import CallContext

    store = MemoryInterruptStore()
    library_with({"who": "return 'of ann'"}, store, owner="ann")
    library = ProgramLibrary(store, owner=lambda call: call.context)
    tool = create_code_mode_tool(tools_with(), library=library)
    assert within(tool.execute("return await saved.who()", CallContext(context="ann"))) == "of ann"
    for context in ("bob", None):
        with pytest.raises(CodeModeToolError):
            within(tool.execute("return await saved.who()", CallContext(context=context)))
    assert "saved.$search" in tool.description


def test_a_saved_program_is_no_tool_of_that_name():
    library = library_with({"report": REPORT})
    with pytest.raises(CodeModeError, match=r"called as saved\.report"):
        run(library, "saved; const name = 'saved'; return await tools[name].report({ week: 4 })")
    tool = create_code_call_tools({"get_total": get_total}, library=library)
    answer = within(tool.execute("saved; return await callTool('saved.report', { week: 4 })"))
    assert answer["error"]["toolName"] == "saved.report"


def test_an_error_lists_what_was_done_inside_and_no_call_that_changed_nothing():
    library = library_with({"two": "await tools.get_total({ week: 1 });\nthrow new Error('late')"})
    with pytest.raises(CodeModeError) as raised:
        run(library, "return await saved.two({ week: 1 })")
    assert [(call.tool_name, call.program) for call in raised.value.trace.bridge_requests] == [
        ("saved.two", None),
        ("get_total", "two"),
    ]
    text = failure_text(raised.value, "return await saved.two()")
    assert "get_total" in text
    assert "only read: saved.two(" in text


def test_names_cannot_shadow_anything():
    library = library_with({})
    for name in ("then", "constructor", "__proto__", "$save", "tools", "delete", "a.b", "é", "", "toString"):
        with pytest.raises(ValueError, match="name"):
            within(library.save(name, "return 1"))


def test_a_program_that_is_none_is_not_saved():
    library = library_with({})
    for program in ("return (", "}); globalThis.x = 1; (async () => {", "export const a = 1", "await import('fs')"):
        with pytest.raises(CodeModeSyntaxError):
            within(library.save("bad", program))
    assert within(library.list()) == []


def test_nothing_of_a_saved_program_is_left_in_a_kept_worker():
    planted = "globalThis.left = 'here'; globalThis.saved; return 1"
    library = library_with({"plant": planted})
    pool = WorkerPool({"max_workers": 1, "spare_workers": 0, "programs_per_worker": 20, "allow_kept_workers": True})
    with closing(pool):
        assert run(library, "return await saved.plant()", pool=pool) == 1
        look = "return [typeof saved, typeof globalThis.left, typeof globalThis.saved]"
        tool = create_code_mode_tool(tools_with(), pool=pool)
        assert within(tool.execute(look)) == ["undefined"] * 3


def test_a_variable_called_saved_is_the_programs_own():
    library = library_with({"report": REPORT})
    assert run(library, "const saved = { nothing: () => 5 }; return saved.nothing()") == 5


def test_tools_in_a_namespace_of_that_name_disable_the_global_with_a_warning(caplog):
    library = library_with({"report": REPORT})
    tool = create_code_mode_tool({"saved.report": lambda week: week}, library=library)
    assert "named `saved`" in caplog.text
    assert within(tool.execute("return [typeof saved, await tools.saved.report({ week: 3 })]")) == ["undefined", 3]
    assert "Programs that were saved" not in tool.description


def test_the_description_declares_the_most_used_and_costs_nothing_without_any():
    library = ProgramLibrary(MemoryInterruptStore())
    tool = create_code_mode_tool(tools_with(), library=library)
    assert tool.description == create_code_mode_tool(tools_with()).description
    for number in range(22):
        within(library.save(f"p{number}", "return 1", description=f"Number {number}."))
    within(library.rows.count_use("", "p21"))
    within(library.refresh())
    text = tool.description
    assert text.count("(input?: unknown)") == 20
    assert "p21(" in text
    assert "There are 2 more" in text
    found = run(library, "return await saved.$search('number 21')")
    assert found[0]["name"] == "p21"
    assert "p21(input?: unknown)" in found[0]["declaration"]


def test_every_surface_calls_saved_programs():
    body = "const rows = await {call}({ week: input.week });\nreturn rows + 1;"

    def library_of(call: str) -> ProgramLibrary:
        return library_with({"report": body.replace("{call}", call)})

    tools = {"get_total": get_total}
    js = "return await saved.report({ week: 4 })"
    code_call = create_code_call_tools({"shop.get_total": get_total}, library=library_of("shop.get_total"))
    assert within(code_call.execute(js))["result"] == 41
    imports = 'import { get_total } from "@codemode/servers/shop";\n'
    library = library_with({"report": imports + body.replace("{call}", "get_total")})
    module = create_modules_tool([ModuleServer("shop", tools=tools)], library=library)
    for code in (
        'import { report } from "@codemode/saved";\nexport const result = await report({ week: 4 });',
        'import * as all from "@codemode/saved";\nexport const result = await all.report({ week: 4 });',
        'import saved from "@codemode/saved";\nexport const result = await saved.report({ week: 4 });',
        'const all = await import("@codemode/saved");\nexport const result = await all.report({ week: 4 });',
        "export const result = await saved.report({ week: 4 });",
    ):
        response = within(module.execute(code))
        assert response["result"] == 41, (code, response)
    pair = create_exec_wait_tools(tools, library=library_of("tools.get_total"))
    assert within(pair.exec.execute(js))["value"] == 41
    within(pair.aclose())
    for text in (code_call.tools[2].description, module.description, pair.exec.description):
        assert "report(input: {" in text


def test_an_import_of_what_was_not_saved_is_refused_before_anything_runs():
    library = library_with({"report": REPORT})
    module = create_modules_tool([ModuleServer("shop", tools={"get_total": get_total})], library=library)
    code = '\nimport { nothing } from "@codemode/saved";\nexport const result = await nothing({});'
    (diagnostic,) = within(module.execute(code))["diagnostics"]
    assert (diagnostic["code"], diagnostic["path"]) == ("IMPORT_FAILURE", "2:1")
    assert "there is no saved program 'nothing'" in diagnostic["message"]


def test_rules_of_the_calling_surface_hold_for_saved_programs():
    library = library_with({"loops": "for (let i = 0; i < 2; i++);\nreturn 1", "calls": "return saved.loops()"})
    tool = create_code_call_tools({"get_total": get_total}, library=library)
    for js in ("return await saved.loops()", "return await saved.calls()"):
        assert within(tool.execute(js))["status"] == "illegal_access", js
    answer = within(tool.execute("return await saved['lo' + 'ops']()"))
    assert (answer["status"], "loops are not allowed" in answer["error"]["message"]) == ("tool_error", True)
    loose = create_code_call_tools({"get_total": get_total}, {"vm": {"preset": "experimental"}}, library=library)
    assert within(loose.execute("return await saved.calls()"))["result"] == 1


def test_rich_values_cross_to_saved_programs_and_back():
    options = {"execution_policy": {"values": "rich"}}
    library = library_with({"next_day": "return new Date(input.at.getTime() + 86_400_000)"})
    js = "return (await saved.next_day({ at: new Date(0) })) instanceof Date"
    assert run(library, js, options=options) is True
