"""Code mode and CodeCall for pydantic-ai. The public names, nothing else."""

from .capability import CodeCall, CodeMode
from .code_call import CodeCallToolset
from .code_mode import CodeModeToolset, create_code_mode_tool
from .pauses import answer

__all__ = ["CodeCall", "CodeCallToolset", "CodeMode", "CodeModeToolset", "answer", "create_code_mode_tool"]
