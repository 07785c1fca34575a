"""An MCP server of the standard library that answers from a JSON file: `scripted_server.py FILE [http]`.

``pages``: the results of ``tools/list`` by cursor, "first" for the first; ``results``: those of ``tools/call`` by tool;
``error`` in one of them makes it a JSON-RPC error. ``calls``: a file to which the params of calls are appended. Over
HTTP, it prints its port.
"""

import http.server
import json
import sys
from pathlib import Path

SCRIPT = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


def answer(message):
    """Return what is answered to a message; None where nothing is."""
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message or method is None:
        return None
    if method == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "scripted", "version": "1"},
        }
    elif method == "tools/list":
        cursor = params.get("cursor", "first")
        result = SCRIPT["pages"].get(str(cursor), {"error": {"code": -32602, "message": f"no cursor {cursor!r}"}})
    elif method == "tools/call":
        if "calls" in SCRIPT:
            with Path(SCRIPT["calls"]).open("a", encoding="utf-8") as calls:
                calls.write(json.dumps(params) + "\n")
        said = {"content": [{"type": "text", "text": f"called {params['name']}"}]}
        result = SCRIPT.get("results", {}).get(params["name"], said)
    elif method == "ping":
        result = {}
    else:
        result = {"error": {"code": -32601, "message": "Method not found"}}
    about = {"jsonrpc": "2.0", "id": message["id"]}
    is_error = isinstance(result, dict) and list(result) == ["error"]
    return {**about, **result} if is_error else {**about, "result": result}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply(405, b"")

    do_DELETE = do_GET

    def do_POST(self):
        said = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.reply(202 if said is None else 200, b"" if said is None else json.dumps(said).encode())

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if sys.argv[2:] == ["http"]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
for line in sys.stdin:
    said = answer(json.loads(line))
    if said is not None:
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
