"""Evaluators of pydantic-evals see the calls of programs: the README's, and some that must find fault."""

from __future__ import annotations

import json
from importlib.util import find_spec

from required import missing
from test_pydantic_ai_readme import BLOCKS
from warm_python import WarmPython

# From Python 3.12 on pydantic-evals asks for an event loop in a way that Python warns of.
QUIET = "import warnings; warnings.filterwarnings('ignore', 'There is no current event loop', DeprecationWarning)\n"
MORE = """
import json

from pydantic_ai import ModelRetry


def refuse(product: str) -> str:
    raise ModelRetry("no")


PROGRAM = "try { await tools.refuse({ product: 'nut' }); } catch { return await tools.stock({ product: 'nut' }); }"
agent = Agent(FunctionModel(scripted), tools=[stock, refuse], capabilities=[CodeMode(), Instrumentation()])
cases.evaluators = [
    HasMatchingSpan(query=inside_a_program, evaluation_name="another tool"),
    HasMatchingSpan(query={"name_contains": "refuse"}, evaluation_name="one that failed"),
    ToolCorrectness(expected_tools=["codeMode", "stock"], evaluation_name="those that did not fail"),
    ToolCorrectness(expected_tools=["codeMode"], evaluation_name="only the outer one"),
    ToolCorrectness(expected_tools=["codeMode", "stock", "stock"], evaluation_name="twice"),
]
(case,) = cases.evaluate_sync(answer, progress=False).cases
print(json.dumps({name: one.value for name, one in case.assertions.items()}))
"""


def test_evaluators_see_the_calls_of_programs(pydantic_ai_python: WarmPython) -> None:
    if find_spec("pydantic_evals") is None:
        missing("evals", "pydantic-evals is not installed: it takes its own version of pydantic-ai alone")
    (block,) = [one for one in BLOCKS if "pydantic_evals" in one]
    done = pydantic_ai_python.run("-c", QUIET + block + MORE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "another tool": False,
        "one that failed": True,
        "those that did not fail": True,
        "only the outer one": False,
        "twice": False,
    }
