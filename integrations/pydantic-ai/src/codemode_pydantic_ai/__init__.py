"""Code mode for pydantic-ai. The public names, nothing else."""

from .capability import CodeMode
from .pauses import answer
from .toolset import CodeModeToolset, create_code_mode_tool

__all__ = ["CodeMode", "CodeModeToolset", "answer", "create_code_mode_tool"]
