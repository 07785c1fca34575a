"""Generated JavaScript programs over three tools, for runs that must not differ however often they pause.

Every call is awaited in the end, and what a program returns shows all that it saw: values, errors, the order of its
`finally` blocks, the clock and the random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

from hypothesis import strategies as st

TOOLS = ("ask", "pause", "free")

_PRELUDE = """\
const start = Date.now(), log = [];
const one = async (name, n, fails) => tools[name]({ n, fails, at: Date.now() - start, random: Math.random() });
const end = (promise) => promise.then((value) => ["ok", value], (error) => ["failed", error.name, error.message]);
"""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a program: ``kind`` and its parts; a call has a tool, and whether it fails.

    Of programs that may rest there are "yield", "sleep", and "left", whose part is begun and not awaited.
    """

    kind: str
    parts: tuple[Node, ...] = ()
    tool: str = ""
    fails: bool = False


_CALLS = st.builds(Node, st.just("call"), st.just(()), st.sampled_from(TOOLS), st.booleans())


def _combined(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(children, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Node, st.sampled_from(["sequence", "all", "race", "any", "settled"]), several),
        st.builds(Node, st.sampled_from(["loop", "retry"]), st.tuples(children)),
        st.builds(Node, st.just("branch"), st.tuples(children, children, children)),
    )


nodes = st.recursive(_CALLS, _combined, max_leaves=8)


def program_of(node: Node) -> str:
    """Return the text of the program."""
    numbers = count(1)

    def text(part: Node) -> str:
        inner = [text(child) for child in part.parts]
        match part.kind:
            case "call":
                return f"one({part.tool!r}, {next(numbers)}, {str(part.fails).lower()})"
            case "yield":
                return '(text("yields"), yield_control().then(() => { text(log.length); return "yielded"; }))'
            case "sleep":
                return 'new Promise((done) => setTimeout(() => { text("rang"); done(Date.now() - start); }, 1))'
            case "left":
                seen = '.then((one) => { text("left"); json(one ?? null); }, () => text("lost"))'
                return f"({inner[0]}{seen}, Promise.resolve(0))"
            case "sequence":
                return _asynchronous("".join(f"out.push(await {child});" for child in inner))
            case "loop":
                return _asynchronous(f"for (let i = 0; i < 2; i++) out.push(await end({inner[0]}));")
            case "retry":
                body = f"try {{ out.push(await {inner[0]}); break; }}"
                caught = "catch (error) { out.push(error.message); }"
                return _asynchronous(f"for (let i = 0; i < 2; i++) {body} {caught} finally {{ log.push(i); }}")
            case "branch":
                test = f"JSON.stringify(await end({inner[0]})).length % 2"
                return _asynchronous(f"out.push({test} ? await {inner[1]} : await {inner[2]});")
            case _:
                method = {"all": "all", "race": "race", "any": "any", "settled": "allSettled"}[part.kind]
                started = f"const started = [{', '.join(inner)}];"
                first = f"out.push(await end(Promise.{method}(started)));"
                return _asynchronous(f"{started} {first} out.push(await Promise.all(started.map(end)));")

    finished = "return { value, log, at: Date.now() - start, random: Math.random() };"
    return f"{_PRELUDE}const value = await end({text(node)});\n{finished}"


def _asynchronous(body: str) -> str:
    return f"(async () => {{ const out = []; {body} return out; }})()"


def answer_of(value: Any) -> Any:
    """What a call with this input returns. Raises `ValueError` for one that is to fail."""
    if value["fails"]:
        raise ValueError("failed")
    return {"n": value["n"], "twice": [value["n"]] * 2}
