"""An MCP server that misbehaves as its settings say, over stdio and over HTTP. Standard library only.

Over stdio it is a script with one argument, the settings as JSON:

- ``initialize``: fields that replace those of its answer to ``initialize``; null leaves a field out
- ``answers``: by method, what stands in an answer beside ``jsonrpc`` and ``id``; or a text, written as it is with
  ``$ID`` replaced; or a list of these, one for each request in turn, of which the last is for all later ones
- ``tools``: what ``tools/list`` gives; without it one tool, ``echo``, and its twin ``note``, which declares nothing
- ``before``, ``stderr``: texts written at the start; ``each``: what stands before and after each message, with ``$``
- ``log``: a file that gets one line for each start and each request
- ``gate``: a file without which ``initialize`` has no answer
- ``die_at``: a method; the process ends when it is asked, once for each file of ``marks``
"""

import json
import os
import queue
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [
    {"name": "echo", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
    {"name": "note", "inputSchema": SCHEMA},
]
NO_METHOD = {"error": {"code": -32601, "message": "Method not found"}}


class Odd:
    """What an odd server answers, whatever brings it the requests."""

    def __init__(self, settings):
        self.settings = settings
        self._asked = {}

    def answer(self, message):
        """Return the text of the answer to a message; None where it has none."""
        method, request_id = message.get("method"), message.get("id")
        if method is None or request_id is None:
            return None
        said = self.settings.get("answers", {}).get(method)
        if isinstance(said, list):
            at = self._asked[method] = self._asked.get(method, -1) + 1
            said = said[min(at, len(said) - 1)]
        if isinstance(said, str):
            return said.replace("$ID", json.dumps(request_id))
        body = self._usual(method, message.get("params") or {}) if said is None else said
        return json.dumps({"jsonrpc": "2.0", "id": request_id, **body})

    def _usual(self, method, params):
        if method == "initialize":
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "odd", "version": "1"},
                **self.settings.get("initialize", {}),
            }
            return {"result": {name: value for name, value in result.items() if value is not None}}
        if method == "tools/list":
            return {"result": {"tools": self.settings.get("tools", TOOLS)}}
        if method == "tools/call":
            text = f"{params['name']} got {json.dumps(params.get('arguments'))}"
            return {"result": {"content": [{"type": "text", "text": text}]}}
        return {"result": {}} if method == "ping" else NO_METHOD


def serve_stdio(settings):
    """Serve one client over stdin and stdout."""
    odd = Odd(settings)
    before, _, after = settings.get("each", "$\n").partition("$")

    def log(line):
        if "log" in settings:
            with Path(settings["log"]).open("a") as file:
                file.write(line + "\n")

    log("start")
    sys.stderr.write(settings.get("stderr", ""))
    sys.stderr.flush()
    write(settings.get("before", ""))
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        message = json.loads(line)
        method = message.get("method")
        log(str(method))
        if method == settings.get("die_at") and has_mark(settings):
            os._exit(3)
        while method == "initialize" and "gate" in settings and not Path(settings["gate"]).exists():
            time.sleep(0.01)
        text = odd.answer(message)
        if text is not None:
            write(before + text + after)


def has_mark(settings):
    """Use up one of the files that each let the process end once."""
    for one in settings.get("marks", []):
        try:
            Path(one).unlink()
        except FileNotFoundError:
            continue
        return True
    return False


def write(text):
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


class OddHttp(ThreadingHTTPServer):
    """An odd server on a free port of 127.0.0.1.

    ``hook(request, message)`` answers a request itself and returns True, or leaves it. ``requests`` are verb, path,
    method of the protocol, headers and body of each. ``events``: answers are streams of events. A GET of ``/sse`` opens
    the one stream of the older transport, whose requests go to ``/messages`` and whose answers are its events.
    """

    daemon_threads = True

    def __init__(self, settings, hook, *, events, tls):
        super().__init__(("127.0.0.1", 0), OddRequest)
        self.odd, self.hook, self.events, self.requests = Odd(settings), hook, events, []
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.origin = f"http{'' if tls is None else 's'}://127.0.0.1:{self.server_address[1]}"
        self.url = self.origin + "/mcp"
        self.streams: list[queue.Queue[str | None]] = []

    def asked(self, method):
        """Return the requests of a method of the protocol."""
        return [one for one in self.requests if one[2] == method]

    def end_streams(self):
        """End the streams of the older transport."""
        for stream in self.streams:
            stream.put(None)

    def handle_error(self, request, client_address):
        """Say nothing of a client that has hung up."""


class OddRequest(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Write no log."""

    def reply(self, status, body=b"", **headers):
        """Send an answer; underscores in names of headers stand for hyphens."""
        if isinstance(body, dict | list):
            body, headers = json.dumps(body), {"Content_Type": "application/json", **headers}
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return True

    def usual(self, message, **headers):
        """Answer as the settings of the server say."""
        text = self.server.odd.answer(message)
        if text is None:
            return self.reply(202, **headers)
        if self.server.events:
            return self.reply(200, f"event: message\ndata: {text}\n\n", Content_Type="text/event-stream", **headers)
        return self.reply(200, text, Content_Type="application/json", **headers)

    def stream(self):
        """Write the events of the older transport until the stream is ended."""
        events = queue.Queue()
        self.server.streams.append(events)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        event = f"event: endpoint\ndata: /messages?sessionId={len(self.server.streams)}\n\n"
        while event is not None:
            self.wfile.write(event.encode())
            self.wfile.flush()
            event = events.get()
        self.close_connection = True

    def _serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        message = json.loads(body or b"{}")
        self.server.requests.append((self.command, self.path, message.get("method"), dict(self.headers), body))
        if self.server.hook is not None and self.server.hook(self, message):
            return
        if self.path.startswith("/sse") and self.command == "GET":
            self.stream()
        elif self.path.startswith("/messages"):
            self.reply(202, "Accepted")
            text = self.server.odd.answer(message)
            if text is not None:
                self.server.streams[-1].put(f"data: {text}\n\n")
        elif self.command == "POST":
            self.usual(message)
        else:
            self.reply(405)

    do_GET = do_POST = do_DELETE = _serve


@contextmanager
def odd_http(settings=None, hook=None, *, events=False, tls=None):
    """Serve over HTTP in a thread of this process until the block ends."""
    server = OddHttp(settings or {}, hook, events=events, tls=tls)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.end_streams()
        server.shutdown()
        server.server_close()
        thread.join(30)


if __name__ == "__main__":
    serve_stdio(json.loads(sys.argv[1]))
