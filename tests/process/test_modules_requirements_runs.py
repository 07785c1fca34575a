"""M33 to M37: servers that change, several at once, what nobody can tamper with. A test for each item."""

from __future__ import annotations

import asyncio
from typing import Any

from module_servers import answer, codes, giving, over, result_of
from suite import each_row

from codemode import ModuleServer, Tool

SET = "globalThis.__codemode_result__ = "
DISCOVERY = 'import * as discovery from "@codemode/discovery";'
ERRORS = 'import * as errors from "@codemode/errors";'
GITHUB = 'import * as gh from "@codemode/servers/github";'


class Changing:
    """A server whose tools change, as a gateway has it."""

    server_id, name, version, description, capabilities = "changing", "Changing", None, None, ()

    def __init__(self) -> None:
        self.revision = 1
        self.listed = 0
        self.names = ["first"]

    async def tools(self) -> list[Tool]:
        self.listed += 1
        await asyncio.sleep(0)
        return [giving(name, name) for name in self.names]


def test_changed_tools_are_seen_by_the_next_run_alone():
    server = Changing()

    def change(_: Any) -> str:
        server.names, server.revision = ["first", "second"], 2
        return "changed"

    run = over(server, ModuleServer("host", [Tool("change", execute=change)]))
    code = """
    import * as one from "@codemode/servers/changing";
    import { change } from "@codemode/servers/host";
    const before = Object.keys(one);
    await change();
    const again = await import("@codemode/servers/changing");
    globalThis.__codemode_result__ = [before, Object.keys(one), Object.keys(again)];
    """
    response = answer(code, run)
    assert response["result"] == [["__meta__", "first"]] * 3
    assert codes(response) == ["TOOLS_CHANGED"]
    assert result_of(f'import {{ second }} from "@codemode/servers/changing";{SET}await second();', run) == "second"
    assert server.listed == 2
    answer('import { change } from "@codemode/servers/host";', run)
    assert server.listed == 2


def test_several_servers_and_a_failing_call():
    code = """
    import { broken, ping } from "@codemode/servers/github";
    import { list_files as list } from "@codemode/servers/google-drive";
    import { ToolCallError } from "@codemode/errors";
    const [bad, good] = await Promise.allSettled([broken(), ping()]);
    globalThis.__codemode_result__ = [bad.reason instanceof ToolCallError, good.value, await list()];
    """
    assert result_of(code, over()) == [True, "pong", "list-files"]


def test_calls_made_at_once_run_together():
    gate = asyncio.Barrier(3)

    async def together(_: Any) -> str:
        await gate.wait()
        return "met"

    code = """
    import { together } from "@codemode/servers/s";
    globalThis.__codemode_result__ = await Promise.all([together(), together(), together()]);"""
    assert result_of(code, over(ModuleServer("s", [Tool("together", execute=together)]))) == ["met"] * 3


@each_row(
    "attempt",
    [
        "gh.ping = () => 'mine'",
        "Object.defineProperty(gh, 'ping', { value: 1 })",
        "delete gh.ping",
        "Object.setPrototypeOf(gh, {})",
        "gh.added = 1",
        "gh.__meta__.serverId = 'x'",
        "gh.__meta__.tools[0].toolName = 'x'",
        "gh.ping.call = 1",
        "errors.ToolCallError.prototype.name = 'x'",
        "errors.CodemodeError = Error",
        "discovery.listTools = 1",
        "Array.prototype.map = 1",
        "Object.prototype.polluted = 1",
        "URL.prototype.href = 1",
        "globalThis.setTimeout = 1",
        "Object.defineProperty(globalThis, '__codemode_result__', { get() { return 1; } })",
        "console.log = 1",
    ],
)
def test_nothing_can_be_tampered_with(attempt: str):
    code = f"""{GITHUB}{ERRORS}{DISCOVERY}
    let threw = false;
    try {{ {attempt}; }} catch (error) {{ threw = error instanceof TypeError; }}
    globalThis.__codemode_result__ = [threw, await gh.ping(), gh.__meta__.serverId, ({{}}).polluted === undefined];"""
    assert result_of(code, over()) == [True, "pong", "github", True]


def test_answers_of_tools_are_data_and_no_code():
    values = ({"__proto__": {"polluted": 1}, "constructor": 1}, {"then": "no function"}, "</script>", [None])
    for value in values:
        server = ModuleServer("s", [giving("value", value)])
        assert result_of(f'import {{ value }} from "@codemode/servers/s";{SET}await value();', over(server)) == value


def test_answers_name_the_version():
    assert result_of(f"{DISCOVERY}{SET}discovery.specVersion;", over()) == "1.0.0"
