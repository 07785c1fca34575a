"""Over many generated programs with pauses anywhere: no call runs twice, none is skipped."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from codemode_langchain import CodeModeMiddleware
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt
from scripted_agent import APPROVE, Session, SqliteSession, content, model
from suite import rounds

PROGRAMS = rounds(4, 200)
SHARES = rounds(1, 8)


@dataclass
class Generated:
    """A program that makes every numbered call once, and what each call is to end in."""

    random: random.Random
    kinds: dict[int, str] = field(default_factory=dict[int, str])

    def source(self) -> str:
        lines = ["const out = {};", "const note = (n, result) => { out[n] = result; return result; };"]
        lines += [line for _ in range(self.random.randint(1, 4)) for line in self._group()]
        return "\n".join([*lines, "return out;"])

    def _group(self) -> Iterator[str]:
        made = [self._call() for _ in range(self.random.randint(1, 3))]
        shape = self.random.choice(["each", "all", "race", "chain", "guarded"])
        if shape == "each":
            yield from (f"await {call};" for call in made)
        elif shape == "all":
            yield f"await Promise.all([{', '.join(made)}]);"
        elif shape == "race":
            # The others of a race are awaited later: a call that nobody awaits is an error.
            yield f"{{ const some = [{', '.join(made)}]; await Promise.race(some); await Promise.all(some); }}"
        elif shape == "chain":
            chains = (f"(async () => {{ await null; await {call}; }})()" for call in made)
            yield f"await Promise.all([{', '.join(chains)}]);"
        else:
            yield (
                "try {"
                + " ".join(f"await {call};" for call in made)
                + "} catch { out.caught = true; } finally { out.f = 1; }"
            )

    def _call(self) -> str:
        n = len(self.kinds)
        kind = self.random.choice(["plain", "plain", "gated", "gated", "asking", "twice"])
        self.kinds[n] = kind
        return f"tools.{kind}({{ n: {n} }}).then((r) => note({n}, r), (e) => note({n}, 'refused'))"


def tools_of(done: Counter[Any]) -> list[Any]:
    @tool
    def plain(n: int) -> str:
        """Do it."""
        done[n] += 1
        return f"plain {n}"

    @tool
    def gated(n: int) -> str:
        """Do it when allowed."""
        done[n] += 1
        return f"gated {n}"

    @tool
    def asking(n: int) -> str:
        """Ask, then do it."""
        answer = interrupt({"asking": n})
        done[n] += 1
        return f"asking {answer}"

    @tool
    def twice(n: int) -> str:
        """Ask twice, then do it."""
        answers = [interrupt({"first": n}), interrupt({"second": n})]
        done[n] += 1
        return f"twice {' '.join(answers)}"

    return [plain, gated, asking, twice]


class People:
    """Answer at random, and remember what that means for each call."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self.expected: dict[int, tuple[int, str]] = {}

    def answers(self, waiting: list[Any]) -> dict[str, Any]:
        some = self._random.sample(waiting, self._random.randint(1, len(waiting)))
        return {one.id: self._answer(one.value) for one in some}

    def _answer(self, value: dict[str, Any]) -> Any:
        if "args" not in value:
            ((which, n),) = value.items()
            return f"{which}-{n}"
        n = value["args"]["n"]
        kind = self._random.choice(["approve", "approve", "reject", "respond"])
        self.expected[n] = {"approve": (1, f"gated {n}"), "reject": (0, "refused"), "respond": (0, f"said {n}")}[kind]
        return {"type": "respond", "message": f"said {n}"} if kind == "respond" else {**APPROVE, "type": kind}


def outcome_of(n: int, kind: str, people: People) -> tuple[int, str]:
    told = {
        "plain": (1, f"plain {n}"),
        "asking": (1, f"asking asking-{n}"),
        "twice": (1, f"twice first-{n} second-{n}"),
    }
    return told[kind] if kind in told else people.expected[n]


@pytest.mark.parametrize("share", range(SHARES))
def test_no_call_runs_twice_and_none_is_skipped(share: int, tmp_path: Any):
    for seed in range(share, PROGRAMS, SHARES):
        chance = random.Random(seed)
        generated, done, people = Generated(chance), Counter[Any](), People(chance)
        scripted, tools = model(generated.source()), tools_of(done)

        def build(saver: Any, scripted: Any = scripted, tools: Any = tools) -> Any:
            return create_agent(
                scripted, tools, middleware=[CodeModeMiddleware(approve={"gated": True})], checkpointer=saver
            )

        is_async = seed % 2 == 1
        session = (
            SqliteSession(build, is_async, path=str(tmp_path / f"{seed}.db"))
            if seed % 4 < 2
            else Session(build(InMemorySaver()), is_async)
        )
        output = session.start()
        for _ in range(60):
            if "__interrupt__" not in output:
                break
            waiting = output["__interrupt__"]
            assert len({one.id for one in waiting}) == len(waiting), seed
            output = session.answer(people.answers(waiting))
        result = json.loads(content(output))
        for n, kind in generated.kinds.items():
            assert (done[n], result[str(n)]) == outcome_of(n, kind, people), (seed, n, kind)
