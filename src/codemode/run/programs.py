"""The text of a program before it runs: what can be none, what is known of it, whether it fits the tools."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..data.json_values import canonical_json, utf8_length, well_formed
from ..errors import CodeModeSourceTooLargeError
from ..options.checked_fields import WrongTypeError
from ..options.parts import ExecutionPolicy
from ..profile import Profile
from ..protocol.endings import syntax_error
from ..protocol.events import ProgramAccepted, ProgramRefused
from ..protocol.ledger import LedgerEntry
from ..protocol.rejections import read_fields, rejection
from ..source.cache import AnalysedProgram, ProgramCache
from ..source.checks import check_program, fence_problems
from ..source.rules import first_refused, is_analysable, violations
from ..tools.catalog import ToolCatalog
from ..tools.prepared import PreparedTool

if TYPE_CHECKING:
    from ..data.program_facts import Facts, ProgramProblem

_programs = ProgramCache()


def check_source(js: object, policy: ExecutionPolicy) -> str:
    """Return the text of a program, and refuse what can be none before a worker is taken.

    Raises `CodeModeSourceTooLargeError`, `CodeModeSyntaxError` for Markdown, `ValueError` for what is not text.
    """
    if not isinstance(js, str):
        raise WrongTypeError(f"a program must be a string, not {type(js).__name__}")
    size = utf8_length(js)
    if size > policy.max_source_bytes:
        raise CodeModeSourceTooLargeError(
            f"the program has {size} bytes; max_source_bytes is {policy.max_source_bytes}",
            details={"bytes": size, "max_bytes": policy.max_source_bytes},
        )
    if problems := fence_problems(js):
        raise syntax_error(problems)
    return well_formed(js)


class ProgramChecker:
    """Compares one program with the tools. ``known`` is what an earlier run of the same text has found out."""

    def __init__(
        self,
        source: str,
        profile: Profile,
        catalog: ToolCatalog[PreparedTool],
        given: Mapping[str, Any] | None,
        *,
        compares: bool,
    ) -> None:
        self._source = source
        self._profile = profile
        self._catalog = catalog
        self._given = given
        self._compares = compares
        self.known = _programs.get(source, profile.name)

    def check(self, js: str, facts: Facts | None) -> ProgramAccepted | ProgramRefused:
        """Return that the program may run, with all that it is given, or what is certainly wrong with it."""
        if self.known is None and facts is not None:
            _programs.put(self._source, AnalysedProgram(js, facts), self._profile.name)
        if self._profile.static_rules.is_in_force:
            if not is_analysable(facts):
                return ProgramAccepted(js, compile_only=True)
            refused = self._broken_rules(facts) or self._refused_name(facts)
        else:
            problems = () if facts is None or not self._compares else self._problems(facts)
            refused = ProgramRefused(problems) if problems else None
        if refused is not None:
            return refused
        added = self._catalog.given_for(facts)
        return ProgramAccepted(js, None if added is None else canonical_json({**(self._given or {}), **added}))

    def _broken_rules(self, facts: Facts | None) -> ProgramRefused | None:
        broken = violations(facts, self._profile.static_rules, self._source)
        return ProgramRefused(violations=tuple(broken)) if broken else None

    def _refused_name(self, facts: Facts | None) -> ProgramRefused | None:
        """Return what a program comes to that calls by name what it cannot: the error of that very call."""
        if not (self._compares and self._profile.static_rules.checks_tools):
            return None
        refused = first_refused(facts, self._catalog.__contains__)
        if refused is None:
            return None
        error = self._catalog.unknown_tool(refused.name)
        told = rejection(LedgerEntry(1, "tool", refused.name, None), error, self._profile.host_errors).fields_json
        if told is not None:
            error.details["call"] = {**read_fields(told), "details": {"ran": False}}
        error.details |= {"ran": False, "line": refused.line, "column": refused.column}
        return ProgramRefused(error=error)

    def _problems(self, facts: Facts) -> tuple[ProgramProblem, ...]:
        known = self.known
        if known is not None and known.fits(self._catalog):
            return ()
        problems = tuple(check_program(facts, self._catalog, self._input_schema))
        if known is not None and not problems:
            known.fitted = ref(self._catalog)
        return problems

    def _input_schema(self, name: str) -> Any:
        tool = self._catalog.get(name)
        return None if tool is None else tool.input_json_schema


def is_checked(js: str, _facts: Facts | None) -> ProgramAccepted:
    """Find nothing wrong with a program that was checked before it paused."""
    return ProgramAccepted(js)


def _forget_programs() -> None:  # in a forked child of the host: a thread that is not in it may hold the cache's lock
    global _programs  # noqa: PLW0603 - one cache for the process
    _programs = ProgramCache()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_programs)
