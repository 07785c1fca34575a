"""The one tool as a client is shown it. Calls nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import mcp_types as types

from codemode.host.threads import off_loop

from .annotations import union_of
from .client_table import Announced

if TYPE_CHECKING:
    from .outfit import Outfit

INSTRUCTIONS = (
    "codemode runs one program over all MCP servers of this user: send codemode_run a JavaScript or TypeScript module"
    " that imports servers, calls their tools, and gives back the little that you need. Look tools up in the program,"
    " with searchTools of @codemode/discovery, before you call them. Where an answer says that calls wait for a person,"
    " tell the user, and send its id as resume later."
)

_RESUME = "The id of a waiting answer, in place of code: gives what has come of that program."


async def tool_shown(outfit: Outfit, known: Announced) -> types.Tool:
    """Return the tool for one client, of the servers as they were last listed."""
    run_tool = outfit.run_tool
    # Putting thousands of declarations together takes some time.
    description = await off_loop(partial(run_tool.describe, known.description_characters))
    upstreams = outfit.connected.upstreams
    annotations = union_of(
        (tool for one in upstreams for tool in one.listed),
        is_complete=bool(upstreams) and all(one.listed for one in upstreams),
    )
    return types.Tool(
        name=known.tool_name,
        title="Run a program over MCP servers",
        description=description,
        input_schema=input_schema(run_tool.input_schema),
        annotations=annotations,
    )


def input_schema(of_run: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a call: that of a run, or the id of one that waits."""
    properties = {**of_run["properties"], "resume": {"type": "string", "description": _RESUME}}
    return {"type": "object", "properties": properties}
