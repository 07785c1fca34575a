"""What calls leave beside their values, kept in the checkpoint as each call ends, and which answers a part was given.

With a journal a part goes on in another process, where its finished calls do not run again. What they wrote into the
graph's state, and what those that wait have asked, is then found here.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from langchain_core.runnables import RunnableConfig

from .checkpoints import read_writes, read_writes_async, save_beside, save_beside_async

_KEY = "codemode"


@dataclass(kw_only=True)
class Left:
    """What one nested call left: commands for the graph's state, an artifact, and what it asks while it waits.

    ``counted`` is its tool, where something limits calls and it was made.
    """

    commands: list[Any] = field(default_factory=list[Any])
    artifact: Mapping[str, Any] | None = None
    asked: Mapping[str, Any] | None = None
    counted: str | None = None

    def __bool__(self) -> bool:
        return bool(self.commands or self.artifact is not None or self.asked is not None or self.counted)


class Leavings:
    """All that is kept for one outer call, by the numbers of its parts. Nothing is found before `recall`."""

    def __init__(self, config: RunnableConfig, outer_tool_call_id: str) -> None:
        self._config = config
        self._outer_id = outer_tool_call_id
        self._left: dict[int, dict[str, Left]] = {}
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._order = itertools.count()

    def recall(self) -> None:
        """Find what other processes, and earlier runs of this one, have kept."""
        self._read(read_writes(self._config))

    async def arecall(self) -> None:
        """Do what `recall` does without blocking."""
        self._read(await read_writes_async(self._config))

    def of(self, step: int) -> dict[str, Left]:
        """Return what calls of a part had left when it was recalled, by their ids, the oldest first."""
        return dict(self._left.get(step, {}))

    def answers(self, step: int) -> Mapping[str, Any] | None:
        """Return the answers that a part had been given, by the keys of their questions; None when it had not begun."""
        return self._answers.get(step)

    def keep(self, step: int, call_id: str, left: Left) -> None:
        """Keep what a call left."""
        save_beside(self._config, _name(), self._of_call(step, call_id, left))

    async def akeep(self, step: int, call_id: str, left: Left) -> None:
        """Do what `keep` does without blocking."""
        await save_beside_async(self._config, _name(), self._of_call(step, call_id, left))

    def begin(self, step: int, answers: Mapping[str, Any]) -> None:
        """Keep what a part is given, before it begins: it goes on with the same, whatever has been answered since."""
        if answers and step not in self._answers:
            save_beside(self._config, _name(), self._of_part(step, answers))

    async def abegin(self, step: int, answers: Mapping[str, Any]) -> None:
        """Do what `begin` does without blocking."""
        if answers and step not in self._answers:
            await save_beside_async(self._config, _name(), self._of_part(step, answers))

    def _of_call(self, step: int, call_id: str, left: Left) -> dict[str, Any]:
        plain = {"commands": left.commands, "artifact": left.artifact, "asked": left.asked, "counted": left.counted}
        return {_KEY: self._outer_id, "step": step, "order": next(self._order), "call": call_id, "left": plain}

    def _of_part(self, step: int, answers: Mapping[str, Any]) -> dict[str, Any]:
        return {_KEY: self._outer_id, "step": step, "order": next(self._order), "answers": dict(answers)}

    def _read(self, values: Iterable[Any]) -> None:
        mine: list[dict[str, Any]] = [one for one in values if _is_of(one, self._outer_id)]
        # A call that was made again has left something twice: the newest counts.
        for one in sorted(mine, key=lambda one: one["order"]):
            if "answers" in one:
                self._answers.setdefault(one["step"], one["answers"])
                continue
            left = self._left.setdefault(one["step"], {})
            left.pop(one["call"], None)
            left[one["call"]] = Left(**one["left"])
        self._order = itertools.count(1 + max((one["order"] for one in mine), default=-1))


def _is_of(value: Any, outer_tool_call_id: str) -> bool:
    return isinstance(value, dict) and cast("dict[str, Any]", value).get(_KEY) == outer_tool_call_id


def _name() -> str:
    # LangGraph keeps what was written under a name for the first time.
    return f"codemode-{secrets.token_hex(16)}"
