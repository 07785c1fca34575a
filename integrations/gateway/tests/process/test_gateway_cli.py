"""The gateway's command line in processes of its own: what it starts, writes, prints, and with which code it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from controlling_terminal import Person
from gateway_clients import USUAL_ERAS, Era, client_over_stdio
from in_loop import in_loop
from mcp_servers.configured import HERE
from suite import full_only
from warm_commands import GATEWAYS

pytestmark = pytest.mark.usefixtures("warm_gateways")
TREE = Path(__file__).parents[4]
SERVERS = TREE / "examples" / "servers"
WAIT_SECONDS = 60.0
DELETE = """\
import { list_backups, delete_backups } from "@codemode/servers/backups";
const { deleted } = await delete_backups({ names: ["may"] });
globalThis.__codemode_result__ = { deleted, left: (await list_backups()).backups.length };
"""

Run = Callable[..., tuple[int, str, str]]


def server(name: str) -> dict[str, Any]:
    return GATEWAYS.entry(str(SERVERS / f"{name}_server.py"))


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has nothing yet."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CODEMODE_", "XDG_"))}
    return {**kept, "HOME": str(tmp_path)}


@pytest.fixture
def run(home: dict[str, str], tmp_path: Path) -> Run:
    def run_in(*arguments: str, given: str = "") -> tuple[int, str, str]:
        done = subprocess.run(
            [*GATEWAYS.python, "-W", "error", "-m", "codemode", "mcp", *arguments],
            input=given, env=home, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_SECONDS,
            start_new_session=True, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    return run_in


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {name: server(name) for name in ("backups", "logbook")}}))
    return path


def test_a_configuration_is_begun_added_to_and_checked(run: Run, home: dict[str, str]):
    path = Path(home["HOME"]) / ".config" / "codemode" / "mcp.json"
    assert run("list")[0] == 2
    assert run("init")[0] == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert "already exists" in run("init")[2]
    command = [*GATEWAYS.python, str(SERVERS / "logbook_server.py")]
    assert run("add", "log", "--env", "A=b=c", "--approval", "writes", "--", *command)[0] == 0
    assert run("add", "docs", "https://mcp.example.com/mcp", "--header", "Authorization: Bearer ${DOCS:-x}")[0] == 0
    assert "// The MCP servers behind the gateway" in path.read_text()
    assert run("add", "log", "--", "x")[0] == 2
    code, out, _ = run("list", "--json")
    found = {one["name"]: one for one in json.loads(out)["servers"]}
    assert (code, found["log"]["approval"], found["docs"]["transport"]) == (0, "writes", "http")
    code, out, _ = run("check", "log")
    assert (code, "No problems found." in out) == (0, True), out


def test_an_added_server_with_a_relative_path_starts_in_the_folder_of_the_command(
    run: Run, home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "notes").mkdir()
    monkeypatch.chdir(tmp_path)
    path = Path(home["HOME"]) / ".config" / "codemode" / "mcp.json"
    code, out, _ = run("add", "files", "--", "server-filesystem", "notes")
    assert (code, f"it starts in {tmp_path}" in out) == (0, True)
    assert f'"cwd": "{tmp_path}"' in path.read_text()
    assert run("add", "plain", "--", "server-filesystem", "/srv/notes")[0] == 0
    assert path.read_text().count('"cwd"') == 1


NO_SERVERS = [
    ["a"],
    ["a", "http://h/", "--", "x"],
    ["a", "--"],
    ["a", "http://h/", "--env", "A=b"],
    ["a", "--header", "a:b", "--", "x"],
    ["a", "--env", "secret", "--", "x"],
    ["a", "nonsense"],
]


@pytest.mark.parametrize("arguments", NO_SERVERS, ids=" ".join)
def test_what_is_no_server_is_not_added(run: Run, config: Path, arguments: list[str]):
    before = config.read_text()
    code, out, err = run("--config", str(config), "add", *arguments)
    assert (code, out, config.read_text()) == (2, "", before)
    assert "secret" not in err


def test_a_client_is_taken_over_and_given_back(run: Run, home: dict[str, str]):
    theirs = Path(home["HOME"]) / ".cursor" / "mcp.json"
    theirs.parent.mkdir()
    theirs.write_text(json.dumps({"mcpServers": {"log": server("logbook")}}, indent=3))
    before = theirs.read_bytes()
    said = [run("import", "--from", "cursor") for _ in range(2)]
    assert [(code, "nothing was added" in out) for code, out, _ in said] == [(0, False), (0, True)]
    assert theirs.read_bytes() == before
    assert [one["name"] for one in json.loads(run("list", "--json")[1])["servers"]] == ["log"]
    code, out, _ = run("install", "--client", "cursor", "--dry-run")
    assert (code, "would replace" in out, "+++ " in out) == (0, True, True)
    assert theirs.read_bytes() == before
    assert run("install", "--client", "cursor")[0] == 0
    (entry,) = json.loads(theirs.read_text())["mcpServers"].values()
    assert "mcp" in entry["args"]
    assert run("undo", "--client", "cursor")[0] == 0
    assert theirs.read_bytes() == before
    assert run("undo", "--client", "cursor")[0] == 2
    assert run("import", "--from", "codex")[0] == 2


def test_check_says_of_each_server_what_is_wrong_and_how_large_the_tool_is(run: Run, tmp_path: Path):
    path = tmp_path / "mcp.json"
    dies = {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}
    servers = {
        "log": server("logbook"),
        "none": {"command": "no-such-program"},
        "dies": dies,
        "off": {"command": 1, "env": 2},
    }
    said = {"auth": {"tokens": {"a token as it is": {"name": "ana"}}}}
    path.write_text(json.dumps({"mcpServers": servers, "codemode": said}))
    code, out, err = run("check", "--config", str(path), "--json")
    found = json.loads(out)
    assert '"sha256:" followed by the SHA-256 of a token' in found["problems"].pop()
    rows = {one["name"]: one for one in found["servers"]}
    assert code == 1
    assert (rows["log"]["tools"], rows["log"]["problem"]) == (1, None)
    assert "'no-such-program' does not exist" in rows["none"]["problem"]
    assert rows["dies"]["problem"]
    assert "mcpServers.off" in err
    assert found["given"]["name"] == "codemode_run"
    assert found["sizes"]["given"]["tokens"] == found["sizes"]["given"]["characters"] // 4
    code, out, _ = run("check", "--config", str(path))
    assert (code, out.count("FAILED  ")) == (1, 4)
    assert run("check", "nonsense", "--config", str(path))[0] == 2


@pytest.mark.parametrize("command", ["check", *full_only("types")])
def test_a_server_that_has_failed_is_not_started_again_by_the_command(run: Run, tmp_path: Path, command: str):
    path, starts = tmp_path / "mcp.json", tmp_path / "starts"

    def starting(then: str, **settings: Any) -> dict[str, Any]:
        return {"command": "sh", "args": ["-c", f'echo x >> "$0"; {then}', str(starts)], "codemode": settings}

    servers = {"dies": starting("exit 3"), "silent": starting("while read x; do :; done", connectTimeoutMs=500)}
    path.write_text(json.dumps({"mcpServers": servers}))
    code, out, err = run(command, "--config", str(path))
    assert (code, starts.read_text()) == (1, "x\n" * 2)
    assert (out + err).count("it did not answer within 0.5 seconds") == 1
    assert (out + err).count("it ended with exit code 3") == 1
    assert "cannot be listed" not in err


@pytest.mark.full
def test_check_starts_a_server_of_which_a_list_is_kept_from_before(run: Run, tmp_path: Path):
    path, script = tmp_path / "mcp.json", tmp_path / "server.py"
    path.write_text(json.dumps({"mcpServers": {"x": {"command": sys.executable, "args": ["-I", str(script)]}}}))
    script.write_bytes((HERE / "quick_server.py").read_bytes())
    assert run("check", "--config", str(path))[0] == 0
    script.write_text("raise SystemExit(3)")
    code, out, _ = run("check", "--config", str(path))
    assert (code, "exit code 3" in out) == (1, True)


@pytest.mark.full
def test_types_are_printed_of_all_and_of_one(run: Run, config: Path):
    code, out, _ = run("types", "backups", "--config", str(config))
    assert (code, "export function delete_backups(" in out, "logbook" in out) == (0, True, False)
    code, out, _ = run("types", "--config", str(config))
    assert (code, out.count('declare module "@codemode/servers/')) == (0, 2)
    assert run("types", "nonsense", "--config", str(config))[0] == 2


@pytest.mark.parametrize(("approve", "code", "left"), [("all", 0, 3), ("ask", 1, None), *full_only(("deny", 1, None))])
def test_a_program_runs_and_who_asks_nobody_denies(run: Run, config: Path, approve: str, code: int, left: int | None):
    ended, out, err = run("run", "-", "--approve", approve, "--config", str(config), given=DELETE)
    response = json.loads(out)
    assert ended == code, err
    if left is None:
        assert response["result"] is None
        assert response["diagnostics"][0]["code"] == "UNCAUGHT_EXCEPTION"
    else:
        assert response["result"] == {"deleted": ["may"], "left": left}


@pytest.mark.parametrize("era", USUAL_ERAS)
@in_loop
async def test_over_stdio_a_client_has_one_tool_and_its_person_decides(config: Path, tmp_path: Path, era: Era):
    async def person(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert "delete_backups" in params.message
        return types.ElicitResult(action="accept", content={"decision": "once"})

    arguments = ["-W", "error", "-m", "codemode", "mcp", "--config", str(config), "--tool-name", "run_code"]
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    async with client_over_stdio(
        arguments, era, python=GATEWAYS.python, environment=environment, elicitation_callback=person
    ) as client:
        (tool,) = (await client.list_tools()).tools
        answer = await client.call_tool(tool.name, {"code": DELETE})
    assert tool.name == "run_code"
    assert answer.structured_content is not None
    assert answer.structured_content["result"] == {"deleted": ["may"], "left": 3}


@pytest.fixture
def pasted(run: Run, home: dict[str, str]) -> list[str]:
    """What a client starts after the two commands and the paste of the README."""
    theirs = Path(home["HOME"]) / ".cursor" / "mcp.json"
    theirs.parent.mkdir()
    theirs.write_text(json.dumps({"mcpServers": {"log": server("logbook")}}))
    readme = (TREE / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ .venv/bin/codemode mcp (import .*?)  #", readme, re.MULTILINE)
    (block,) = re.findall(r'^```json\n(.*"codemode".*)\n```', readme, re.MULTILINE)
    assert run(*command.split())[0] == 0
    (entry,) = json.loads(block)["mcpServers"].values()
    assert entry["command"] == "codemode"
    return ["-m", "codemode", *entry["args"]]


@in_loop
async def test_two_commands_and_one_paste_give_a_working_gateway(pasted: list[str], home: dict[str, str]):
    code = 'import { add_entry } from "@codemode/servers/log";\n'
    code += 'globalThis.__codemode_result__ = (await add_entry({ text: "hi" })).result;'
    nothing_of_ours = dict.fromkeys((key for key in os.environ if key.startswith(("CODEMODE_", "XDG_"))), "")
    async with client_over_stdio(pasted, python=GATEWAYS.python, environment={**nothing_of_ours, **home}) as client:
        (tool,) = (await client.list_tools()).tools
        answer = await client.call_tool(tool.name, {"code": code})
    assert answer.structured_content is not None
    assert answer.structured_content["result"] == "entry 1: hi"


@pytest.fixture
def impatient(config: Path) -> Path:
    """A configuration under which a call waits for nobody."""
    config.write_text(json.dumps({**json.loads(config.read_text()), "codemode": {"approvalWaitMs": 1}}))
    return config


@in_loop
async def test_who_cannot_ask_waits_for_the_command_line(impatient: Path, tmp_path: Path):
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    arguments = ["-m", "codemode", "mcp", "--config", str(impatient)]
    async with client_over_stdio(arguments, python=GATEWAYS.python, environment=environment) as client:
        answer = await client.call_tool("codemode_run", {"code": DELETE})
        assert answer.structured_content is not None
        waiting = answer.structured_content["waiting"]
        person = Person([sys.executable, *arguments, "approvals", "approve", waiting["id"]], environment)
        try:
            person.read_until("Allow this call? [y/N] ")
            assert '"may"' in person.shown
            person.type("y\n")
            assert person.end()[0] == 0
        finally:
            person.close()
        result = None
        while result is None:
            answer = await client.call_tool("codemode_run", {"resume": waiting["id"]})
            assert answer.structured_content is not None
            result = answer.structured_content["result"]
    assert result == {"deleted": ["may"], "left": 3}


def test_a_port_in_use_is_named_and_nothing_is_on_stdout(run: Run, config: Path):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        code, out, err = run("--config", str(config), "--http", f"127.0.0.1:{port}")
    assert (code, out) == (2, "")
    assert str(port) in err
    code, out, err = run("--config", str(config), "--http", "0.0.0.0:0")
    assert (code, out) == (2, "")
    assert "codemode.auth" in err


@pytest.mark.parametrize(
    "arguments",
    [pytest.param([], id="stdio", marks=pytest.mark.full), pytest.param(["--http", "127.0.0.1:0"], id="http")],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, *full_only(signal.SIGINT)])
def test_a_signal_ends_it_quietly(home: dict[str, str], config: Path, arguments: list[str], number: signal.Signals):
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "codemode", "mcp", "--config", str(config), *arguments],
        env=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        if arguments:
            assert "listens at http://127.0.0.1:" in process.stderr.readline()
        else:
            process.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(number)
        out, err = process.communicate(timeout=WAIT_SECONDS)
    finally:
        process.kill()
        process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err


def test_a_client_that_sends_rubbish_is_answered_with_protocol_alone(home: dict[str, str], config: Path):
    process = subprocess.Popen(
        [*GATEWAYS.python, "-W", "error", "-m", "codemode", "mcp", "--config", str(config)],
        env=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write('\x00\xff{"jsonrpc": \n[]\n42\n{"jsonrpc": "2.0", "id": 7, "method": "ping"}\n')
        process.stdin.flush()
        answers: list[dict[str, Any]] = []
        while not answers or answers[-1].get("id") != 7:
            answers.append(json.loads(process.stdout.readline()))
        out, err = process.communicate(timeout=WAIT_SECONDS)
    finally:
        process.kill()
        process.communicate(timeout=WAIT_SECONDS)
    assert all(one["jsonrpc"] == "2.0" for one in answers)
    assert "result" in answers[-1]
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err
