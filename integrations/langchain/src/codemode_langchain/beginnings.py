"""Notes in the checkpoint that a part of a program calls tools from here on: whoever comes back knows that it began.

A part whose process died in the middle has no result there. Which of its calls had happened nobody knows, unless they
are in a journal.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from codemode.plugins import forkable_lock

from .checkpoints import checkpoint_being_saved, save_now, save_now_async
from .graph import binding_in_node, start_task

_NAME = "begun"
_JOURNALED = "journal:"


class Beginning:
    """The beginning of one part of a program, noted before its first call and no later than that is made.

    ``is_journaled``: the journal knows what became of its calls, if whoever began it had one too.
    """

    def __init__(self, config: RunnableConfig, number: int, *, is_journaled: bool = False) -> None:
        self._config = config
        self._number = number
        self._is_journaled = is_journaled
        self._own = f"{_JOURNALED if is_journaled else ''}{secrets.token_hex(8)}"
        self._lock = forkable_lock()
        self._is_kept = binding_in_node(config) is not None
        self._noted: bool | None = None
        self._work: asyncio.Task[bool] | None = None

    @property
    def is_noted(self) -> bool:
        """True once it was looked for here."""
        return self._noted is not None or self._work is not None

    def is_first(self) -> bool:
        """Note it. False when somebody has begun this part before, and nobody knows how far that one came."""
        if not self._is_kept:
            return True
        with self._lock:
            if self._noted is None:
                self._noted = self._is_known(self._start(self._note).result())
            return self._noted

    async def ais_first(self) -> bool:
        """Do what `is_first` does without blocking."""
        if not self._is_kept:
            return True
        if self._work is None:
            self._work = asyncio.create_task(self._anoted())
        return await asyncio.shield(self._work)

    async def _anoted(self) -> bool:
        return self._is_known(await self._start(self._anote))

    def _is_known(self, noted: str) -> bool:
        return noted == self._own or (self._is_journaled and noted.startswith(_JOURNALED))

    def _start(self, function: Callable[[], Any]) -> Any:
        return start_task(self._config, self._number, function, _NAME)

    # LangGraph writes in the background, and the first call may be the last thing that this process does.

    def _note(self) -> str:
        if (writing := checkpoint_being_saved(self._config)) is not None:
            wait([writing])
        save_now(ensure_config(), self._own)
        return self._own

    async def _anote(self) -> str:
        if (writing := checkpoint_being_saved(self._config)) is not None:
            await asyncio.wait([writing])
        await save_now_async(ensure_config(), self._own)
        return self._own
