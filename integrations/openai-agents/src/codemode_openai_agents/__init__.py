"""Code mode for the OpenAI Agents SDK: public names."""

from .agent import with_code_mode
from .approvals import ApprovalRule, ApprovalRules, approve
from .outer_call import stream_events
from .tool import code_mode, code_mode_custom_tool

__all__ = [
    "ApprovalRule",
    "ApprovalRules",
    "approve",
    "code_mode",
    "code_mode_custom_tool",
    "stream_events",
    "with_code_mode",
]
