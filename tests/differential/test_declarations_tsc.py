"""Generated declarations against the TypeScript compiler, and its verdicts against those of jsonschema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from expressible import expressible
from instances import exact_type, instances_of
from jsonschema import validators
from schema_oddities import ODDITIES
from schema_zoo import FEATURES, Specimen, mcp_schemas, mcp_tools
from schema_zoo_models import python_schemas
from suite import rounds
from typescript_compiler import TypeScriptCompiler, problems_of

from codemode.signatures.declarations import format_tool_declarations
from codemode.signatures.examples import create_sample_value

PER_SCHEMA = rounds(4, 40)
# Keywords that bind one type only say nothing of other types; the declaration shows the type that was meant.
MEANT = {
    "pattern_only": {str},
    "minimum_only": {int, float},
    "object_without_type": {dict},
    "array_without_type": {list},
}

pytestmark = pytest.mark.node


@dataclass(frozen=True)
class FakeTool:
    name: str
    description: str = ""
    input_json_schema: Any = None
    output_json_schema: Any = None
    input_examples: tuple[Any, ...] = ()
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    specimen: Specimen
    instance: Any
    line: int


class _Program:
    """One file for one compiler run: a namespace per schema, a line per instance."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.checks: list[Check] = []

    def add(self, specimen: Specimen, instances: list[Any]) -> None:
        tools = [FakeTool("it", output_json_schema=specimen.schema), FakeTool("at", input_json_schema=specimen.schema)]
        number = len(self.lines)
        self.lines += [f"namespace S{number} {{ // {specimen.name}", *format_tool_declarations(tools).split("\n")]
        self.lines += ["export type It = Awaited<ReturnType<typeof tools.it>>; }"]
        for instance in instances:
            self.lines.append(
                f"{{ const v = 0 as unknown as {exact_type(instance)}; const t: S{number}.It = v; void t; }}"
            )
            self.checks.append(Check(specimen, instance, len(self.lines)))

    def problems(self, compiler: TypeScriptCompiler) -> dict[int, str]:
        return problems_of(compiler("\n".join([*self.lines, "export {};", ""])))


def _fits(schema: Any, instance: Any) -> bool:
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    return kind(schema).is_valid(instance)


def _is_meant(check: Check) -> bool:
    return type(check.instance) in MEANT.get(check.specimen.name, {type(check.instance)})


def _seeds(specimen: Specimen) -> tuple[Any, ...]:
    return specimen.instances or (create_sample_value(specimen.schema),)


def _judged() -> list[Specimen]:
    return [*FEATURES, *python_schemas(), *mcp_schemas()]


@pytest.fixture(scope="module")
def compiled(compiler: TypeScriptCompiler) -> tuple[_Program, dict[int, str]]:
    program = _Program()
    for specimen in _judged():
        program.add(specimen, instances_of(_seeds(specimen), per_schema=PER_SCHEMA))
    for specimen in ODDITIES:
        program.add(specimen, [])
    tools = [
        FakeTool(t["name"], t.get("description", ""), t["inputSchema"], t.get("outputSchema")) for t in mcp_tools()
    ]
    program.lines += ["namespace Together {", *format_tool_declarations(tools).split("\n"), "}"]
    return program, program.problems(compiler)


def test_the_zoo_is_large_enough() -> None:
    assert len(_judged()) + len(ODDITIES) >= 200
    assert len(FEATURES) >= 100


def test_every_declaration_compiles(compiled: tuple[_Program, dict[int, str]]) -> None:
    program, problems = compiled
    checked = {check.line for check in program.checks}
    assert {line: (text, program.lines[line - 1]) for line, text in problems.items() if line not in checked} == {}


def test_verdicts_equal_those_of_jsonschema(compiled: tuple[_Program, dict[int, str]]) -> None:
    program, problems = compiled
    wrong: list[str] = []
    for check in program.checks:
        fits = _fits(expressible(check.specimen.schema), check.instance)
        if fits != (check.line not in problems):
            told = problems.get(check.line, "accepted by tsc")
            wrong.append(f"{check.specimen.name}: {json.dumps(check.instance)}: {told[:200]}")
    assert wrong == []


def test_nothing_that_fits_is_refused(compiled: tuple[_Program, dict[int, str]]) -> None:
    program, problems = compiled
    fitting = [check for check in program.checks if _fits(check.specimen.schema, check.instance) and _is_meant(check)]
    assert len(fitting) > rounds(200, 500)
    refused = [f"{c.specimen.name}: {c.instance!r}: {problems[c.line]}" for c in fitting if c.line in problems]
    assert refused == []


def test_unlisted_keys_of_a_literal_are_refused(compiler: TypeScriptCompiler) -> None:
    closed = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    program = _Program()
    program.lines = format_tool_declarations([FakeTool("it", input_json_schema=closed)]).split("\n")
    calls = ['tools.it({ a: "x" });', 'tools.it({ a: "x", b: 1 });', "tools.it({ b: 1 });"]
    program.lines += calls
    refused = [program.lines[line - 1] for line in sorted(program.problems(compiler))]
    assert refused == calls[1:]
