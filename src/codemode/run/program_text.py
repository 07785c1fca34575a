"""What can be no program, and is refused before a worker is taken."""

from __future__ import annotations

from ..data.json_values import utf8_length
from ..errors import CodeModeSourceTooLargeError
from ..options.checked_fields import WrongTypeError
from ..options.parts import ExecutionPolicy
from ..protocol.endings import syntax_error
from ..source.checks import fence_problems


def check_source(js: object, policy: ExecutionPolicy) -> None:
    """Refuse a text that can be no program before a worker is taken.

    Raises `CodeModeSourceTooLargeError`, `CodeModeSyntaxError` for Markdown, `ValueError` for what is not text.
    """
    if not isinstance(js, str):
        raise WrongTypeError(f"a program must be a string, not {type(js).__name__}")
    size = utf8_length(js)
    if size > policy.max_source_bytes:
        raise CodeModeSourceTooLargeError(
            f"the program has {size} bytes; max_source_bytes is {policy.max_source_bytes}",
            details={"bytes": size, "max_bytes": policy.max_source_bytes},
        )
    if problems := fence_problems(js):
        raise syntax_error(problems)
