"""What modules are given in tests of the kernel: servers, imports of them, and a host that answers."""

from __future__ import annotations

import json
from typing import Any

TOOLS = [
    {"toolName": "get-user", "exportName": "get_user", "description": "Says who."},
    {"toolName": "then", "exportName": "then_"},
    {"toolName": "a.b c", "exportName": "a_b_c"},
]
GITHUB = {"serverId": "github", "serverName": "GitHub", "serverVersion": "1.2", "tools": TOOLS}
EMPTY = {"serverId": "empty", "serverName": "empty", "tools": []}
GIVEN = {"github": GITHUB, "empty": EMPTY}
GH = "@codemode/servers/github"
ALL = [(GH, "gh"), ("@codemode/discovery", "discovery"), ("@codemode/errors", "errors")]
RESULT = "globalThis.__codemode_result__ = "


def server(request: dict[str, Any]) -> dict[str, Any]:
    """Answers `importServer` as the catalog does, and gives everything else back."""
    if request["name"] != "importServer":
        return {"value": json.loads(request["input"])}
    path = json.loads(request["input"])
    if path == "gone":
        fields = {"class": "ServerNotFoundError", "message": "no server", "code": "UNKNOWN_SERVER", "hint": "h"}
        return {"error": {"name": "Error", "message": "no server", "code": "UNKNOWN_SERVER", "fields": fields}}
    return {"value": {**EMPTY, "serverId": path, "tools": TOOLS[:1]}}
