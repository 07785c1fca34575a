"""The errors of one invocation's calls, as long as it runs. Knows no calls.

A traceback holds frames, and these the values that a call was given and gave: decoded, some thirty times their text. A
program may catch hundreds of errors.
"""

from __future__ import annotations

from collections import deque

from ..trace.failures import members_of

_WITH_TRACEBACKS = 4


class KeptErrors:
    """Lets go of the tracebacks of all errors but the last few. By then they have been logged, or told to a hook."""

    def __init__(self) -> None:
        self._last: deque[BaseException] = deque()

    def add(self, error: BaseException) -> None:
        """Take one more."""
        self._last.append(error)
        if len(self._last) > _WITH_TRACEBACKS:
            forget_tracebacks(self._last.popleft())


def forget_tracebacks(error: BaseException) -> None:
    """Take the tracebacks off an error, its causes, and what they are groups of."""
    pending, seen = [error], set[int]()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = None
        behind = (one.__cause__, one.__context__, *members_of(one))
        pending += [each for each in behind if each is not None]
