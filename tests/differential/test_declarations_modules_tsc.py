"""Declarations of servers' modules against the TypeScript compiler: every server, every schema, every name."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from listed_servers import listed, sample_servers
from schema_oddities import ODDITIES
from schema_zoo import FEATURES
from schema_zoo_models import python_schemas
from suite import rounds
from typescript_compiler import TypeScriptCompiler, problems_of

from codemode.surfaces.modules.declarations import (
    DISCOVERY_DECLARATION,
    ERRORS_DECLARATION,
    declare_server,
    declare_servers_within,
    declare_tool,
)
from codemode.surfaces.modules.module_tools import ListedServer

pytestmark = pytest.mark.node
WORDS_TEXT = """
    arguments await break case catch class const continue debugger default delete do else enum eval export extends false
    finally for function globalThis if implements import in instanceof interface let new null package private protected
    public return static super switch this throw true try typeof undefined var void while with yield abstract any as
    async declare from get is keyof module namespace never number object of readonly require set string symbol type
    unknown using Promise Record Array Object Symbol __proto__ constructor prototype toString hasOwnProperty name $ _ $1
    exports then_ 日本 ünïcode été a‿b a__2 ª
"""
OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def together(*texts: str) -> str:
    return "\n\n".join(texts)


def refused_lines(told: str, text: str) -> list[str]:
    lines = text.split("\n")
    return [lines[at - 1].strip() for at in problems_of(told)]


def generated(seed: int) -> Any:
    """A schema of keywords put together by chance, as no author would."""
    chance = random.Random(seed)

    def made(depth: int) -> Any:
        if depth > 3:
            return chance.choice([{"type": "string"}, {"const": None}, True, {"enum": ["a", 1, None]}, {}])
        inner = lambda: made(depth + 1)  # noqa: E731
        keywords: dict[str, Any] = {
            "type": chance.choice(["object", "array", "string", ["string", "null"], ["object", "array"], "integer"]),
            "properties": {name: inner() for name in chance.sample(["a", "b-c", "日", "then", "__proto__", ""], 2)},
            "required": chance.sample(["a", "z", "b-c"], 1),
            "additionalProperties": chance.choice([True, False, {"type": "number"}]),
            "patternProperties": {"^x-": inner()},
            "items": chance.choice([{"type": "string"}, True, False]),
            "prefixItems": [inner(), inner()],
            "minItems": chance.randrange(3),
            "anyOf": [inner(), inner()],
            "oneOf": [inner(), {"type": "null"}],
            "allOf": [inner()],
            "enum": [1, "*/", None, {"k": [1]}],
            "const": {"deep": ["`", "${x}"]},
            "nullable": True,
            "$ref": chance.choice(["#", "#/$defs/Node", "#/$defs/Tree", "#/$defs/Absent"]),
            "description": chance.choice(["plain", "ends */ here", "line\nline\n\n@tag", "\u202etxt"]),
        }
        return {name: keywords[name] for name in chance.sample(sorted(keywords), chance.randrange(1, 5))}

    definitions = {"Node": {"properties": {"next": {"$ref": "#/$defs/Node"}}}, "Tree": made(2)}
    return {**made(0), "$defs": definitions}


@pytest.mark.full
def test_every_server_of_the_sample_compiles_whole_short_and_as_names(compiler: TypeScriptCompiler) -> None:
    servers = sample_servers()
    whole = "\n".join(declare_server(one) for one in servers)
    assert whole.count("export function ") == sum(len(one.tools) for one in servers) == 152
    assert compiler(together(DISCOVERY_DECLARATION, ERRORS_DECLARATION, whole)) == ""
    for room in (40_000, 20_000, 12_000, 3_000, 700):
        assert (
            compiler(together(DISCOVERY_DECLARATION, ERRORS_DECLARATION, declare_servers_within(servers, room))) == ""
        )


@pytest.mark.full
def test_every_schema_of_the_zoo_compiles_as_input_and_output(compiler: TypeScriptCompiler) -> None:
    zoo = [*FEATURES, *ODDITIES, *python_schemas()]
    tools = [{"name": f"t{at}", "inputSchema": one.schema, "outputSchema": one.schema} for at, one in enumerate(zoo)]
    alone = [listed(f"s{at}", [tool]) for at, tool in enumerate(tools)]
    modules = [declare_server(one) for one in [listed("all", tools), *alone]]
    short = [declare_servers_within([one], 400) for one in alone]
    assert compiler(together(*modules)) == ""
    assert compiler(together(*short)) == ""


@pytest.mark.full
def test_generated_schemas_compile_together_and_one_by_one(compiler: TypeScriptCompiler) -> None:
    schemas = [generated(seed) for seed in range(rounds(60, 120))]
    tools = [{"name": f"t{at}", "inputSchema": one, "outputSchema": one} for at, one in enumerate(schemas)]
    whole = listed("all", tools)
    alone = [declare_tool(server, server.tools[0]) for server in (listed(f"s{at}", [t]) for at, t in enumerate(tools))]
    assert compiler(together(declare_server(whole), *alone)) == ""


@pytest.mark.full
def test_every_export_name_compiles_and_can_be_called(compiler: TypeScriptCompiler) -> None:
    tools = [
        {"name": f"tool {at}", "exportName": name, "inputSchema": OBJECT, "outputSchema": {"type": "string"}}
        for at, name in enumerate(WORDS_TEXT.split())
    ]
    calls = "".join(f"  if (await m[{json.dumps(one['exportName'])}]({{ a: 1 }}) === 1) return;\n" for one in tools)
    program = f'async function program(m: typeof import("@codemode/servers/odd")) {{\n{calls}}}'
    told = compiler(together(declare_server(listed("odd", tools)), program))
    # Every call is of a function that gives a string: comparing it to a number is all that is wrong.
    assert told.count("error TS2367") == len(tools) == told.count("error TS")


def _server(**tools: Any) -> ListedServer:
    return listed("it", [{"name": name, **said} for name, said in tools.items()])


def test_declared_inputs_agree_with_their_schemas(compiler: TypeScriptCompiler) -> None:
    server = _server(
        object={"inputSchema": OBJECT},
        optional={"inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        empty={"inputSchema": {}},
        absent={},
        nothing={"inputSchema": {"type": "object", "properties": {}}},
        list={"inputSchema": {"type": "array", "items": {"type": "string"}}},
        text={"inputSchema": {"type": "string"}},
    )
    right = [
        "m.object({ a: 1 });", "m.optional();", "m.optional({});", "m.optional({ a: 1 });", "m.empty();",
        "m.empty({});", "m.absent();", "m.absent({});", "m.nothing();", "m.nothing({});", 'm.list(["a"]);',
        'm.text("a");',
    ]  # fmt: skip
    wrong = [
        "m.object();", "m.object({});", 'm.object({ a: "x" });', "m.object({ a: 1, b: 2 });", "m.nothing({ a: 1 });",
        'm.list("a");', "m.list();", "m.text({});", "m.object({ a: 1 }, 2);", "m.nope();",
    ]  # fmt: skip
    calls = "\n".join([*right, *wrong])
    text = f'{declare_server(server)}\n\ndeclare const m: typeof import("@codemode/servers/it");\n{calls}'
    assert refused_lines(compiler(text), text) == wrong


def test_declared_outputs_and_meta_agree_with_their_schemas(compiler: TypeScriptCompiler) -> None:
    server = _server(typed={"outputSchema": OBJECT}, untyped={}, anything={"outputSchema": True})
    right = [
        "const a: number = (await m.typed()).a; void a;",
        "const b: unknown = await m.untyped(); void b;",
        "const c: string = m.__meta__.serverId; void c;",
        "const d: string | undefined = m.__meta__.tools[0]?.description; void d;",
    ]
    wrong = ["(await m.typed()).b;", "(await m.untyped()).a;", "(await m.anything()).a;", "m.__meta__.nope;"]
    lines = "\n".join([*right, *wrong])
    text = (
        f'{declare_server(server)}\n\nasync function program(m: typeof import("@codemode/servers/it")) {{\n{lines}\n}}'
    )
    assert refused_lines(compiler(text), text) == wrong


def test_declarations_of_the_modules_that_every_program_has_compile(compiler: TypeScriptCompiler) -> None:
    program = """
async function program(d: typeof import("@codemode/discovery"), e: typeof import("@codemode/errors")) {
  const { ToolCallError, AuthenticationError, SchemaValidationError, CodemodeError } = e;
  const version: string = d.specVersion;
  const [first] = await d.listServers();
  const found = await d.searchTools("words", { detail: "name", serverId: first?.serverId, limit: 3 });
  const one = await d.getTool("a", found.results[0]!.exportName);
  const text: string | undefined = (await d.describeServer("a")).declaration ?? one.declaration;
  try { await d.listTools("a", { detail: "full" }); } catch (error) {
    if (error instanceof AuthenticationError || error instanceof ToolCallError) return error.hint;
    if (error instanceof SchemaValidationError) return error.path;
    if (error instanceof CodemodeError) return error.code;
  }
  return version + text;
}"""
    assert compiler(together(DISCOVERY_DECLARATION, ERRORS_DECLARATION, program)) == ""
