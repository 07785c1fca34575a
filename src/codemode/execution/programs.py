"""The text of a program before it runs: what can be none, what is known of it, whether it fits the tools."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..data.json_values import WrittenObject, canonical_object, utf8_length, well_formed
from ..data.narrowing import ENDS, list_or_empty, mapping_or_empty, place_rows, two_counts
from ..data.rich_values import using_rich_values
from ..data.sized_cache import SizedCache
from ..errors import CodeModeSourceTooLargeError
from ..options.checked_fields import WrongTypeError
from ..options.parts import ExecutionPolicy
from ..profile import Profile
from ..protocol.events import ProgramAccepted, ProgramRefused
from ..protocol.guest_errors import make_rejection, read_error_fields
from ..protocol.ledger import LedgerEntry
from ..records import record
from ..schemas.compiled import Conversion
from ..source.checks import check_free_names, check_program, check_results
from ..source.rules import first_refused, is_analysable, is_module, violations
from ..tools.catalog import ToolCatalog
from ..tools.prepared import PreparedTool
from ..trace.visible_text import one_line

if TYPE_CHECKING:
    from ..data.program_facts import Facts, ProgramProblem


@dataclass(slots=True)
class AnalysedProgram:
    """Plain JavaScript and what is known about it; facts None: nothing is known.

    ``fitted`` is how it was last compared with tools and found to fit.
    """

    js: str
    facts: Facts | None
    fitted: Fitted | None = None


@record
class Fitted:
    """That a program fits an unchanging set of tools under some rules. ``found`` is what else came of that, if kept."""

    tools: ref[Any]
    rules: object
    found: Any = None


def make_program_cache() -> SizedCache[bytes, AnalysedProgram]:
    """Return a cache of analysed programs by the SHA-256 of their source.

    Sizes are bytes of what the worker has said of a program, its text and facts: those it chose, and what they take in
    memory grows with them (requirement A35).
    """
    return SizedCache(4 << 20, most_entries=256, most_of_one=64 << 10)


def program_key(source: str, profile: str) -> bytes:
    """Return what names a program here: its source under a profile of this name."""
    return hashlib.sha256(f"{profile}\n{source}".encode("utf-8", "surrogatepass")).digest()


LARGE_SOURCE_CHARACTERS = 1 << 16
"""From here on even to look at a program's text may take long."""

_MAX_KEPT = 4096  # characters of what a program is given
_MAX_REPAIRS, _MAX_REPAIR = 8, 200
_NAME = re.compile(r"[^\W\d][\w$]{0,255}|\$[\w$]{0,255}")
_programs = make_program_cache()


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
    return js if js.isascii() else well_formed(js)


class ProgramChecker:
    """Compares one program with the tools. ``known`` is what an earlier run of the same text has found out.

    ``alters``: the host may give other outputs in place of those of the tools. ``fetches``: programs have `fetch`.
    ``keeps``: what the worker says of the
    text is believed for later runs too; one that has run a program before may lie, and others have this text as well.
    """

    def __init__(
        self,
        source: str,
        profile: Profile,
        catalog: ToolCatalog[PreparedTool],
        given: Mapping[str, Any] | None,
        *,
        compares: bool,
        alters: bool = False,
        fetches: bool = False,
        keeps: bool = True,
        is_rich: bool = False,
    ) -> None:
        self._source = source
        self._profile = profile
        self._catalog = catalog
        self._given = given
        self._compares = compares
        self._alters = alters
        self._has = (*profile.guest.globals, "fetch") if fetches else profile.guest.globals
        self._keeps = keeps
        self._is_rich = is_rich
        self._rules = (profile.static_rules, compares, alters, fetches, is_rich)
        self._facts: Facts | None = None
        self._doing: Awaitable[None] | None = None  # what the tools have to do before they are compared
        self._changes = False  # the tools by that
        self._key = program_key(source, profile.name)
        self.known = _programs.get(self._key)

    def accepted_before(self) -> ProgramAccepted | None:
        """Return what `check` found of this very text and these very tools; None where there is more to do."""
        fitted = self._fitted()
        if self.known is None or fitted is None or fitted.found is None or fitted.found[0] is not self._given:
            return None
        self._doing = self._catalog.preparation(self.known.facts, self._given)
        return fitted.found[1] if self._doing is None else None

    def check(self, js: str, facts: Facts | None, size: int = 0) -> ProgramAccepted | ProgramRefused:
        """Return that the program may run, with all that it is given, or what is certainly wrong with it.

        ``size`` is how many bytes the worker has said it in.
        """
        self._facts = facts
        if js == self._source:
            js = self._source  # nothing was stripped of it, and it is kept once
        fitted = self._fitted()
        if fitted is not None and fitted.found is not None and fitted.found[0] is self._given:
            return fitted.found[1]
        if self.known is None and facts is not None and self._keeps:
            _programs.put(self._key, AnalysedProgram(js, facts), size)
        if self._profile.guest.is_module and not is_module(facts):
            return ProgramRefused(is_unclear=True)
        if self._profile.static_rules.is_in_force and not is_analysable(facts):
            return ProgramAccepted(js, compile_only=True)
        refused = None if fitted is not None else self._refused(facts)
        if refused is not None:
            return refused
        accepted = ProgramAccepted(js, self._given_json(facts), reports_locations=self._catalog.may_ask)
        self._keep(accepted)
        return accepted

    @property
    def repairs(self) -> tuple[str, ...]:
        """What was done to the text so that it is the program that was meant, as the worker says."""
        facts = self._facts if self._facts is not None or self.known is None else self.known.facts
        if facts is None or "repairs" not in facts:
            return ()
        said = list_or_empty(mapping_or_empty(facts).get("repairs"))[:_MAX_REPAIRS]
        return tuple(one_line(note, _MAX_REPAIR) for note in said if isinstance(note, str))

    def preparation(self, facts: Facts | None) -> Awaitable[None] | None:
        """Return what the tools have to do before `check`, if there is anything."""
        doing = self._catalog.preparation(facts, self._given) if self._doing is None else self._doing
        self._changes = doing is not None
        return doing

    def _fitted(self) -> Fitted | None:
        fitted = None if self.known is None or self._changes else self.known.fitted
        if fitted is None or fitted.tools() is not self._catalog or fitted.rules != self._rules:
            return None
        return fitted

    def _keep(self, accepted: ProgramAccepted) -> None:
        """Remember that a known program fits; and what it is given, where the next run is given the very same."""
        if self.known is not None and not self._changes:
            is_kept = self._given is None or type(self._given) is WrittenObject
            found = (
                (self._given, accepted) if is_kept and len(accepted.invocation_data_json or "") <= _MAX_KEPT else None
            )
            self.known.fitted = Fitted(ref(self._catalog), self._rules, found)

    def _given_json(self, facts: Facts | None) -> str | None:
        given, added = self._given, self._catalog.given_for(facts)
        if added is not None:
            given = added if given is None else {**given, **added}
        said = mapping_or_empty(facts)
        if (last := two_counts(said.get("last"))) is not None:
            given = {**(given or {}), "last": last}
        if (ends := said.get("ends")) in ENDS:
            given = {**(given or {}), "ends": ends}
            if isinstance(name := said.get("last_name"), str) and _NAME.fullmatch(name):
                given["last_name"] = name
        if (moved := place_rows(said.get("places"))) is not None:
            given = {**(given or {}), "places": moved}
        return None if given is None else canonical_object(given)

    def _refused(self, facts: Facts | None) -> ProgramRefused | None:
        error = self._catalog.refusal(facts)
        if error is not None:
            return ProgramRefused(error=error)
        if self._profile.static_rules.is_in_force:
            return self._broken_rules(facts) or self._refused_name(facts) or self._absent_names(facts)
        if self._profile.guest.is_module:
            return None  # what it may import and call is for the tools to say
        problems = () if facts is None or not self._compares else self._problems(facts)
        return ProgramRefused(problems) if problems else None

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
        told = make_rejection(LedgerEntry(1, "tool", refused.name, None), error, self._profile.host_errors).fields_json
        if told is not None:
            error.details["call"] = {**read_error_fields(told), "details": {"ran": False}}
        error.details |= {"ran": False, "line": refused.line, "column": refused.column}
        return ProgramRefused(error=error)

    def _absent_names(self, facts: Facts | None) -> ProgramRefused | None:
        if not (self._compares and self._profile.static_rules.checks_tools):
            return None
        problems = self._free_names(facts)
        return ProgramRefused(tuple(problems)) if problems else None

    def _free_names(self, facts: Facts | None) -> list[ProgramProblem]:
        return check_free_names(facts, self._catalog, self._has, self._profile.static_rules.tool_call)

    def _problems(self, facts: Facts) -> tuple[ProgramProblem, ...]:
        with using_rich_values(self._is_rich):
            found = check_program(facts, self._catalog, self._input_schema, self._conversion)
        found += self._free_names(facts)
        if not self._alters:
            found += check_results(facts, self._catalog, self._output_schema)
        return tuple(sorted(found, key=lambda one: (one["line"], one["column"])))

    def _input_schema(self, name: str) -> Any:
        tool = self._catalog.get(name)
        return None if tool is None else tool.input_json_schema

    def _conversion(self, name: str) -> Conversion:
        tool = self._catalog.get(name)
        return "unknown" if tool is None else tool.conversion

    def _output_schema(self, name: str) -> Any:
        tool = self._catalog.get(name)
        return None if tool is None else tool.output_json_schema


def is_checked(js: str, _facts: Facts | None, _size: int) -> ProgramAccepted:
    """Find nothing wrong with a program that was checked before it paused."""
    return ProgramAccepted(js)
