"""Match tool names with patterns, and decide which calls need approval."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import mcp_types as types

from codemode.data.similar_names import find_nearest_names

from .config_file import format_choices, quote_name
from .model import ApprovalPolicy, ServerConfig

if TYPE_CHECKING:
    from .model import ServerConfig


_MAX_NOTES = 8
_MAX_COMPARED_CHARACTERS = 100


def matches(pattern: str, name: str) -> bool:
    """Return whether ``name`` matches ``pattern``, in linear time. ``*`` matches any text."""
    first, *further_parts = pattern.split("*")
    if not further_parts:
        return name == pattern
    *middle, last = further_parts
    if not name.startswith(first) or len(name) < len(first) + len(last) or not name.endswith(last):
        return False
    position, end = len(first), len(name) - len(last)
    for part in middle:
        match_position = name.find(part, position, end)
        if match_position < 0:
            return False
        position = match_position + len(part)
    return True


def find_unmatched_patterns(patterns: Iterable[str], names: Collection[str]) -> list[str]:
    """Return the patterns that match none of the names."""
    return [
        pattern
        for pattern in dict.fromkeys(patterns)
        if pattern not in names and not ("*" in pattern and any(matches(pattern, name) for name in names))
    ]


def get_tool_patterns(config: ServerConfig) -> dict[str, tuple[str, ...]]:
    """Return the patterns of a server by their configuration keys."""
    return {
        "approval": tuple(config.tool_approvals),
        "autoApprove": config.auto_approve,
        "tools.allow": config.allow,
        "tools.deny": config.deny,
    }


def describe_unmatched_patterns(
    patterns: dict[str, tuple[str, ...]], names: Collection[str], scope: str = ""
) -> list[str]:
    """Return warnings about patterns that match no tool, with similar names. ``names`` is a set."""
    notes: list[str] = []
    omitted_count = 0
    for key, key_patterns in patterns.items():
        for pattern in find_unmatched_patterns(key_patterns, names):
            if len(notes) == _MAX_NOTES:
                omitted_count += 1
                continue
            literal_text = pattern.replace("*", "")[:_MAX_COMPARED_CHARACTERS]
            near = [name for name in names if name.lower() == literal_text.lower()] or find_nearest_names(
                literal_text, names
            )
            suggestion = f"; did you mean {format_choices(near)}?" if near else ""
            notes.append(f"{key}: {quote_name(pattern)} matches no tool{scope}{suggestion}")
    return [*notes, f"{omitted_count} more patterns match no tool{scope}"] if omitted_count else notes


# Security: a server's annotations are unverified claims. If they are missing or contradictory, the call needs approval.


def needs_approval(config: ServerConfig, tool: types.Tool) -> bool:
    """Return whether calls of this tool need approval, ignoring remembered answers."""
    match get_approval_policy(config, tool.name):
        case "never":
            return False
        case "always":
            return True
        case "writes":
            return not _is_read_only(tool)
        case _:
            return not _is_read_only(tool) and not _is_non_destructive(tool)


def get_approval_policy(config: ServerConfig, tool_name: str) -> ApprovalPolicy:
    """Return the policy of a tool: its exact name, then the longest pattern, then auto approval, then the server.

    The operator's patterns override the automatic approvals of a client's file.
    """
    named = [pattern for pattern in config.tool_approvals if matches(pattern, tool_name)]
    if named:
        return config.tool_approvals[max(named, key=lambda pattern: (pattern == tool_name, len(pattern)))]
    if any(matches(pattern, tool_name) for pattern in config.auto_approve):
        return "never"
    return config.approval


def _is_read_only(tool: types.Tool) -> bool:
    annotations = tool.annotations
    return annotations is not None and annotations.read_only_hint is True and annotations.destructive_hint is not True


def _is_non_destructive(tool: types.Tool) -> bool:
    # MCP: a tool without destructiveHint is destructive.
    return tool.annotations is not None and tool.annotations.destructive_hint is False
