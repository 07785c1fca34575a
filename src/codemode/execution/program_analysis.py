"""Analyse a program to save in a worker, without running it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..data.narrowing import ENDS, mapping_or_empty, two_counts_or_none
from ..errors import CodeModeIllegalAccessError
from ..options.parts import CodeModeOptions
from ..profile import GuestSettings, StaticRules, SurfaceSettings
from ..protocol.ending_errors import make_syntax_error
from ..protocol.events import ProgramAccepted, ProgramRefused
from ..source.checks import find_program_problems
from ..source.rules import has_analysis_facts
from ..tools.catalog import Catalog
from ..tools.prepared import PreparedTool
from ..workers.pool import WorkerPool, get_pool_or_default
from .call_context import OuterCallSettings
from .execution import Execution

if TYPE_CHECKING:
    from ..data.program_facts import ProgramFacts
    from .programs import ProgramChecker

_PROFILE = SurfaceSettings(
    name="savedProgram",
    outer_tool="save",
    guest=GuestSettings(wrapper="sloppy", globals=()),
    request_kinds=frozenset(),
    takes_input=True,
    static_rules=StaticRules(runs_unanalysed=False, analysis_ms=1000),
)
_IMPORT = re.compile(
    r"""^[ \t]*import\s+(?:(?P<type>type\s+[^;"']{0,1000}?)|(?P<names>\{[^{}]*\})"""
    r"""|\*\s*as\s+(?P<all>[\w$]+)|(?P<default>[A-Za-z_$][\w$]*))\s*"""
    r"""from\s*(?P<quoted>"[^"\n]+"|'[^'\n]+')[ \t]*;?""",
    re.MULTILINE,
)
_SAVED_MODULES = ('"@codemode/saved"', "'@codemode/saved'")
_CALL_WITH_INPUT = '((value) => typeof value === "function" ? value(input) : value)'
_STORED_FACTS = ("names", "loops", "modules", "definitions")


class _AnalysisExecution(Execution):
    """Analyses a text and compiles it in the engine."""

    result: tuple[str, ProgramFacts | None] | None = None

    def _make_program_checker(self, source: str, lease: Any) -> Any:  # noqa: ARG002 - as `Execution` has it
        return _AnalysisRecorder(self)


class _AnalysisRecorder:
    """Records the worker's analysis in place of a `ProgramChecker`."""

    known = None
    repairs = ()

    def __init__(self, analysis: _AnalysisExecution) -> None:
        self._analysis = analysis

    def prepare_and_find_earlier_acceptance(self) -> None:
        return None

    def prepare_tools(self, facts: ProgramFacts | None) -> None:
        del facts

    def check(self, js: str, facts: ProgramFacts | None, size: int = 0) -> ProgramAccepted | ProgramRefused:
        del size
        self._analysis.result = js, facts
        problems = find_program_problems({"modules": mapping_or_empty(facts).get("modules")}, (), lambda _: None)
        return ProgramRefused(tuple(problems)) if problems else ProgramAccepted(js, compile_only=True)


if TYPE_CHECKING:
    _: type[ProgramChecker]


async def analyse_and_rewrite_program(program: str, pool: WorkerPool | None = None) -> tuple[str, dict[str, Any]]:
    """Return the JavaScript of a saved program, as the body of an async function, and its facts for rules.

    A program that is one function, or ends with one, returns its result for ``input``. Raises `CodeModeSyntaxError`
    and the other errors of a program that cannot start.
    """
    options = CodeModeOptions()
    workers = get_pool_or_default(pool)
    await workers.start_in_thread()
    catalog: Catalog[PreparedTool] = Catalog({})
    analysis = _AnalysisExecution(_PROFILE, catalog, options, OuterCallSettings(), workers)
    outcome = await analysis.start(replace_imports(program))
    # A program that was only compiled ends as one that cannot be analysed.
    if outcome.error is not None and not isinstance(outcome.error, CodeModeIllegalAccessError):
        raise outcome.error
    if analysis.result is None or not has_analysis_facts(analysis.result[1]):
        message = "the program cannot be parsed: write plain JavaScript or TypeScript"
        raise make_syntax_error([{"message": message, "line": 1, "column": 1}])
    js, facts = analysis.result
    recorded_facts: Any = facts
    return _add_return(js, mapping_or_empty(recorded_facts)), {
        name: recorded_facts[name] for name in _STORED_FACTS if name in recorded_facts
    }


def replace_imports(program: str) -> str:
    """Replace the static imports of a program by reads of `saved` or of `codemode.run` modules."""
    return _IMPORT.sub(_replace_import, program)


def _replace_import(match: re.Match[str]) -> str:
    padding = "\n" * match[0].count("\n")
    if match["type"] is not None:
        return padding
    is_saved = match["quoted"] in _SAVED_MODULES
    if match["default"] is not None and not is_saved:
        return match[0]  # server modules have no default export: the analysis reports it
    names = match["all"] or match["default"] or re.sub(r"([\w$]+)\s+as\s+([\w$]+)", r"\1: \2", match["names"])
    padding = "\n" * (match[0].count("\n") - names.count("\n"))
    if is_saved:
        return padding if names == "saved" else f"const {names} = saved;{padding}"
    return f"const {names} = await $import({match['quoted']});{padding}"


def _add_return(js: str, facts: Mapping[Any, Any]) -> str:
    """Return a program that returns what the worker found as its result, a function's result for ``input``."""
    last_statement, name = two_counts_or_none(facts.get("last")), facts.get("last_name")
    if last_statement is None or facts.get("ends") not in ENDS:
        return js
    if isinstance(name, str):
        return f"{js}\nreturn await {_CALL_WITH_INPUT}({name});"
    utf16 = js.encode("utf-16-le", "surrogatepass")
    before, expression, after = (
        part.decode("utf-16-le", "surrogatepass")
        for part in (
            utf16[: 2 * last_statement[0]],
            utf16[2 * last_statement[0] : 2 * last_statement[1]],
            utf16[2 * last_statement[1] :],
        )
    )
    return f"{before}return await {_CALL_WITH_INPUT}(await ({expression})){after}"
