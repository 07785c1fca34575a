"""Names in ``approve`` that may be misspelt: refused where all tools are known, else told of in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from langchain_core.tools import BaseTool

Unknown: TypeAlias = Callable[[Collection[str], Sequence[BaseTool]], list[str]]
"""Returns what is said of each rule about none of the tools of these names, of which programs call those given."""

_log = logging.getLogger("codemode.tools")


class RuleNames:
    """Looks whether the rules of a middleware are about tools that its agent has."""

    def __init__(self, unknown: Unknown) -> None:
        self._unknown = unknown
        self._has_looked = False

    def require(self, there: Collection[str], in_programs: Sequence[BaseTool]) -> None:
        """Raise `ValueError` for a rule about none of these tools."""
        for said in self._unknown(there, in_programs):
            raise ValueError(said)

    def warn(self, there: Collection[str], in_programs: Sequence[BaseTool]) -> None:
        """Log in the first step alone which rules are about none of its tools: a later one may have others."""
        if self._has_looked:
            return
        self._has_looked = True
        for said in self._unknown(there, in_programs):
            _log.warning("%s A program that begins while there is no such tool ends the run with this error.", said)
