"""Servers whose tools change, under programs that run: connected when imported, kept as they were while one runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

import pytest
from module_servers import RESULT, check_response
from waiting import within

from codemode import ModuleServer, RunTool, create_modules_tool
from codemode.data.similar_names import find_nearest_names
from codemode.surfaces.modules import catalog, server_set
from codemode.surfaces.modules.catalog import ModuleCatalog


class Live:
    """A server whose tools change; each tells its name. ``during`` is called by the tool ``change``."""

    def __init__(self, server_id: str, *tools: str, fails: bool = False) -> None:
        self.server_id = server_id
        self.given = [*tools]
        self.fails = fails
        self.revision = 1
        self.listings = 0
        self.notes: list[str] = []

    async def tools(self) -> dict[str, Any]:
        self.listings += 1
        await asyncio.sleep(0)
        if self.fails:
            raise ConnectionError("no route to /srv/host")
        return {name: self._tool(name) for name in self.given}

    def _tool(self, name: str) -> Any:
        def call() -> str:
            if name == "change":
                self.given.append("added")
                self.revision += 1
            return f"{self.server_id}.{name}"

        return call


async def run(tool: RunTool, code: str, **request: Any) -> Any:
    response = await tool.execute({"code": code, **request})
    check_response(response)
    return response


def imported(*paths: str) -> str:
    return "".join(f'import * as {path} from "@codemode/servers/{path}";\n' for path in paths)


def test_a_server_is_connected_only_for_programs_that_import_it():
    async def main() -> None:
        one, two = Live("one", "a"), Live("two", "b")
        tool = create_modules_tool([one, two])
        response = await run(tool, f"{imported('one')}{RESULT}await one.a();")
        assert response["result"] == "one.a"
        assert (one.listings, two.listings) == (1, 0)
        await run(tool, f"{imported('one')}await one.a();")
        assert one.listings == 1
        response = await run(tool, f"{RESULT}1", requestedCapabilities=["two"])
        assert two.listings == 1
        assert 'declare module "@codemode/servers/two"' in tool.description + response.get("declarations", "")

    within(main())


@pytest.mark.parametrize(
    "code",
    [
        f'import * as d from "@codemode/discovery"; {RESULT}(await d.listServers()).map((one) => one.serverId);',
        f"const one = await import('@codemode/servers/' + 'one'); {RESULT}[one.__meta__.serverId, 'two'];",
    ],
)
def test_a_program_that_may_ask_for_any_server_has_them_all(code: str):
    servers = [Live("one", "a"), Live("two", "b"), Live("down", fails=True)]
    response = within(run(create_modules_tool(servers), code))
    assert response["result"] == ["one", "two"]
    assert [one.listings for one in servers] == [1, 1, 1]
    [said] = response["diagnostics"]
    assert (said["code"], said["severity"]) == ("CAPABILITY_UNAVAILABLE", "warning")
    assert '"down"' in said["message"]


def test_a_server_that_fails_is_an_import_failure_where_it_is_used():
    async def main() -> None:
        down = Live("down", "x", fails=True)
        tool = create_modules_tool([down, ModuleServer("one", {"a": lambda: 1})])
        response = await run(tool, f"{imported('one')}{RESULT}await one.a();", requestedCapabilities=["down"])
        assert response["result"] == 1
        assert [one["code"] for one in response["diagnostics"]] == ["CAPABILITY_UNAVAILABLE"]
        response = await run(tool, f"{imported('down')}await down.x();")
        assert [one["code"] for one in response["diagnostics"]] == ["IMPORT_FAILURE"]
        caught = f"{RESULT}await import('@codemode/servers/down').catch((error) => error.name);"
        assert (await run(tool, caught))["result"] == "ServerNotFoundError"
        down.fails = False
        assert (await run(tool, f"{imported('down')}{RESULT}await down.x();"))["result"] == "down.x"

    within(main())


def test_a_running_program_keeps_its_tools_and_the_next_has_the_new_ones():
    async def main() -> None:
        one = Live("one", "change")
        tool = create_modules_tool([one])
        code = f"{imported('one')}const was = await one.change(); {RESULT}[was, 'added' in one, Object.keys(one)];"
        response = await run(tool, code)
        assert response["result"] == ["one.change", False, ["__meta__", "change"]]
        assert [(said["code"], said["severity"]) for said in response["diagnostics"]] == [("TOOLS_CHANGED", "info")]
        later = await run(tool, f"{imported('one')}{RESULT}await one.added();")
        assert (later["result"], later["diagnostics"]) == ("one.added", [])

    within(main())


def test_many_runs_at_once_share_a_listing():
    async def main() -> None:
        one = Live("one", "a")
        tool = create_modules_tool([one])
        code = f"{imported('one')}{RESULT}await one.a();"
        responses = await asyncio.gather(*(run(tool, code) for _ in range(4)))
        assert [response["result"] for response in responses] == ["one.a"] * 4
        assert one.listings == 1

    within(main())


def test_time_that_a_listing_takes_is_not_the_programs():
    class Slow(Live):
        async def tools(self) -> dict[str, Any]:
            await asyncio.sleep(0.3)
            return await super().tools()

    code = f"{imported('one')}console.log('begun'); {RESULT}await one.a();"
    response = within(run(create_modules_tool([Slow("one", "a")]), code, limits={"timeoutMs": 60_000}))
    assert response["result"] == "one.a"
    assert response.trace.duration_ms - response["logs"][0]["timeMs"] >= 250


def test_two_servers_of_one_path():
    tool = create_modules_tool([ModuleServer("a b", {"x": lambda: 1}), ModuleServer("A-B", {"x": lambda: 2})])
    code = f"""import {{ x }} from "@codemode/servers/a-b";
        import {{ x as y, __meta__ }} from "@codemode/servers/a-b--2";
        {RESULT}[await x(), await y(), __meta__.serverId, __meta__.serverName];"""
    response = within(run(tool, code))
    assert response["result"] == [1, 2, "a-b--2", "A-B"]
    assert [one["serverId"] for one in response["toolTrace"]] == ["a-b", "a-b--2"]


def test_tools_under_any_name_can_be_called():
    names = ["then", "default", "$search", "a b", "\x00", "constructor", "__proto__", "größe", "a.b"]
    tool = create_modules_tool([ModuleServer("s", {name: (lambda name=name: name) for name in names})])
    code = f"""import * as s from "@codemode/servers/s";
        const called = [];
        for (const {{ toolName, exportName }} of s.__meta__.tools) called.push([toolName, await s[exportName]()]);
        {RESULT}called;"""
    response = within(run(tool, code))
    assert response["result"] == [[name, name] for name in sorted(names)]


def test_names_of_servers_that_there_are_not_are_compared_beside_the_loop_and_no_more_than_a_few(
    monkeypatch: pytest.MonkeyPatch,
):
    compared: list[threading.Thread] = []

    def nearest(name: str, known: Iterable[str]) -> list[str]:
        compared.append(threading.current_thread())
        return find_nearest_names(name, known)

    monkeypatch.setattr(server_set, "find_nearest_names", nearest)
    tool = create_modules_tool([ModuleServer("mail", {"send": lambda: 1})])
    response = within(run(tool, f"{RESULT}1", requestedCapabilities=[f"mial{at}" for at in range(1_000)]))
    assert response["result"] == 1
    hints = [one["hint"] for one in response["diagnostics"] if one["code"] == "CAPABILITY_UNAVAILABLE"]
    assert hints[0] == "Ask for mail."
    assert len(hints) > len(compared)
    assert 1 <= len(compared) <= 8
    assert threading.main_thread() not in compared


@pytest.mark.parametrize("server_id", ["far", "far-" + "away" * 50])
def test_a_server_that_fails_is_told_of_under_a_name_made_at_run_time_too(server_id: str):
    tool = create_modules_tool([Live(server_id, fails=True)])
    code = f'const name = "{server_id}"; await import("@codemode/servers/" + name);'
    errors = [one for one in within(run(tool, code))["diagnostics"] if one["severity"] == "error"]
    assert [(one["code"], one.get("errorClass")) for one in errors] == [("IMPORT_FAILURE", "ServerNotFoundError")]
    assert "cannot be imported: it cannot be reached now" in errors[0]["message"]


COMPUTED_IMPORT = 'const [path] = ["one"]; const server = await import("@codemode/servers/" + path);\n'


def test_computed_import_gets_the_notes_of_the_imported_server_only():
    one, two = Live("one", "a"), Live("two", "b")
    one.notes, two.notes = ["its tools have changed"], ["its tools have changed too"]
    response = within(run(create_modules_tool([one, two]), f"{COMPUTED_IMPORT}{RESULT}await server.a();"))
    assert response["result"] == "one.a"
    (note,) = response["diagnostics"]
    assert (note["code"], note["message"]) == ("TOOLS_CHANGED", 'the server "one": its tools have changed')


def test_failing_program_with_a_computed_import_gets_the_notes_too():
    one = Live("one", "a")
    one.notes = ["its tools have changed"]
    response = within(run(create_modules_tool([one]), f"{COMPUTED_IMPORT}{RESULT}await server.gone();"))
    assert [note["code"] for note in response["diagnostics"] if note["severity"] == "warning"] == ["TOOLS_CHANGED"]


def test_computed_import_reports_tools_that_change_while_the_program_runs():
    code = f"{COMPUTED_IMPORT}{RESULT}await server.change();"
    response = within(run(create_modules_tool([Live("one", "change")]), code))
    assert [(note["code"], note["severity"]) for note in response["diagnostics"]] == [("TOOLS_CHANGED", "info")]


def test_the_tools_of_a_listing_are_put_together_beside_the_loop(monkeypatch: pytest.MonkeyPatch):
    made: list[threading.Thread] = []

    class Catalog(ModuleCatalog):
        def __init__(self, *given: Any) -> None:
            made.append(threading.current_thread())
            super().__init__(*given)

    tool = create_modules_tool([server := Live("far", "one")])
    assert "far" in tool.description
    assert len(tool.catalog) == 0
    monkeypatch.setattr(catalog, "ModuleCatalog", Catalog)
    for name in ("one", "two"):
        response = within(run(tool, f'import {{ {name} }} from "@codemode/servers/far"; {RESULT}await {name}();'))
        assert response["result"] == f"far.{name}"
        server.given, server.revision = ["one", "two"], server.revision + 1
    assert len(made) == 2
    assert threading.main_thread() not in made


def test_discovery_says_of_a_server_that_fails_that_it_is_there():
    tool = create_modules_tool([Live("far", fails=True)])
    asked = "import { listTools } from '@codemode/discovery'; "
    response = within(run(tool, f"{asked}{RESULT}await listTools('far').catch((error) => error);"))
    said = response["result"]
    assert (said["name"], said["serverId"]) == ("ServerNotFoundError", "far")
    assert "is not available: it cannot be reached now" in said["message"]
    assert said["hint"].startswith("Do without this server")
    code = f'const name = "far"; {RESULT}await import("@codemode/servers/" + name).catch((error) => error);'
    said = within(run(tool, code))["result"]
    assert "toolName" not in said
    assert said["hint"].startswith("Do without this server")
