"""What is read of a session of the SDK is asked for by its name of today first: who reads a former one is warned."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest

from codemode.surfaces.exec_wait.mcp_server import create_resource_and_prompt_tools
from codemode.surfaces.exec_wait.mcp_session import ServerToolSettings, await_tool_result, list_paged_items

FORMER = re.compile("[a-z][A-Z]")


class Today(SimpleNamespace):
    """A model that has its fields of today, and warns of whoever reads another one, as fastmcp has the SDK's do."""

    def __getattr__(self, name: str) -> Any:
        if FORMER.search(name):
            raise DeprecationWarning(name)
        raise AttributeError(name)


class Session:
    """A server with a resource and a template of one."""

    server_capabilities = Today(resources=Today(), prompts=None)

    async def list_resources(self, cursor: str | None = None) -> Any:
        return Today(resources=[types.Resource(uri="x://a", name="a")], next_cursor=None)

    async def list_resource_templates(self, cursor: str | None = None) -> Any:
        found = [types.ResourceTemplate(uri_template="x://{a}", name="t")]
        return Today(resource_templates=found, next_cursor=None)

    async def read_resource(self, uri: str) -> Any:
        raise NotImplementedError


def listed(session: Session) -> Any:
    """Return what a program is told that asks the session for its resources."""
    made: dict[str, Any] = {}

    async def main() -> Any:
        await create_resource_and_prompt_tools(
            session, lambda name: name, ServerToolSettings(adapt=lambda tool, name: made.setdefault(name, tool))
        )
        return await made["resources/list"].execute({}, None)

    return asyncio.run(main())


def test_templates_of_resources_are_told():
    assert [one["uriTemplate"] for one in listed(Session())["resourceTemplates"]] == ["x://{a}"]


def test_an_error_for_templates_is_told_to_the_developer(caplog: pytest.LogCaptureFixture):
    class Refusing(Session):
        async def list_resource_templates(self, cursor: str | None = None) -> Any:
            raise RuntimeError("method not found")

    with caplog.at_level("INFO", "codemode.tools"):
        assert "resourceTemplates" not in listed(Refusing())
    assert "method not found" in str(caplog.records[0].exc_info)


def test_pages_and_results_are_read_by_the_names_of_today():
    answer = Today(content=[], structured_content={"a": 1}, is_error=False)

    async def asked() -> Any:
        return answer

    assert asyncio.run(await_tool_result(asked())).structured_content == {"a": 1}
    assert asyncio.run(list_paged_items(Session().list_resource_templates, "resource_templates", "resourceTemplates"))[
        1
    ]
