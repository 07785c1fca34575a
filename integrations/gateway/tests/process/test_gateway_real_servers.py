"""Public MCP servers behind the gateway, over stdio, HTTP and SSE, with a client of each era of the protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway import Gateway, load_config
from codemode_gateway.passthrough import proxy
from free_ports import free_ports
from gateway_clients import USUAL_ERAS, Era, client_of
from http_server import HttpServer, response
from in_loop import in_loop
from mcp import Client
from public_servers import node_server, python_server, require_servers
from waiting import WAIT_SECONDS

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("_servers")]
READY = "on port"


@pytest.fixture
def _servers() -> None:
    require_servers()


def repository(folder: Path) -> Path:
    path = folder / "repository"
    path.mkdir()
    who = {f"GIT_{role}_{what}": "a@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    nobodys = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for command in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "the first one"]):
        subprocess.run(["git", *command], cwd=path, check=True, env={**os.environ, **who, **nobodys})
    return path


@asynccontextmanager
async def client(
    servers: dict[str, Any], folder: Path, era: Era = "auto", policy: str = "declared", **options: Any
) -> AsyncGenerator[Client]:
    said = {"mcpServers": servers, "codemode": {"approval": policy}}
    config = load_config(said, state_folder=folder / "state")
    async with Gateway(config) as gateway, client_of(gateway, era, **options) as found:
        yield found


async def answered(found: Client, code: str) -> dict[str, Any]:
    """Return the response to a program, in which nothing is wrong."""
    answer = await found.call_tool("codemode_run", {"code": code})
    response: dict[str, Any] | None = answer.structured_content
    assert response is not None, answer
    assert [one for one in response["diagnostics"] if one["severity"] == "error"] == [], response
    return response


PROGRAM = """\
import { git_log, git_status } from "@codemode/servers/git";
import { convert_time } from "@codemode/servers/time";
import { fetch } from "@codemode/servers/fetch";
import * as everything from "@codemode/servers/everything";
import { read_text_file } from "@codemode/servers/filesystem";
import { create_entities, search_nodes } from "@codemode/servers/memory";
import { searchTools } from "@codemode/discovery";
const { path, url } = GIVEN;
await create_entities({ entities: [{ name: "a", entityType: "t", observations: ["kept"] }] });
const [log, time, page, sum, weather, text, { entities }, { results }] = await Promise.all([
  git_log({ repo_path: path }),
  convert_time({ source_timezone: "UTC", time: "12:00", target_timezone: "Asia/Tokyo" }),
  fetch({ url }),
  everything.get_sum({ a: 40, b: 2 }),
  everything.get_structured_content({ location: "New York" }),
  read_text_file({ path: path + "/.git/HEAD" }),
  search_nodes({ query: "kept" }),
  searchTools("what does the working tree look like, which files have changed"),
]);
globalThis.__codemode_result__ = {
  log, time: time.target.datetime, page, sum, weather, text: text.content, entity: entities[0].name,
  found: results.slice(0, 8).map((one) => one.toolName),
};
"""


@pytest.mark.parametrize("era", USUAL_ERAS)
@in_loop
async def test_one_program_over_six_servers(tmp_path: Path, era: Era):
    path = repository(tmp_path)
    site = HttpServer().start()
    site.on("/robots.txt", response(b"", status="404 Not Found"))
    site.on("/page", response(b"<html><body><p>a local page</p></body></html>", content_type="text/html"))
    servers = {
        "git": python_server("git", "--repository", str(path)),
        "time": python_server("time"),
        "fetch": python_server("fetch", "--allow-private-ips"),
        "everything": node_server("everything"),
        "filesystem": node_server("filesystem", str(path)),
        "memory": node_server("memory", MEMORY_FILE_PATH=str(tmp_path / "memory.jsonl")),
    }
    given = json.dumps({"path": str(path), "url": f"{site.origin}/page"})
    try:
        async with client(servers, tmp_path, era) as found:
            result = (await answered(found, PROGRAM.replace("GIVEN", given)))["result"]
    finally:
        site.stop()
    assert "the first one" in result["log"]
    assert "T21:00:00" in result["time"]
    assert "a local page" in result["page"]
    assert "42" in result["sum"]
    assert result["weather"]["temperature"] == 33
    assert result["text"].startswith("ref: refs/heads/")
    assert result["entity"] == "a"
    assert "git_status" in result["found"]


@pytest.mark.parametrize("era", USUAL_ERAS)
@in_loop
async def test_a_destructive_call_is_asked_about_edited_and_runs_as_it_was_edited(tmp_path: Path, era: Era):
    asked: list[str] = []

    async def person(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        edited = json.dumps({"path": str(tmp_path / "notes" / "b.txt"), "content": "less"})
        return types.ElicitResult(action="accept", content={"decision": "once", "input": edited})

    (tmp_path / "notes").mkdir()
    servers = {"filesystem": node_server("filesystem", str(tmp_path / "notes"))}
    given = json.dumps({"path": str(tmp_path / "notes" / "a.txt"), "content": "much"})
    code = f'import {{ write_file }} from "@codemode/servers/filesystem";\nawait write_file({given});'
    async with client(servers, tmp_path, era, elicitation_callback=person) as found:
        await answered(found, code)
    assert len(asked) == 1
    assert "a.txt" in asked[0]
    assert [one.name for one in (tmp_path / "notes").iterdir()] == ["b.txt"]
    assert (tmp_path / "notes" / "b.txt").read_text() == "less"


@contextmanager
def everything_at(transport: str) -> Iterator[int]:
    """Serve it in a process of its own."""
    (port,) = free_ports(1)
    entry = node_server("everything", transport)
    process = subprocess.Popen(
        [entry["command"], *entry["args"]],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert any(READY in line for line in process.stderr)
        yield port
    finally:
        process.kill()
        process.communicate(timeout=30)


@pytest.mark.parametrize(("transport", "kind", "path"), [("streamableHttp", "http", "/mcp"), ("sse", "sse", "/sse")])
@in_loop
async def test_over_the_network(tmp_path: Path, transport: str, kind: str, path: str):
    code = 'import { echo, get_sum } from "@codemode/servers/everything";\n'
    code += "globalThis.__codemode_result__ = await Promise.all([echo({ message: 'hi' }), get_sum({ a: 1, b: 2 })]);"
    with everything_at(transport) as port:
        servers = {"everything": {"type": kind, "url": f"http://127.0.0.1:{port}{path}"}}
        async with client(servers, tmp_path) as found:
            hi, total = (await answered(found, code))["result"]
    assert "hi" in hi
    assert "3" in total


@in_loop
async def test_an_image_in_a_result_is_a_block_of_its_own(tmp_path: Path):
    code = 'import { get_tiny_image } from "@codemode/servers/everything";\n'
    code += "globalThis.__codemode_result__ = await get_tiny_image();"
    async with client({"everything": node_server("everything")}, tmp_path) as found:
        answer = await found.call_tool("codemode_run", {"code": code})
    assert answer.structured_content is None
    assert [one.type for one in answer.content] == ["text", "image"]
    assert answer.content[0].type == "text"
    assert json.loads(answer.content[0].text)["result"]["content"]


@pytest.mark.parametrize("era", USUAL_ERAS)
@in_loop
async def test_prompts_resources_and_completion_pass_through(tmp_path: Path, era: Era, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(proxy, "LIST_TIMEOUT_SECONDS", WAIT_SECONDS)  # a busy machine may start a server for longer
    async with client({"everything": node_server("everything")}, tmp_path, era) as found:
        prompts = (await found.list_prompts()).prompts
        resources = (await found.list_resources()).resources
        templates = (await found.list_resource_templates()).resource_templates
        read = await found.read_resource(str(resources[0].uri))
        named = next(one for one in prompts if not one.arguments)
        got = await found.get_prompt(named.name)
    assert len(prompts) >= 3
    assert templates
    assert read.contents
    assert got.messages


def test_check_finds_all_well(tmp_path: Path):
    servers = {"time": python_server("time"), "everything": node_server("everything")}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    done = subprocess.run(
        [sys.executable, "-m", "codemode", "mcp", "check", "--config", str(config)],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, "No problems found." in done.stdout) == (0, True), done.stdout + done.stderr
