"""An MCP server whose tools stand in a file of its folder; its tool `change` takes those of another file instead."""

import json
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1])


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def result_of(method, params):
    if method == "initialize":
        server = {"serverInfo": {"name": "changing", "version": "1"}, "capabilities": {"tools": {"listChanged": True}}}
        return {"protocolVersion": params["protocolVersion"], **server}
    if method == "tools/list":
        return {"tools": json.loads((FOLDER / "tools.json").read_text())}
    with (FOLDER / "log").open("a") as file:
        file.write(f"call {params['name']}\n")
    if params["name"] == "change":
        (FOLDER / "after.json").replace(FOLDER / "tools.json")
        say({"method": "notifications/tools/list_changed"})
    return {"content": [{"type": "text", "text": "done"}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] in ("initialize", "tools/list", "tools/call"):
        say({"id": message["id"], "result": result_of(message["method"], message.get("params") or {})})
    else:
        say({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
