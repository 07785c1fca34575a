"""A resource that needs a sign-in, and the authorization server for it, in one: on a port of its own, until closed.

It checks what a real one does (PKCE, redirect URIs, one use of codes and refresh tokens) and counts; a test may
replace any answer.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from codemode_gateway.config.model import GatewayConfig, GatewaySettings, ServerConfig

Answer = tuple[int, dict[str, str], bytes]


def as_json(value: Any, status: int = 200, **headers: str) -> Answer:
    return status, {"Content-Type": "application/json", **headers}, json.dumps(value).encode()


class QuietServer(ThreadingHTTPServer):
    """Says nothing of clients that have gone."""

    def handle_error(self, *_: object) -> None: ...


class SignInServer:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.answers: dict[str, Callable[[dict[str, str], Any], Answer | None]] = {}
        self.clients: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.access: set[str] = set()
        self.refresh: set[str] = set()
        self.used: list[str] = []
        self.seen_tokens: list[str | None] = []
        self.asked: list[dict[str, str]] = []
        self.expires_in = 3600
        self.extra_metadata: dict[str, Any] = {}
        self.resource: dict[str, Any] = {}
        self.lock = threading.Lock()
        self.serial = 0

    def begin(self) -> None:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                self.answer(None)

            def do_POST(self) -> None:
                self.answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def answer(self, body: bytes | None) -> None:
                with contextlib.suppress(ConnectionError):
                    status, headers, data = owner.answer_to(self.path, dict(self.headers.items()), body)
                    self.send_response(status)
                    for name, value in {"Content-Length": str(len(data)), **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(data)

        self.server = QuietServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.origin = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def end(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "revocation_endpoint": f"{self.origin}/revoke",
            "code_challenge_methods_supported": ["S256"],
            **self.extra_metadata,
        }

    def answer_to(self, target: str, headers: dict[str, str], body: bytes | None) -> Answer:
        url = urlsplit(target)
        query = {key: one[0] for key, one in parse_qs(url.query).items()}
        form = {key: one[0] for key, one in parse_qs((body or b"").decode("utf-8", "replace")).items()}
        with self.lock:
            self.counts[url.path] += 1
            special = self.answers.get(url.path)
        if special is not None and (told := special(query or form, headers)) is not None:
            return told
        with self.lock:
            if url.path == "/mcp":
                return self.mcp(headers, body)
            if url.path.startswith("/.well-known/oauth-protected-resource"):
                return as_json({"resource": self.url, "authorization_servers": [self.origin], **self.resource})
            if url.path == "/.well-known/oauth-authorization-server":
                return as_json(self.metadata())
            if url.path == "/register":
                self.serial += 1
                client = {**json.loads(body or b"{}"), "client_id": f"client-{self.serial}"}
                self.clients[client["client_id"]] = client
                return as_json(client, 201)
            if url.path == "/authorize":
                return self.authorize(query)
            if url.path == "/token":
                return self.token(form, headers)
            if url.path == "/revoke":
                self.access.discard(form["token"])
                self.refresh.discard(form["token"])
                return 200, {}, b""
        return as_json({}, 404)

    def mcp(self, headers: dict[str, str], body: bytes | None) -> Answer:
        said = headers.get("Authorization")
        self.seen_tokens.append(said)
        if said is None or said.removeprefix("Bearer ") not in self.access:
            where = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
            return as_json({}, 401, **{"WWW-Authenticate": f'Bearer resource_metadata="{where}"'})
        asked = json.loads(body or b"{}")
        if body is None or "id" not in asked:
            return (405 if body is None else 202), {}, b""
        tool = {"name": "who", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
        results: dict[str, dict[str, Any]] = {
            "initialize": {
                "protocolVersion": asked.get("params", {}).get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1"},
            },
            "tools/list": {"tools": [tool]},
            # It tells whoever asks with which token it was asked, as a careless server would.
            "tools/call": {"content": [{"type": "text", "text": f"you are {said}"}]},
        }
        return as_json({"jsonrpc": "2.0", "id": asked["id"], "result": results.get(asked.get("method"), {})})

    def authorize(self, query: dict[str, str]) -> Answer:
        self.asked.append(query)
        client = self.clients.get(query["client_id"])
        if client is None or query["redirect_uri"] not in client["redirect_uris"]:
            return as_json({"error": "invalid_client"}, 400)
        self.serial += 1
        code = f"code-{self.serial}"
        self.codes[code] = query
        back = urlencode({"code": code, "state": query["state"], "iss": self.origin})
        return 302, {"Location": f"{query['redirect_uri']}?{back}"}, b""

    def token(self, form: dict[str, str], headers: dict[str, str]) -> Answer:
        kind = form["grant_type"]
        self.counts[kind] += 1
        if kind == "authorization_code":
            asked = self.codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if asked is None or asked["code_challenge"] != challenge or asked["redirect_uri"] != form["redirect_uri"]:
                return as_json({"error": "invalid_grant"}, 400)
        elif kind == "refresh_token":
            self.used.append(form["refresh_token"])
            if form["refresh_token"] not in self.refresh:
                return as_json({"error": "invalid_grant", "error_description": "used before"}, 400)
            self.refresh.remove(form["refresh_token"])
        elif kind == "client_credentials":
            said = base64.b64decode(headers.get("Authorization", "Basic ").removeprefix("Basic ")).decode()
            client, _, secret = said.partition(":")
            if self.clients.get(unquote(client), {}).get("client_secret") != unquote(secret):
                return as_json({"error": "invalid_client"}, 401)
        return as_json(self.new_tokens(with_refresh=kind != "client_credentials"))

    def new_tokens(self, *, with_refresh: bool = True) -> dict[str, Any]:
        self.serial += 1
        access, refresh = f"access-token-{self.serial:06}", f"refresh-token-{self.serial:06}"
        self.access.add(access)
        found: dict[str, Any] = {"access_token": access, "token_type": "bearer", "expires_in": self.expires_in}
        if with_refresh:
            self.refresh.add(refresh)
            found["refresh_token"] = refresh
        return found


@contextlib.contextmanager
def sign_in_server() -> Iterator[SignInServer]:
    server = SignInServer()
    server.begin()
    try:
        yield server
    finally:
        server.end()


def configured(url: str, folder: Path, **auth: Any) -> GatewayConfig:
    """Return a configuration whose one server, "notes", has this address; tokens are files in the folder."""
    one = ServerConfig("notes", "http", url=url, auth={"storage": "files", **auth})
    return GatewayConfig((one,), GatewaySettings(state_folder=folder))


def browse(url: str) -> str:
    """Open a page as a browser does, to where it leads; return the last address."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            response.read()
            return response.url
    except urllib.error.HTTPError as error:
        with error:
            return error.url or ""
