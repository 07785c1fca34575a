"""W11: W2 through the plugins for agent frameworks, minus what the framework takes for one direct tool call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .frameworks import OneCall, langchain_agent, pydantic_ai_agent
from .latency import SPARE_READY_SECONDS
from .measure import Samples, timed
from .programs import by_name
from .table import Row
from .workloads import noop


def _pydantic_ai() -> tuple[OneCall, OneCall]:
    from codemode_pydantic_ai import CodeMode

    return pydantic_ai_agent([noop], [CodeMode()]), pydantic_ai_agent([noop])


def _langchain() -> tuple[OneCall, OneCall]:
    from codemode_langchain import CodeModeMiddleware
    from langchain_core.tools import tool

    made: Any = tool(noop)
    return langchain_agent([made], [CodeModeMiddleware()]), langchain_agent([made])


_PLUGINS: dict[str, Callable[[], tuple[OneCall, OneCall]]] = {"pydantic-ai": _pydantic_ai, "LangChain": _langchain}


@dataclass(slots=True)
class Plugin:
    """One plugin: an agent with it and one without; ``missing`` is why it is not measured."""

    framework: str
    with_code_mode: OneCall | None = None
    plain: OneCall | None = None
    missing: str = ""
    ours: Samples = field(default_factory=Samples)
    direct: Samples = field(default_factory=Samples)

    async def round(self, runs: int) -> None:
        """Measure the program and the direct call once more."""
        if self.with_code_mode is None or self.plain is None:
            return
        program, direct = self.with_code_mode, self.plain
        text = {"js": by_name("W2").js}
        self.ours.add(await timed(lambda: program("codeMode", text), runs, SPARE_READY_SECONDS))
        self.direct.add(await timed(lambda: direct("noop", {"n": 1}), runs, SPARE_READY_SECONDS))

    def row(self, floor_ms: float | None) -> Row:
        """Return what the program took beyond the direct call; ``floor_ms`` is that of W2."""
        what = f"W2 through {self.framework}"
        if self.missing:
            return Row("W11", what, note=self.missing)
        ours, direct = self.ours.median, self.direct.median
        note = f"{ours:.2f} ms of an agent's run, minus {direct:.2f} ms of one with a direct tool call"
        row = Row(
            "W11", what, ours=ours - direct, floor=floor_ms, tail=self.ours.tail, spread=self.ours.spread, note=note
        )
        row.ratio = row.ours / floor_ms if row.ours and floor_ms else None
        return row


async def plugins() -> list[Plugin]:
    """Return every plugin, warm, checked to give what it should; one that cannot be used says why."""
    return [await _plugin(framework, make) for framework, make in _PLUGINS.items()]


async def _plugin(framework: str, make: Callable[[], tuple[OneCall, OneCall]]) -> Plugin:
    try:
        with_code_mode, plain = make()
    except ImportError as error:
        return Plugin(framework, missing=f"not measured: {error}")
    program = by_name("W2")
    for _ in range(3):
        told = await with_code_mode("codeMode", {"js": program.js})
        assert str(told) == str(program.expected), told
        assert str(await plain("noop", {"n": 1})) == "1"
    return Plugin(framework, with_code_mode, plain)
