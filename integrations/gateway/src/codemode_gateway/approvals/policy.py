"""Which calls a person is asked about: the operator's policy against what a server declares of its tool. Pure.

What a server declares is a claim that nobody has verified: where it says nothing that would spare the question, and
where it contradicts itself, the question is asked.
"""

from __future__ import annotations

import mcp_types as types

from ..config.patterns import matches
from ..config.values import Approval, ServerConfig


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
