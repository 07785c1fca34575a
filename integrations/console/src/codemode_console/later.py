"""Approvals that hold for later calls too: who keeps them says of which calls they can be. Knows nobody who does."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from codemode import Record, StoredRequest
from codemode.plugins import APPROVAL_KIND

from .errors import Problem
from .visits import Visit

_log = logging.getLogger("codemode.console")


class LaterAnswers(Protocol):
    """Keeps approvals that hold for longer than one call, and is asked about it where a program is approved."""

    def choices(self, record: Record, request: StoredRequest) -> Mapping[str, str]:
        """Return for how long an approval of a call may hold beside that call, in words by names; empty: no longer."""
        ...

    async def keep(
        self, record: Record, request: StoredRequest, choice: str, *, actor: str, address: str | None
    ) -> None:
        """Let one of these choices hold, and tell it in the audit. The call itself has been decided by ``actor``."""
        ...


def choices_of(later: LaterAnswers | None, record: Record, one: StoredRequest) -> Mapping[str, str]:
    """Return for how long an approval of a request may hold beside its call; nothing where nobody keeps that."""
    return {} if later is None or one.kind != APPROVAL_KIND else later.choices(record, one)


async def kept(
    later: LaterAnswers | None, record: Record, one: StoredRequest, choice: str, visit: Visit
) -> Problem | None:
    """Let a choice hold for what was decided, and return what is to be said where that cannot be."""
    if later is None or not choice:
        return None
    try:
        await later.keep(record, one, choice, actor=visit.user.name, address=visit.address)
    except Exception:  # noqa: BLE001 - the call was decided, whatever comes of the rest
        _log.warning("an approval that is to hold for later calls could not be kept", exc_info=True)
        return Problem(200, "It was approved for this call alone", "Later calls of the tool are asked about again.")
    return None
