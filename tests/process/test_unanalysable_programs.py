"""With rules in force nothing of a program runs of which the parser and the engine could think differently."""

import pytest
from suite import each_row, full_only

from codemode import Tool, create_code_call_tools

BEFORE = "await callTool('a', {}); "

# What hides the use of `eval` from the grammar, or leaves a program without facts.
UNANALYSABLE = (
    "b = async\n{ eval(this)\n{} }",
    "return /a//*\n*/eval(1)",
    'x => {}\n/"/; y = 1; eval(1)//"',
    "<!-- c\reval(1)",
    "x <!--y/*\n; eval(1) /**/",
    "f<infer>(1); eval(1)",
    "const f = function () { return await / eval(1) / g / 2 }",
    "a;" * 20_000,
)
# TypeScript that is not understood, and whatever ends the function that a program is the body of.
NO_PROGRAMS = (
    "const x: number = 1; const f = function () { return await / eval(1) / g / 2 }",
    "const x: number = 1; let y: = eval(1)",
    "const x: number = 1; function f(a: string { eval(1) }",
    "} eval(1); {",
    "}); eval(1); (async function () {",
    "eval(1) '",
    *full_only("!>" * 20_000),  # it computes for as long as it may
)


def statuses(script: str) -> tuple[str, str | None, int]:
    ran: list[object] = []
    tool = Tool("a", execute=lambda given, _context: ran.append(given), input_schema={"type": "object"})
    # Before it gives up, a worker computes for a second, which on a busy machine takes several.
    answer = create_code_call_tools([tool], {"vm": {"timeoutMs": 60_000}}).execute_sync({"script": script})
    assert isinstance(answer, dict)
    return answer["status"], answer.get("error", {}).get("kind"), len(ran)


@each_row("script", UNANALYSABLE, ids=lambda script: script[:24])
def test_what_cannot_be_analysed_is_illegal(script: str):
    assert statuses(BEFORE + script) == ("illegal_access", "NotAnalysable", 0)


@pytest.mark.parametrize("script", NO_PROGRAMS, ids=lambda script: script[:24])
def test_what_is_no_program_is_a_syntax_error(script: str):
    assert statuses(BEFORE + script) == ("syntax_error", None, 0)


def test_what_can_be_analysed_runs():
    script = "const n: number = 4 / 2; return /a/.test(`a${n / 1}`) && ({ eval() { return true; } }).eval()"
    assert statuses(BEFORE + script) == ("ok", None, 1)
