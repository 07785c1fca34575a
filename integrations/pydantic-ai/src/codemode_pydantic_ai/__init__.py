"""Code mode, CodeCall, exec and wait for pydantic-ai: public names."""

from .capability import CodeCall, CodeMode, ExecWait
from .code_call import CodeCallToolset
from .code_mode import CodeModeToolset, create_code_mode_tool
from .nested import NestedCallEvent
from .pauses import answer
from .stored_pauses import StoredPauses, StoredRun, stored_pauses

__all__ = [
    "CodeCall",
    "CodeCallToolset",
    "CodeMode",
    "CodeModeToolset",
    "ExecWait",
    "NestedCallEvent",
    "StoredPauses",
    "StoredRun",
    "answer",
    "create_code_mode_tool",
    "stored_pauses",
]
