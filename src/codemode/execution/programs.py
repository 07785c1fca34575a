"""Check the text of a program before it runs, against limits, rules and tools."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..data.json_values import CachedJsonObject, count_utf8_bytes, encode_canonical_object, replace_lone_surrogates
from ..data.narrowing import ENDS, list_or_empty, location_rows_or_none, mapping_or_empty, two_counts_or_none
from ..data.rich_values import using_rich_values
from ..data.sized_cache import SizedCache
from ..errors import CodeModeSourceTooLargeError
from ..options.checked_fields import WrongTypeError
from ..options.parts import ExecutionPolicy
from ..profile import SurfaceSettings
from ..protocol.events import ProgramAccepted, ProgramRefused
from ..protocol.guest_errors import make_rejection, read_error_fields
from ..protocol.ledger import LedgerEntry
from ..records import record
from ..schemas.compiled import Conversion
from ..source.checks import find_fixable_undefined_name_problems, find_program_problems, find_result_field_problems
from ..source.rules import find_uncaught_call_of_missing_tool, find_violations, has_analysis_facts, has_module_facts
from ..tools.catalog import ToolCatalog
from ..tools.prepared import PreparedTool
from ..trace.visible_text import clip_to_visible_line

if TYPE_CHECKING:
    from ..data.program_facts import ProgramFacts, ProgramProblem


@dataclass(slots=True)
class AnalysedProgram:
    """A program as plain JavaScript and its facts; None if nothing is known.

    ``last_check`` is the last successful check against tools.
    """

    js: str
    facts: ProgramFacts | None
    last_check: PassedProgramCheck | None = None


@record
class PassedProgramCheck:
    """Records that a program passed the checks for one set of tools and rules; ``result`` may be reused."""

    tools: ref[Any]
    rules: object
    result: Any = None


def make_program_cache() -> SizedCache[bytes, AnalysedProgram]:
    """Return a cache of analysed programs by the SHA-256 of profile and source.

    Sizes are bytes of the worker's answer, text and facts, to which memory use is proportional (requirement A35).
    """
    return SizedCache(4 << 20, max_entries=256, max_entry_size=64 << 10)


LARGE_SOURCE_CHARACTERS = 1 << 16
"""From this length on, even a scan of a program's text may take long."""

_MAX_CACHED_CHARACTERS = 4096  # characters of invocation data
_MAX_REPAIRS, _MAX_REPAIR_CHARACTERS = 8, 200
_NAME = re.compile(r"[^\W\d][\w$]{0,255}|\$[\w$]{0,255}")
_programs = make_program_cache()


def validate_source(js: object, policy: ExecutionPolicy) -> str:
    """Return the text of a program, or refuse it before a worker is taken.

    Raises `CodeModeSourceTooLargeError`, `CodeModeSyntaxError` for Markdown, `ValueError` if it is not text.
    """
    if not isinstance(js, str):
        raise WrongTypeError(f"a program must be a string, not {type(js).__name__}")
    size = count_utf8_bytes(js)
    if size > policy.max_source_bytes:
        raise CodeModeSourceTooLargeError(
            f"the program has {size} bytes; max_source_bytes is {policy.max_source_bytes}",
            details={"bytes": size, "max_bytes": policy.max_source_bytes},
        )
    return js if js.isascii() else replace_lone_surrogates(js)


class ProgramChecker:
    """Checks one program against the tools. ``known`` is the analysis of an earlier run of the same text.

    ``replaces_outputs``: hooks may replace outputs of tools. ``has_fetch``: programs have `fetch`. ``is_trusted``:
    the worker's analysis may be cached; a worker that ran a program before may lie about a text that others use
    too.
    """

    def __init__(
        self,
        source: str,
        profile: SurfaceSettings,
        catalog: ToolCatalog[PreparedTool],
        invocation_data: Mapping[str, Any] | None,
        *,
        checks_tools: bool,
        replaces_outputs: bool = False,
        has_fetch: bool = False,
        is_trusted: bool = True,
        has_rich_values: bool = False,
    ) -> None:
        self._source = source
        self._profile = profile
        self._catalog = catalog
        self._invocation_data = invocation_data
        self._checks_tools = checks_tools
        self._replaces_outputs = replaces_outputs
        self._globals = (*profile.guest.globals, "fetch") if has_fetch else profile.guest.globals
        self._is_trusted = is_trusted
        self._has_rich_values = has_rich_values
        self._rules = (profile.static_rules, checks_tools, replaces_outputs, has_fetch, has_rich_values)
        self._facts: ProgramFacts | None = None
        self._is_prepared = False
        self._preparation: Awaitable[None] | None = None  # work of the tools before the check, which changes them
        self._key = hashlib.sha256(f"{profile.name}\n{source}".encode("utf-8", "surrogatepass")).digest()
        self.known = _programs.get(self._key)

    def prepare_and_find_earlier_acceptance(self) -> ProgramAccepted | None:
        """Return the result of an earlier check of the same text and tools; None if there is more to do."""
        if self.known is None or self.prepare_tools(self.known.facts) is not None:
            return None
        last_check = self._find_last_check()
        if last_check is None or last_check.result is None or last_check.result[0] is not self._invocation_data:
            return None
        return last_check.result[1]

    def check(self, js: str, facts: ProgramFacts | None, size: int = 0) -> ProgramAccepted | ProgramRefused:
        """Return that the program may run with its invocation data, or its certain problems.

        ``size`` is the bytes of the worker's answer.
        """
        self._facts = facts
        if js == self._source:
            js = self._source  # unchanged by the analysis, and stored once
        last_check = self._find_last_check()
        if last_check is not None and last_check.result is not None and last_check.result[0] is self._invocation_data:
            return last_check.result[1]
        if self.known is None and facts is not None and self._is_trusted:
            _programs.put(self._key, AnalysedProgram(js, facts), size)
        if self._profile.guest.wrapper == "module" and not has_module_facts(facts):
            return ProgramRefused(is_unclear=True)
        if self._profile.static_rules.refuses_unanalysed and not has_analysis_facts(facts):
            return ProgramAccepted(js, compile_only=True)
        refusal = None if last_check is not None else self._check_against_tools(facts)
        if refusal is not None:
            return refusal
        accepted = ProgramAccepted(
            js, self._encode_invocation_data(facts), reports_locations=self._catalog.may_wait_for_person
        )
        self._remember_check(accepted)
        return accepted

    @property
    def repairs(self) -> tuple[str, ...]:
        """Repairs of the text that the worker reports."""
        facts = self._facts if self._facts is not None or self.known is None else self.known.facts
        if facts is None or "repairs" not in facts:
            return ()
        notes = list_or_empty(mapping_or_empty(facts).get("repairs"))[:_MAX_REPAIRS]
        return tuple(clip_to_visible_line(note, _MAX_REPAIR_CHARACTERS) for note in notes if isinstance(note, str))

    def prepare_tools(self, facts: ProgramFacts | None) -> Awaitable[None] | None:
        """Return the work of the tools before `check`, if any."""
        if not self._is_prepared:
            self._is_prepared = True
            self._preparation = self._catalog.prepare_for_program(facts, self._invocation_data)
        return self._preparation

    def _find_last_check(self) -> PassedProgramCheck | None:
        last_check = None if self.known is None or self._preparation is not None else self.known.last_check
        if last_check is None or last_check.rules != self._rules:
            return None
        shared_tools = self._catalog.shared_tools
        return last_check if last_check.tools() is (self._catalog if shared_tools is None else shared_tools) else None

    def _remember_check(self, accepted: ProgramAccepted) -> None:
        """Remember the check of a known program, with its result if invocation data are reused."""
        if self.known is not None and self._preparation is None:
            is_reusable = self._invocation_data is None or type(self._invocation_data) is CachedJsonObject
            result = (
                (self._invocation_data, accepted)
                if is_reusable and len(accepted.invocation_data_json or "") <= _MAX_CACHED_CHARACTERS
                else None
            )
            shared_tools = self._catalog.shared_tools
            tools = self._catalog if shared_tools is None else shared_tools
            self.known.last_check = PassedProgramCheck(ref(tools), self._rules, result)

    def _encode_invocation_data(self, facts: ProgramFacts | None) -> str | None:
        data, catalog_data = self._invocation_data, self._catalog.build_invocation_data(facts)
        if catalog_data is not None:
            data = catalog_data if data is None else {**data, **catalog_data}
        recorded_facts = mapping_or_empty(facts)
        if (last_statement := two_counts_or_none(recorded_facts.get("last"))) is not None:
            data = {**(data or {}), "last": last_statement}
        if (ends := recorded_facts.get("ends")) in ENDS:
            data = {**(data or {}), "ends": ends}
            if isinstance(name := recorded_facts.get("last_name"), str) and _NAME.fullmatch(name):
                data["last_name"] = name
        if (moved_rows := location_rows_or_none(recorded_facts.get("places"))) is not None:
            data = {**(data or {}), "places": moved_rows}
        return None if data is None else encode_canonical_object(data)

    def _check_against_tools(self, facts: ProgramFacts | None) -> ProgramRefused | None:
        error = self._catalog.find_program_error(facts)
        if error is not None:
            return ProgramRefused(error=error)
        if self._profile.static_rules.refuses_unanalysed:
            return self._check_rules(facts) or self._check_called_names(facts) or self._check_free_names(facts)
        if self._profile.guest.wrapper == "module":
            return None  # the tools check its imports and calls
        problems = () if facts is None or not self._checks_tools else self._find_problems(facts)
        return ProgramRefused(problems) if problems else None

    def _check_rules(self, facts: ProgramFacts | None) -> ProgramRefused | None:
        violation_list = find_violations(facts, self._profile.static_rules, self._source)
        return ProgramRefused(violations=tuple(violation_list)) if violation_list else None

    def _check_called_names(self, facts: ProgramFacts | None) -> ProgramRefused | None:
        """Return the error of the first call to a name that is not available."""
        if not (self._checks_tools and self._profile.static_rules.checks_tools):
            return None
        call = find_uncaught_call_of_missing_tool(facts, self._catalog.__contains__)
        if call is None:
            return None
        error = self._catalog.tool_not_found_error(call.name)
        fields_json = make_rejection(
            LedgerEntry(1, "tool", call.name, None), error, self._profile.host_errors
        ).fields_json
        if fields_json is not None:
            error.details["call"] = {**read_error_fields(fields_json), "details": {"ran": False}}
        error.details |= {"ran": False, "line": call.line, "column": call.column}
        return ProgramRefused(error=error)

    def _check_free_names(self, facts: ProgramFacts | None) -> ProgramRefused | None:
        if not (self._checks_tools and self._profile.static_rules.checks_tools):
            return None
        problems = self._find_free_name_problems(facts)
        return ProgramRefused(tuple(problems)) if problems else None

    def _find_free_name_problems(self, facts: ProgramFacts | None) -> list[ProgramProblem]:
        return find_fixable_undefined_name_problems(
            facts, self._catalog, self._globals, self._profile.static_rules.tool_call
        )

    def _find_problems(self, facts: ProgramFacts) -> tuple[ProgramProblem, ...]:
        with using_rich_values(self._has_rich_values):
            problems = find_program_problems(facts, self._catalog, self._get_input_schema, self._get_conversion)
        problems += self._find_free_name_problems(facts)
        if not self._replaces_outputs:
            problems += find_result_field_problems(facts, self._catalog, self._get_output_schema)
        return tuple(sorted(problems, key=lambda problem: (problem["line"], problem["column"])))

    def _get_input_schema(self, name: str) -> Any:
        tool = self._catalog.get(name)
        return None if tool is None else tool.input_json_schema

    def _get_conversion(self, name: str) -> Conversion:
        tool = self._catalog.get(name)
        return "unknown" if tool is None else tool.conversion

    def _get_output_schema(self, name: str) -> Any:
        tool = self._catalog.get(name)
        return None if tool is None else tool.output_json_schema


def accept_checked_program(js: str, _facts: ProgramFacts | None, _size: int) -> ProgramAccepted:
    """Accept a program that was checked before it paused."""
    return ProgramAccepted(js)
