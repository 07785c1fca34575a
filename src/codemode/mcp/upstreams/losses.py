"""What is known of a request that has no answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Lost(Exception):  # noqa: N818 - what is raised of it has a name of its own
    """A request has no answer. ``reason`` says why, and may still hold secrets.

    ``never_arrived``: the server has certainly done nothing for it. ``is_late``: it had its time. ``is_over``: the
    connection is of no use any more. ``is_final``: it would fail again. ``needs_sign_in``: somebody must sign in.
    """

    def __init__(
        self,
        reason: str,
        *,
        never_arrived: bool = False,
        is_late: bool = False,
        is_over: bool = False,
        is_final: bool = False,
        needs_sign_in: bool = False,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.never_arrived = never_arrived
        self.is_late = is_late
        self.is_over = is_over
        self.is_final = is_final
        self.needs_sign_in = needs_sign_in
        self.details = dict(details or {})
