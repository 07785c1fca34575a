"""The gateway's side towards servers, as the client that the conformance suite starts: ``client.py URL``.

What it connects with is `codemode_gateway.connect`; a person who signs in is one who follows each page at once. Which
scenario it is stands in ``MCP_CONFORMANCE_SCENARIO``, and what a person would have been given with it in
``MCP_CONFORMANCE_CONTEXT``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
from codemode_gateway import UpstreamHooks, connect, load_config
from codemode_gateway.config.redaction import SecretRedactor
from codemode_gateway.oauth.login_manager import SignInManager
from codemode_gateway.oauth.settings import SignInError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from codemode.errors import CodeModeAuthenticationError, CodeModeToolError

NAME = "suite"
MOST_SIGN_INS = 3
METADATA_URL = "https://conformance-test.local/client-metadata.json"


def auth_of(scenario: str, context: Mapping[str, Any], issuer: str) -> dict[str, Any]:
    """Return what a person writes into the configuration to sign in where the suite plays the server."""
    auth: dict[str, Any] = {"storage": "files"}
    if "client_id" in context:
        auth |= {"clientId": context["client_id"], "clientSecret": context.get("client_secret"), "issuer": issuer}
        auth = {key: value for key, value in auth.items() if value is not None}
    if scenario.startswith("auth/client-credentials"):
        auth["flow"] = "client_credentials"
    if scenario == "auth/basic-cimd":
        auth["clientMetadataUrl"] = METADATA_URL
    return auth


def follow(url: str) -> None:
    """Open a page as a browser does, to where it leads in the end."""
    with httpx2.Client(follow_redirects=True, timeout=20.0) as browser:
        browser.get(url)


async def asked(_server: Any, method: str, params: Mapping[str, Any], _context: Any) -> Any:
    """Answer as a person who accepts each form as it stands."""
    if method == "elicitation/create":
        properties = params.get("requestedSchema", {}).get("properties", {})
        given = {name: one["default"] for name, one in properties.items() if "default" in one}
        given |= {name: True for name, one in properties.items() if one.get("type") == "boolean" and name not in given}
        return {"action": "accept", "content": given}
    return {"roots": []} if method == "roots/list" else {"error": "nobody answers that"}


async def authorization_server(url: str) -> str:
    """Return the issuer that the server's metadata name, as its operator would tell it."""
    async with httpx2.AsyncClient() as client:
        where = httpx2.URL(url).join("/.well-known/oauth-protected-resource/mcp")
        answer = await client.get(where)
        return answer.json()["authorization_servers"][0] if answer.is_success else ""


async def work(upstream: Any, known: Mapping[str, Any]) -> None:
    """List the tools of a server and call each of them."""
    await upstream.tools()
    schemas = {one.name: one.input_schema for one in upstream.listed_tools}
    calls = known.get("toolCalls") or [{"name": name, "arguments": arguments(name, schemas)} for name in schemas]
    for one in calls:
        with contextlib.suppress(CodeModeToolError) if known.get("toolCalls") else contextlib.nullcontext():
            result = await upstream.call(one["name"], one.get("arguments", {}))
            print(one["name"], result)


def arguments(name: str, schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a tool is called with: of each property that it requires one value of its type."""
    if name == "json_schema_echo":
        return {"schema": schemas["json_schema_2020_12_tool"]}
    schema = schemas[name]
    values = {"number": 3, "integer": 3, "boolean": True, "string": "text", "array": [], "object": {}}
    needed = schema.get("required", ())
    return {
        key: values.get(one.get("type"), "text") for key, one in schema.get("properties", {}).items() if key in needed
    }


async def main(url: str, folder: Path) -> None:
    """Do what a gateway does with a server, signing in where it is asked for."""
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    known = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    entry: dict[str, Any] = {"url": url}
    if scenario.startswith("auth/"):
        issuer = await authorization_server(url) if "client_id" in known else ""
        entry["codemode"] = {"auth": auth_of(scenario, known, issuer)}
    config = load_config({"mcpServers": {NAME: entry}}, state_folder=folder)
    assert not config.problems, config.problems
    secrets = SecretRedactor(config.secrets)
    async with SignInManager(config, secrets=secrets, open_browser=follow) as sign_ins:
        hooks = UpstreamHooks(create_auth=sign_ins.create_auth_hook(), on_request=asked)
        for _ in range(MOST_SIGN_INS):
            async with connect(config, hooks=hooks, secrets=secrets) as connected:
                upstream = connected.upstream(NAME)
                if os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION") in MODERN_PROTOCOL_VERSIONS:
                    # The suite says which way its server knows alone, as the list that was kept of a server does.
                    upstream._link.era = "modern"
                try:
                    return await work(upstream, known)
                except CodeModeAuthenticationError as error:
                    print(error)
                await sign_ins.get_or_start_attempt(config.servers[0], is_forced=True).wait_until_signed_in()
    sys.exit("it asks again and again to sign in")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        try:
            asyncio.run(main(sys.argv[-1], Path(temporary)))
        except (CodeModeToolError, SignInError) as error:
            sys.exit(str(error))
