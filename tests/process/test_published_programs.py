"""Programs that models wrote for other systems run, or are refused with a named cause; none is empty in silence."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from codemode import (
    CallContext,
    CodeModeError,
    ModuleServer,
    Tool,
    create_code_mode_tool,
    create_modules_tool,
    failure_text,
)

PUBLISHED = Path(__file__).parents[1] / "data" / "published_programs" / "programs.json"
GITHUB = [
    *("listIssues", "viewIssue", "listComments", "viewPR", "listChecks", "listReleases", "viewRelease"),
    *("viewRepo", "listLabels", "listRuns", "viewRun", "callMcpTool", "githubApi"),
]
BROWSER = ["listTools", "callTool"]
ROWS = [{"number": 1, "title": "A title", "name": "a-name", "state": "open", "labels": [], "author": {"login": "ann"}}]
_IMPORT = re.compile(r"import\s*\{([^}]*)\}\s*from\s*['\"]\./[^'\"]+['\"];?")

# In the manner of the published ones: libraries, functions that were synchronous there, results that are printed.
OWN = {
    "printed": 'import { callTool } from "./browser-code";\nconsole.log(await callTool("take_snapshot"));',
    "in main": 'import { listIssues } from "./gh-code/issues";\nasync function main() {\n'
    '  console.log((await listIssues("a/b", { limit: 5 })).length);\n}\nmain();',
    "without await": 'import { listIssues } from "./gh-code/issues";\nconst issues = listIssues("a/b");\n'
    "console.log(issues.filter((issue) => issue.title).length);",
    "two libraries": 'import { viewPR } from "./gh-code/prs";\nimport { listComments } from "./gh-code/issues.js";\n'
    'const pr: any = await viewPR("a/b", 7);\nfor (const one of await listComments("a/b", 7)) console.log(one, pr);',
    "Node": 'import { execSync } from "child_process";\nconsole.log(execSync("gh pr list").toString());',
    "environment": "const token = process.env.GH_TOKEN;\nconsole.log(token);",
    "nothing": "// not written yet",
}


class Read(NamedTuple):
    """How a program ended, and all that its model reads of it."""

    has_value: bool
    is_refused: bool
    text: str


def make_tool(name: str) -> Tool:
    answer: Any = ROWS if name.startswith("list") else "the text of a page" if name == "callTool" else ROWS[0]
    return Tool(name, execute=lambda _: answer, description=name, annotations={"readOnlyHint": True})


def replace_imports(program: str) -> str:
    """Return the program with its library's functions taken from the tools, as a person would move it to codeMode."""
    return _IMPORT.sub(lambda match: f"const {{{match[1].replace(' as ', ': ')}}} = globalThis.tools;", program)


async def read_code_mode(programs: list[str]) -> list[Read]:
    tool, read = create_code_mode_tool([make_tool(name) for name in GITHUB + BROWSER]), list[Read]()
    for place, program in enumerate(programs):
        call = CallContext(tool_call_id=f"call-{place}")
        try:
            value = await tool.execute(program, call)
        except CodeModeError as error:
            read.append(Read(False, True, failure_text(error, program)))
        else:
            shown = tool.to_model_output(value, tool_call_id=call.tool_call_id)["value"]
            read.append(Read(value not in (None, ""), False, str(shown or "")))
    return read


async def read_modules(programs: list[str]) -> list[Read]:
    servers = [ModuleServer("gh-code", [make_tool(name) for name in GITHUB]), ModuleServer("browser-code", [])]
    tool, read = create_modules_tool(servers), list[Read]()
    for program in programs:
        answer = await tool.execute({"code": program})
        errors = [one for one in answer["diagnostics"] if one["severity"] == "error"]
        said = [*(f"{one['code']}: {one['message']}" for one in answer["diagnostics"])]
        said += [one["message"] for one in answer["logs"]]
        read.append(Read(answer["result"] is not None, bool(errors), "\n".join(said)))
    return read


def check(programs: list[str], answers: list[Read]) -> None:
    for program, answer in zip(programs, answers, strict=True):
        if answer.is_refused:
            # A cause that is more than the name of an error.
            assert re.search(r"\w+: ?\s*\S{3,}", answer.text), program
        elif not answer.has_value:
            assert answer.text.strip(), program


def test_programs_in_the_manner_of_published_ones_are_never_empty_in_silence():
    for form in (list(OWN.values()), [replace_imports(program) for program in OWN.values()]):
        check(form, asyncio.run(read_code_mode(form)))
        check(form, asyncio.run(read_modules(form)))


def test_a_program_that_only_prints_shows_what_it_printed():
    (answer,) = asyncio.run(read_code_mode([replace_imports(OWN["printed"])]))
    assert "The program returned nothing" in answer.text
    assert "It had printed:\nthe text of a page" in answer.text


def test_a_result_that_was_not_awaited_is_named():
    rows = [
        ("const issues = tools.listIssues({});\nissues.filter(Boolean);", "issues = await tools.listIssues(...)"),
        ("const { viewPR: view } = tools;\nlet pr: any = view({});\npr.title.trim();", "pr = await view(...)"),
        (
            "const { listRuns } = tools;\nconst runs = listRuns<any>({});\nfor (const one of runs) one();",
            "runs = await",
        ),
        (
            "const found = tools.viewPR<{\\n  items: string[];\\n}>({});\\nfound\\n  .items\\n  .slice(0);",
            "found = await tools.viewPR(",
        ),
    ]
    for program, said in rows:
        (answer,) = asyncio.run(read_code_mode([program]))
        assert said in answer.text, answer.text
    for program in ("const size = Math.max(1);\nsize.trim();", "const { a } = { a: 1 };\nconst b = a;\nb.trim();"):
        (answer,) = asyncio.run(read_code_mode([program]))
        assert "Correct the program at that place" in answer.text, answer.text


@pytest.mark.full
def test_published_programs_run_or_are_refused_with_a_cause():
    """Each as it was written, on two surfaces, and once with its library's functions taken from the tools."""
    programs = json.loads(PUBLISHED.read_text(encoding="utf-8"))["programs"]
    assert len(programs) == 349
    moved = [replace_imports(program) for program in programs]
    for form, read in ((programs, read_code_mode), (programs, read_modules), (moved, read_code_mode)):
        answers = asyncio.run(read(form))
        check(form, answers)
        ran = sum(not answer.is_refused for answer in answers)
        print(f"{read.__name__}: {ran} of {len(answers)} ran, {len(answers) - ran} refused with a cause")
