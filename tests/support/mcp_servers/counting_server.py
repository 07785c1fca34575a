"""An MCP server of the standard library alone whose calls are lines of a file: `counting_server.py FILE`.

``pay`` is for people to decide about, ``note`` is not. Both may be cut off before and after their effect. It is written
down as ``[kind, arguments, pid]`` in one call to the system, so that a kill leaves what had happened and nothing else.
"""

import json
import os
import random
import sys
import threading

_PAUSES = (0, 0.002, 0.01)
_SCHEMA = {
    "type": "object",
    "properties": {"run": {"type": "integer"}, "number": {"type": "integer"}, "edited": {"type": "boolean"}},
    "required": ["run", "number"],
}
TOOLS = [
    {
        "name": name,
        "description": f"The tool {name}.",
        "inputSchema": _SCHEMA,
        "annotations": {"destructiveHint": name == "pay"},
    }
    for name in ("pay", "note")
]


class Counting:
    """What the calls change, and which of them somebody has taken back."""

    def __init__(self, path):
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        self._cancelled = {}
        self.write("born", None)

    def write(self, kind, value):
        os.write(self._file, (json.dumps([kind, value, os.getpid()]) + "\n").encode())

    def call(self, one, value):
        """Make a call. Returns what it gives, None where it was taken back before it had happened."""
        gone = self._cancelled.setdefault(one, threading.Event())
        self.write("began", value)
        try:
            if gone.wait(random.choice(_PAUSES)):
                return None
            self.write("effect", value)
            gone.wait(random.choice(_PAUSES))
        finally:
            self.write("ended", value)
            self._cancelled.pop(one, None)
        return {"content": [{"type": "text", "text": f"done {value['run']}.{value['number']}"}]}

    def cancel(self, one):
        if one in self._cancelled:
            self._cancelled[one].set()


def answer(counting, message, say):
    """Answer a message, where it wants an answer."""
    method, one, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "notifications/cancelled":
        counting.cancel(params["requestId"])
    elif one is None:
        return
    elif method == "initialize":
        server = {"name": "counting", "version": "1"}
        version = params["protocolVersion"]
        say(one, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server})
    elif method == "tools/list":
        say(one, {"tools": TOOLS})
    elif method == "tools/call":
        result = counting.call(one, params["arguments"])
        if result is not None:
            say(one, result)
    elif method == "ping":
        say(one, {})
    else:
        say(one, {"code": -32601, "message": f"no method {method}"}, "error")


def main():
    counting, lock = Counting(sys.argv[1]), threading.Lock()

    def say(one, given, kind="result"):
        with lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": one, kind: given}) + "\n")
            sys.stdout.flush()

    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            threading.Thread(target=answer, args=(counting, message, say), daemon=True).start()
        else:
            answer(counting, message, say)


if __name__ == "__main__":
    main()
