"""An MCP server of the standard library alone, which starts at once. Its arguments are modes that make it a bad one.

Run by tests as a script: `quick_server.py [mode[=value]] ...`.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

OPTIONS = dict(one.partition("=")[::2] for one in sys.argv[1:])
CANCELLED = {}
_write_lock = threading.Lock()
_changed = []


def say(message):
    with _write_lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def raw(text):
    with _write_lock:
        sys.stdout.write(text)
        sys.stdout.flush()


def tool(name, read_only=False, idempotent=False, schema=None, output=None, **more):
    listed = {"name": name, "description": f"The tool {name}.", "inputSchema": schema or {"type": "object"}, **more}
    if output:
        listed["outputSchema"] = output
    if read_only or idempotent:
        listed["annotations"] = {"readOnlyHint": read_only, "idempotentHint": idempotent}
    return listed


TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    tool("echo", read_only=True, schema=TEXT),
    tool("note", schema=TEXT),
    tool("structured", output={"type": "object", "properties": {"n": {"type": "integer"}}}),
    tool("picture"),
    tool("two"),
    tool("fail"),
    tool("refuse"),
    tool("environment", read_only=True),
    tool("pid", read_only=True),
    tool("slow"),
    tool("slow_read", read_only=True),
    tool("die"),
    tool("die_once", read_only=True),
    tool("die_once_unsafe"),
    tool("children"),
    tool("progress"),
    tool("cancelled"),
    tool("change"),
    tool("ask"),
    tool("deep"),
    tool("huge"),
    tool("half"),
    tool("flood"),
    tool("mute"),
]


def text(said):
    return {"content": [{"type": "text", "text": said}]}


def mark(name):
    """Return True the first time that anybody gets here, over all processes of one test."""
    try:
        (Path(OPTIONS["marks"]) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def wait_for_others(count):
    """Answer only once so many servers have started."""
    folder = Path(OPTIONS["marks"])
    (folder / f"here-{os.getpid()}").touch()
    while len([*folder.glob("here-*")]) < count:
        time.sleep(0.01)


def log(line):
    if "marks" in OPTIONS:
        with (Path(OPTIONS["marks"]) / "log").open("a") as file:
            file.write(line + "\n")


def call(one, name, given, meta):  # noqa: C901 - a row for each tool
    log(f"call {name}")
    if name == OPTIONS.get("die_of"):
        os._exit(3)
    if name == "echo" or name == "note":
        return text(given["text"])
    if name == "structured":
        return {"content": [{"type": "text", "text": "7"}], "structuredContent": {"n": 7}}
    if name == "picture":
        return {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}
    if name == "two":
        return {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    if name == "fail":
        return {**text("it did not work: " + os.environ.get("API_TOKEN", "")), "isError": True}
    if name == "environment":
        return {"content": [], "structuredContent": dict(os.environ)}
    if name == "pid":
        return {"content": [], "structuredContent": {"pid": os.getpid(), "group": os.getpgid(0)}}
    if name in ("slow", "slow_read"):
        gone = CANCELLED.setdefault(one, threading.Event())
        if gone.wait(float(given.get("seconds", 60))):
            return None
        return text("late")
    if name == "die":
        os._exit(3)
    if name in ("die_once", "die_once_unsafe"):
        if mark(name):
            os._exit(3)
        return text("alive")
    if name == "children":
        import subprocess

        code = "import time; time.sleep(600)"
        inside = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        outside = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        return {"content": [], "structuredContent": {"pids": [os.getpid(), inside.pid, outside.pid]}}
    if name == "progress":
        for step in (1, 2):
            params = {"progressToken": meta["progressToken"], "progress": step, "total": 2, "message": f"step {step}"}
            say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        return text("done")
    if name == "change":
        _changed.append(tool(f"new_{len(_changed)}"))
        say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("changed")
    if name == "ask":
        say(
            {
                "jsonrpc": "2.0",
                "id": "q1",
                "method": "elicitation/create",
                "params": {
                    "message": "Which?",
                    "requestedSchema": {"type": "object", "properties": {"x": {"type": "string"}}},
                },
            }
        )
        _asked.wait(30)
        return {"content": [], "structuredContent": {"answer": _answers.get("q1")}}
    if name == "deep":
        raw(
            f'{{"jsonrpc":"2.0","id":{json.dumps(one)},"result":{{"content":[],"structuredContent":'
            + "[" * 100_000
            + "]" * 100_000
            + "}}\n"
        )
        return None
    if name == "huge":
        return text("x" * int(given.get("size", 1_000_000)))
    if name == "half":
        raw(f'{{"jsonrpc":"2.0","id":{json.dumps(one)},"result":{{"content":[\n')
        return None
    if name == "flood":
        for _ in range(200):
            sys.stderr.write("complaint " * 1000 + "\n")
        return text("flooded")
    if name == "mute":
        return None
    return text("called " + name)


_asked = threading.Event()
_answers = {}


def serve_call(one, params):
    name = params["name"]
    if name == "refuse":
        say({"jsonrpc": "2.0", "id": one, "error": {"code": -32602, "message": "no such thing here"}})
        return
    result = call(one, name, params.get("arguments") or {}, params.get("_meta") or {})
    if result is not None:
        say({"jsonrpc": "2.0", "id": one, "result": result})


def page(params):
    if "endless" in OPTIONS:
        number = int((params or {}).get("cursor", 0))
        return {"tools": [tool(f"t{number}")], "nextCursor": str(number + 1)}
    if "circle" in OPTIONS:
        return {"tools": TOOLS, "nextCursor": "same"}
    if "count" in OPTIONS:
        return {"tools": [tool(f"t{number}") for number in range(int(OPTIONS["count"]))]}
    if "odd" in OPTIONS:
        nested = {}
        for _ in range(5000):
            nested = {"a": nested}
        odd = [
            7,
            None,
            {"name": 5},
            {"name": "bad_schema", "inputSchema": {"type": "nonsense", "pattern": "(a+)+$"}},
            {"name": "no_schema"},
            {"name": "echo"},
            {"name": "x" * 300_000},
            tool("fine"),
            {"name": "annotated", "inputSchema": {}, "annotations": "yes", "title": 5},
        ]
        return {"tools": odd}
    if "wordy" in OPTIONS:
        return {"tools": [dict(tool("wordy"), description="key " + os.environ.get("API_TOKEN", ""))]}
    return {"tools": TOOLS + _changed}


def answer(message):
    method, one = message.get("method"), message.get("id")
    if method is None:
        _answers[one] = message.get("result") or message.get("error")
        _asked.set()
        return
    if method == "notifications/cancelled":
        gone = message["params"]["requestId"]
        log(f"cancelled {gone}")
        CANCELLED.setdefault(gone, threading.Event()).set()
        return
    if one is None:
        return
    params = message.get("params") or {}
    if method == "initialize":
        if "silent" in OPTIONS:
            return
        if "together" in OPTIONS:
            wait_for_others(int(OPTIONS["together"]))
        if "modern" in OPTIONS:
            say({"jsonrpc": "2.0", "id": one, "error": {"code": -32601, "message": "no handshake here"}})
            return
        capabilities = {} if "toolless" in OPTIONS else {"tools": {"listChanged": "unchanging" not in OPTIONS}}
        say(
            {
                "jsonrpc": "2.0",
                "id": one,
                "result": {
                    "protocolVersion": OPTIONS.get("version", params["protocolVersion"]),
                    "capabilities": capabilities,
                    "serverInfo": {"name": "quick", "version": "1.2"},
                    "instructions": "Use it well.",
                },
            }
        )
    elif method == "tools/list":
        log("list")
        if method == OPTIONS.get("die_of"):
            os._exit(3)
        say({"jsonrpc": "2.0", "id": one, "result": page(params)})
    elif method == "tools/call":
        threading.Thread(target=serve_call, args=(one, params), daemon=True).start()
    elif method == "ping":
        say({"jsonrpc": "2.0", "id": one, "result": {}})
    else:
        say({"jsonrpc": "2.0", "id": one, "error": {"code": -32601, "message": f"no method {method}"}})


def main():
    log(f"start {os.getpid()}")
    if "crash" in OPTIONS:
        sys.stderr.write("cannot start: key " + os.environ.get("API_TOKEN", "") + "\n")
        sys.exit(4)
    if "noise" in OPTIONS:
        raw('Welcome to the server!\n\n{"level": "info", "id": 1}\n[1, 2]\n\x00\xff\n')
    if "endless_line" in OPTIONS:
        piece = "x" * 65536
        while True:
            raw(piece)
    if "stubborn" in OPTIONS:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        if line.strip():
            answer(json.loads(line))
    if "stubborn" in OPTIONS:
        log("left")
        time.sleep(600)


if __name__ == "__main__":
    main()
