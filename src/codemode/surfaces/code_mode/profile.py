"""The profile of the `codeMode` tool: its program is the body of an async function, in sloppy mode."""

from __future__ import annotations

from ...profile import GuestFace, Profile

CODE_MODE = Profile(
    name="codeMode",
    outer_tool="codeMode",
    guest=GuestFace(wrapper="sloppy", globals=("tools", "console", "content")),
    request_kinds=frozenset({"tool", "catalog", "fetch", "state"}),
    has_content=True,
)
