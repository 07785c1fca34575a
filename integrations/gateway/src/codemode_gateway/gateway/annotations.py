"""What the one tool says of itself: the union of what can be reached through it. Calls nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mcp_types as types


def union_of(listed: Iterable[Any], *, is_complete: bool) -> types.ToolAnnotations:
    """Return the annotations of a tool through which those in ``listed`` can be reached, the SDK's ``Tool``s.

    What is missing is what the protocol says of it: a tool that says nothing writes, destroys, is not idempotent and
    reaches beyond. So does one that nobody has listed yet, where the list is not ``is_complete``.
    """
    said = [one.annotations or types.ToolAnnotations() for one in listed]
    read_only = is_complete and all(one.read_only_hint is True for one in said)
    destructive = not is_complete or any(
        one.read_only_hint is not True and one.destructive_hint is not False for one in said
    )
    idempotent = is_complete and all(one.read_only_hint is True or one.idempotent_hint is True for one in said)
    open_world = not is_complete or any(one.open_world_hint is not False for one in said)
    return types.ToolAnnotations(
        title="Run a program",
        read_only_hint=read_only,
        destructive_hint=destructive,
        idempotent_hint=idempotent,
        open_world_hint=open_world,
    )
