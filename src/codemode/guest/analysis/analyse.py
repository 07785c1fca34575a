"""Analyses program text: what can run, and the facts that the host checks.

Loaded by path in locked workers. Knows no tool and no policy; the host compares the facts with its tools.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tree_sitter import Tree

    Analyser = Callable[..., dict[str, Any]]

MAX_PROBLEMS = 64
JSON_MESSAGE = "this is JSON, and no program"
FACTS_WITH_OFFSETS = ("calls", "free", "modules", "loops", "named_calls", "reads")
MODULE_NAMES = (
    "clauses",
    "collecting",
    "edits",
    "facts",
    "free_names",
    "import_calls",
    "last_expression",
    "locale_calls",
    "module_analysis",
    "module_reparsing",
    "module_text",
    "modules",
    "named_calls",
    "names",
    "parse",
    "parse_ambiguities",
    "program_ending",
    "program_repair",
    "read_places",
    "reparsing",
    "result_reads",
    "source_positions",
    "strip_types",
)
# The kinds of program: the body of a function, the same with its names, an ES module, a saved program (with its names).
FUNCTION_BODY, FUNCTION_BODY_WITH_NAMES, MODULE, SAVED_PROGRAM = range(4)


class LocaleAndFreeNameChecks:
    """Extra walks through a program's tree, for texts that contain certain words."""

    def __init__(self, locale_calls: Any, free_names: Any) -> None:
        self.locale_calls, self.free_names = locale_calls, free_names


def load_analyser(site_paths: list[str], clock: Callable[[], float] | None = None) -> Analyser:
    """An analyser. ``site_paths`` hold the parser's packages. A warm-up uses nothing up.

    ``clock`` returns seconds; the default counts this thread's own processor time, because a busy machine may stop a
    worker for longer than an innocent text may take.

    Its result is one of ``{"js", "facts"}``, ``{"js", "facts": None}`` with the unchanged text (not parsed in time or
    not understood: no conclusion is allowed; with a ``"draft"`` where the text has types and parts that were not
    understood) and ``{"problems": [{"message", "line", "column"}]}``. No text makes it raise.
    The facts are those of `facts.FactCollector`, with ``"line"`` and ``"column"`` in place of ``"at"``, and with names
    also ``{"names": {name: [byte offset in the text]} or None (not certain), "loops": [{"kind", "line", "column"}],
    "named_calls": [{"name", "caught", "line", "column"}], "definitions": [name]}``.
    Where the last statement is an expression, ``"last": [start, end]`` are its UTF-16 offsets in ``"js"``.
    A module's facts are ``{"module": {"prefix", "take", "imports", "dynamic", "namespace_calls"}}``: the number of
    bytes in front of line 1 of ``"js"``, the global that they read, the imports and their names, the modules that
    `import()` loads, and the namespace members that must be functions. The result also has ``"asked"``, the text whose
    syntax the engine checks. If the value of the last statement is kept, ``"last": [offset, length]`` locates the code
    in front of it, in UTF-16 units behind the prefix.
    Where the value of the last statement is the result of a program that returns nothing, ``"ends"`` names its use
    (`program_ending`), and ``"repairs"`` lists the repairs of the text and those at its end.
    Attributes of the analyser: ``repair_program(text, deadline_ms, analysis)`` returns the intended program, where
    ``analysis`` finds that the text is no program (`program_repair`). ``restore_locations_and_add_repairs(analysis,
    repair, text)`` returns the places in the unrepaired text. ``chain_repairs(first, second)`` makes one repair of
    two.
    ``correct_error_location(line, text, deadline_ms, rows)`` corrects the place of an error (`read_places`).
    Lines and columns are 1-based; columns count UTF-16 units. Raises ImportError when the parser is missing.
    """
    package = __package__ or _register_package()
    modules_by_name: dict[str, Any] = {name: import_module(f"{package}.{name}") for name in MODULE_NAMES}
    parse = modules_by_name["parse"]
    parser = parse.load_parser(site_paths)
    symbols = parse.map_symbols_by_kind(parser)
    walk = modules_by_name["collecting"].WalkListenerFactory(symbols, modules_by_name)
    module_analysis = modules_by_name["module_analysis"].ModuleAnalyser(modules_by_name, symbols)
    read_places = modules_by_name["read_places"].ErrorLocationCorrector(symbols, modules_by_name)
    extra_checks = LocaleAndFreeNameChecks(
        modules_by_name["locale_calls"].LocaleCallCheck(symbols, modules_by_name),
        modules_by_name["free_names"].UndefinedNameFinder(symbols, modules_by_name),
    )
    now = clock or import_module("time").thread_time

    def make_deadline_parser(deadline_ms: int) -> Callable[[bytes], Tree | None]:
        return partial(parse.parse, parser, end=now() + deadline_ms / 1000, clock=now)

    def repair_program(text: str, deadline_ms: int, analysis: dict[str, Any]) -> Any:
        facts = analysis.get("facts")
        names_node = "module.exports" in text or "require.main" in text
        if facts is not None and not (facts.get("modules") or names_node or repair.may_need_repair(text)):
            return None  # most programs are what was meant
        return _repair_exports_or_text(modules_by_name, text, make_deadline_parser(deadline_ms), analysis)

    def correct_error_location(line: str, text: str, deadline_ms: int, rows: list[list[int]] | None = None) -> str:
        return read_places.correct_error_location(line, text, make_deadline_parser(deadline_ms), rows)

    def analyse(text: str, deadline_ms: int, surface: int = FUNCTION_BODY, is_warm_up: bool = False) -> dict[str, Any]:
        if modules_by_name["program_repair"].is_json_container(text):
            data = text.encode()
            at = len(data) - len(data.lstrip())
            return {
                "problems": modules_by_name["source_positions"].replace_offsets_with_locations(
                    data, [{"message": JSON_MESSAGE, "at": at}]
                )
            }
        parse_in_time = make_deadline_parser(deadline_ms)
        if surface == MODULE:
            return module_analysis.analyse(text, parse_in_time, is_warm_up=is_warm_up)
        return _analyse_function_body(
            modules_by_name,
            walk,
            extra_checks,
            text,
            parse_in_time,
            wants_names=surface in (FUNCTION_BODY_WITH_NAMES, SAVED_PROGRAM),
            is_saved_program=surface == SAVED_PROGRAM,
            is_warm_up=is_warm_up,
        )

    walk.prepare_first_listeners()
    module_analysis.prepare_first_listeners()
    repair = modules_by_name["program_repair"]
    attributes = {
        "correct_error_location": correct_error_location,
        "repair_program": repair_program,
        "restore_locations_and_add_repairs": repair.restore_locations_and_add_repairs,
        "chain_repairs": repair.chain_repairs,
    }
    vars(analyse).update(attributes)
    return analyse


def _analyse_function_body(
    modules: dict[str, Any],
    walk: Any,
    extra_checks: LocaleAndFreeNameChecks,
    text: str,
    parse: Callable[[bytes], Tree | None],
    *,
    wants_names: bool,
    is_saved_program: bool,
    is_warm_up: bool,
) -> dict[str, Any]:
    data, edits, placed = text.encode(), modules["edits"], modules["source_positions"].replace_offsets_with_locations
    tree = parse(data)
    if tree is None:
        return {"js": text, "facts": None}
    tree, arguments = modules["reparsing"].reparse_misread_types(data, tree, parse)
    listeners = walk.take_listeners(data, wants_names, is_warm_up)
    stripper = listeners.stripper
    stripper.blank_type_arguments(arguments)
    modules["parse"].walk_tree(tree, listeners.handlers)
    blanked = edits.blank_gaps_and_separate_statements(data, stripper.gaps)
    if tree.root_node.has_error and (at := modules["parse"].find_first_error(tree, data)) is not None:
        (place,) = placed(data, [{"at": at}])
        return _make_unclear_result(text, blanked, place, is_ambiguous=stripper.is_ambiguous)
    if problems_found := [*stripper.problems, *extra_checks.locale_calls.find_problems(tree, data)]:
        problems = [{"message": message, "at": at} for at, message in problems_found[:MAX_PROBLEMS]]
        return {"problems": placed(data, problems)}
    facts = listeners.build_facts(partial(edits.blank_gaps_and_comments_bytewise, data, stripper.gaps))
    facts["modules"] = [use for use in facts["modules"] if not stripper.is_blanked(use["at"])]
    if free_names := extra_checks.free_names.find_certainly_undefined_names(tree, data, has_tools=not wants_names):
        facts["free"] = free_names
    count_utf16_units = modules["source_positions"].count_utf16_units
    if is_saved_program and facts["names"] is not None:
        ending, problems_found = modules["program_ending"].find_saved_program_ending(tree, data, facts["names"])
        if problems_found:
            return {"problems": placed(data, [{"message": message, "at": at} for at, message in problems_found])}
    else:
        ending = modules["program_ending"].find_function_body_ending(tree, data)
    if ending is not None and ending.blank_span is not None:
        blanked = edits.blank_gaps_and_separate_statements(data, [*stripper.gaps, edits.BlankedGap(*ending.blank_span)])
    last = modules["last_expression"].find_last_expression(tree, data) if ending is None else ending.value_span
    if last is not None:
        facts["last"] = [count_utf16_units(data[:at]) for at in last]
    if ending is not None:
        facts["ends"] = ending.action
        if ending.note:
            facts["repairs"] = [ending.note]
        if ending.variable:
            facts |= {"last": [count_utf16_units(data)] * 2, "last_name": ending.variable}
    return {
        "js": blanked,
        "facts": facts | {kind: placed(data, facts[kind]) for kind in FACTS_WITH_OFFSETS if facts.get(kind)},
    }


def _repair_exports_or_text(
    modules: dict[str, Any], text: str, parse: Callable[[bytes], Tree | None], analysis: dict[str, Any]
) -> Any:
    repair, facts = modules["program_repair"], analysis.get("facts")
    if facts is not None and not repair.may_need_repair(text):
        exports = [use for use in facts.get("modules", ()) if use["kind"] == "export"]
        may_be_node = "module.exports" in text or "require.main" in text
        tree = parse(text.encode()) if exports or may_be_node else None
        if tree is None:
            return None
        last_at = modules["program_ending"].find_last_statement_offset(tree)
        last_at = len(text.encode()[:last_at].decode())
        if exports:
            return repair.remove_exports_and_return_default(text, exports, last_at)
        return repair.replace_node_exports(text, last_at, is_module="module" in facts)

    trees: dict[str, Tree | None] = {}

    def parse_cached(text: str) -> Tree | None:
        if text not in trees:
            tree = parse(text.encode())
            trees.clear()
            trees[text] = (
                None if tree is None or modules["parse"].find_first_error(tree, text.encode()) is not None else tree
            )
        return trees[text]

    def has_no_error(text: str) -> bool:
        return parse_cached(text) is not None

    def get_node_kind_at(text: str, at: int) -> str:
        tree, byte = parse_cached(text), len(text[:at].encode())
        node = None if tree is None else tree.root_node.descendant_for_byte_range(byte, byte)
        return "" if node is None else node.type

    return repair.repair_program(text, has_no_error, get_node_kind_at)


def _make_unclear_result(text: str, blanked: str, place: dict[str, Any], *, is_ambiguous: bool) -> dict[str, Any]:
    """Return text that was not understood unchanged: the engine decides whether it is JavaScript."""
    if blanked == text:
        return {"js": text, "facts": None}
    return {"js": text, "facts": None, "draft": {"js": blanked, "is_ambiguous": is_ambiguous, **place}}


def _register_package() -> str:
    """Makes this file's folder importable when it was loaded by path, outside any package."""
    name = "codemode_source"
    package = type(sys)(name)
    package.__path__ = [__file__.rpartition("/")[0] or "."]
    sys.modules[name] = package
    return name
