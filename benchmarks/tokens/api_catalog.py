"""Three operations of GitHub's OpenAPI document as tools, in front of a world's issues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from codemode import CodeModeToolError
from codemode.openapi import openapi_tools
from codemode.tools.prepared import prepare_tool

from .catalog import Catalog, definition
from .world.issues import Issues, label

_DOCUMENT = Path(__file__).parents[2] / "examples" / "github_openapi.json"
_REPOSITORY = "/repos/acme/shop/issues"


class ApiCatalog(Catalog):
    """Tools of an API, over the world that was begun last."""

    def __init__(self) -> None:
        self._issues = Issues()
        client = httpx.AsyncClient(transport=httpx.MockTransport(self._answer), base_url="https://api.github.com")
        document = json.loads(_DOCUMENT.read_text(encoding="utf-8"))
        self._example: dict[str, Any] = document["components"]["examples"]["issue-items"]["value"][0]
        self.tools = [*openapi_tools(document, client=client)]
        self._prepared = {tool.name: prepare_tool(tool) for tool in self.tools}

    def begin(self) -> None:
        """Begin a fresh world."""
        self._issues = Issues()

    async def direct(self, name: str, given: Any) -> Any:
        """Return what a tool gives for a call of the model's own, or the error that it raises."""
        tool = self._prepared[name]
        value = tool.validate_input(given).value
        try:
            answer = await tool.call(value, None)
        except CodeModeToolError as error:
            return error
        return tool.validate_output(answer)

    def definitions(self) -> list[dict[str, Any]]:
        """Return what a request says of all tools when each is offered to the model itself."""
        return [definition(one.name, one.description, one.input_json_schema) for one in self._prepared.values()]

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        path, query = request.url.path, request.url.params
        if path != _REPOSITORY:
            names = json.loads(request.content)["labels"]
            return httpx.Response(200, json=[{**label("customer"), "name": name} for name in names])
        size, page = int(query.get("per_page", "30")), int(query.get("page", "1"))
        labels = [one for one in query.get("labels", "").split(",") if one]
        given = {"state": query.get("state", "open"), "labels": labels, "per_page": size, "page": page}
        listed: list[dict[str, Any]] = await self._issues.functions()["github_list_issues"](given)
        link = f'<{request.url.copy_set_param("page", page + 1)}>; rel="next"'
        headers = {"link": link} if len(listed) == size else {}
        return httpx.Response(200, json=[self._whole(one) for one in listed], headers=headers)

    def _whole(self, issue: dict[str, Any]) -> dict[str, Any]:
        """Return an issue with the fields of GitHub's example that the world has nothing of."""
        user, example = self._example["user"], dict(self._example)
        del example["pull_request"]
        whole = {**example, **issue, "user": {**user, **issue["user"]}}
        whole["assignees"] = [{**user, **one} for one in issue["assignees"]]
        return {**whole, "assignee": whole["assignees"][0] if issue["assignee"] else None}
