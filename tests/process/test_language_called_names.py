"""Text, JSON and `await` of an object of tools call none of them, whatever the tools are named."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from module_servers import over, result_of

from codemode import ModuleServer, Tool, create_code_mode_tool

NAMES = ("then", "toJSON", "toLocaleString", "toString", "valueOf")
READ = """const said = [];
for (const read of [() => `${%(o)s}`, () => %(o)s + "", () => +%(o)s, () => JSON.stringify(%(o)s),
                    () => [%(o)s].toLocaleString(), () => String(%(o)s), () => new Date(%(o)s)])
  try { said.push(typeof read()); } catch (error) { said.push(error.name); }
await %(o)s;"""


def tools_of(did: list[str]) -> list[Tool]:
    def noting(name: str) -> Any:
        return lambda _given: did.append(name)

    return [Tool(name, execute=noting(name), description="Note the call.") for name in NAMES]


def test_the_namespace_of_a_server_module_is_read_without_a_call() -> None:
    did: list[str] = []
    server = ModuleServer("odd", tools_of(did))
    code = f'import * as odd from "@codemode/servers/odd";{READ % {"o": "odd"}}'
    assert len(result_of(f"{code} globalThis.__codemode_result__ = said;", over(server))) == 7
    assert did == []
    called = 'import * as odd from "@codemode/servers/odd"; await odd.toString_(); globalThis.__codemode_result__ = 1;'
    result_of(called, over(server))
    assert did == ["toString"]


def test_the_object_of_tools_is_read_without_a_call() -> None:
    did: list[str] = []
    tool = create_code_mode_tool([one for one in tools_of(did) if one.name != "then"])
    said = asyncio.run(tool.execute({"js": f"{READ % {'o': 'tools'}} return said;"}))
    assert len(json.loads(json.dumps(said))) == 7
    assert did == []
