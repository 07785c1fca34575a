"""Match names of tools with patterns, and decide with them which calls need an approval."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import mcp_types as types

from codemode.data.similar_names import nearest_names

from .config_file import one_of, short
from .model import Approval, ServerConfig

if TYPE_CHECKING:
    from .model import ServerConfig


_MAX_NOTES = 8
_MAX_COMPARED_CHARACTERS = 100


def matches(pattern: str, name: str) -> bool:
    """Return whether ``name`` is what ``pattern`` says. Takes time in proportion to both, whatever they hold."""
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    *middle, last = rest
    if not name.startswith(first) or len(name) < len(first) + len(last) or not name.endswith(last):
        return False
    place, end = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


def unmatched(patterns: Iterable[str], names: Collection[str]) -> list[str]:
    """Return the patterns that match none of the names."""
    return [
        pattern
        for pattern in dict.fromkeys(patterns)
        if pattern not in names and not ("*" in pattern and any(matches(pattern, name) for name in names))
    ]


def patterns_of(config: ServerConfig) -> dict[str, tuple[str, ...]]:
    """Return the patterns of a server by the keys of the configuration that hold them."""
    return {
        "approval": tuple(config.tool_approvals),
        "autoApprove": config.auto_approve,
        "tools.allow": config.allow,
        "tools.deny": config.deny,
    }


def unmatched_notes(patterns: dict[str, tuple[str, ...]], names: Collection[str], of: str = "") -> list[str]:
    """Return what to say of patterns that match no tool, with the nearest names; ``names`` are a set."""
    notes: list[str] = []
    left = 0
    for key, given in patterns.items():
        for pattern in unmatched(given, names):
            if len(notes) == _MAX_NOTES:
                left += 1
                continue
            meant = pattern.replace("*", "")[:_MAX_COMPARED_CHARACTERS]
            near = [one for one in names if one.lower() == meant.lower()] or nearest_names(meant, names)
            said = f"; did you mean {one_of(near)}?" if near else ""
            notes.append(f"{key}: {short(pattern)} matches no tool{of}{said}")
    return [*notes, f"{left} more patterns match no tool{of}"] if left else notes


# What a server declares is a claim that nobody has verified: where it says nothing that would spare the question, and
# where it contradicts itself, the question is asked.


def asks(config: ServerConfig, tool: types.Tool) -> bool:
    """Tell whether a person is asked about calls of this tool, unless an answer to an earlier one is remembered."""
    match rule_of(config, tool.name):
        case "never":
            return False
        case "always":
            return True
        case "writes":
            return not _only_reads(tool)
        case _:
            return not _only_reads(tool) and not _destroys_nothing(tool)


def rule_of(config: ServerConfig, tool_name: str) -> Approval:
    """Return the policy of one tool: what names it, then the longest pattern, then automatic approval, then the server.

    What the operator says of a tool holds against a list of automatic approvals that came with a client's file.
    """
    named = [pattern for pattern in config.tool_approvals if matches(pattern, tool_name)]
    if named:
        return config.tool_approvals[max(named, key=lambda pattern: (pattern == tool_name, len(pattern)))]
    if any(matches(pattern, tool_name) for pattern in config.auto_approve):
        return "never"
    return config.approval


def _only_reads(tool: types.Tool) -> bool:
    said = tool.annotations
    return said is not None and said.read_only_hint is True and said.destructive_hint is not True


def _destroys_nothing(tool: types.Tool) -> bool:
    # By the protocol a tool that writes and says no more is destructive.
    return tool.annotations is not None and tool.annotations.destructive_hint is False
