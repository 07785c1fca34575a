"""Tells errors in which a program has come to its end from those that have cut it off."""

from __future__ import annotations

from ..errors import CUT_OFF_ERRORS, CodeModeError, CodeModeProtocolError


def is_programs_end(error: BaseException) -> bool:
    """Return True for an error that the program would come to again."""
    return isinstance(error, CodeModeError) and not isinstance(error, (*CUT_OFF_ERRORS, CodeModeProtocolError))
