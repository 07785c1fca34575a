"""Turns program text into what can run and what the host may check. Loaded by path in locked workers.

Knows no tool and no policy; the host compares the facts with its tools.
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
JSON = "this is JSON, and no program"
PLACED = ("calls", "free", "modules", "loops", "named_calls", "reads")
PARTS = (
    "clauses",
    "collecting",
    "doubts",
    "edits",
    "facts",
    "free_names",
    "import_calls",
    "last_expression",
    "locale_calls",
    "module_analysis",
    "module_rereading",
    "module_text",
    "modules",
    "named_calls",
    "names",
    "parse",
    "places",
    "program_ending",
    "program_repair",
    "read_places",
    "rereading",
    "result_reads",
    "strip_types",
)
# What a program is: the body of a function, the same with its names, an ES module.
PLAIN, WITH_NAMES, MODULE = range(3)


class Looks:
    """What looks through the tree of a program once more, where its text has certain words."""

    def __init__(self, locale_calls: Any, free_names: Any) -> None:
        self.locale_calls, self.free_names = locale_calls, free_names


def load(site_paths: list[str], clock: Callable[[], float] | None = None) -> Analyser:
    """An analyser. ``site_paths`` hold the parser's packages. A rehearsal uses nothing up.

    ``clock`` gives seconds: of this thread's own computing, unless it is given. While others have the processor a busy
    machine may let a worker stand still for longer than an innocent text may take.

    Its result is one of ``{"js", "facts"}``, ``{"js", "facts": None}`` with the text as it came (not parsed in time or
    not understood: nothing may be concluded; with a ``"draft"`` where types stand beside what was not understood) and
    ``{"problems": [{"message", "line", "column"}]}``. No text makes it raise.
    The facts are those of `facts.FactCollector`, with ``"line"`` and ``"column"`` in place of ``"at"``, and with names
    also ``{"names": {name: [byte offset in the text]} or None (not certain), "loops": [{"kind", "line", "column"}],
    "named_calls": [{"name", "caught", "line", "column"}], "definitions": [name]}``.
    Where the last statement is an expression, ``"last": [start, end]`` are its UTF-16 offsets in ``"js"``.
    Of a module they are ``{"module": {"prefix", "take", "imports", "dynamic", "namespace_calls"}}``: how many bytes
    stand in front of line 1 of ``"js"``, the global that these read, what is imported under which names, what
    `import()` loads, and which members of a namespace must be functions; beside them ``"asked"``, the text of which the
    engine says whether it is a module. Of one that keeps the value of its last statement ``"last": [offset, length]``
    says what was put before that, in UTF-16 units behind the prefix.
    Where the value of the last statement is the result of a program that returns nothing, ``"ends"`` says what to do
    with it (`program_ending`), and ``"repairs"`` lists what was done to the text or is done at the end.
    Its attribute ``repaired(text, deadline_ms, found)`` returns the program that was meant, where ``found`` says that
    the text is none (`program_repair`), and ``moved_back(found, repair, text)`` puts what was found of that in the
    places of the text; ``then(repair, repair)`` makes one of two. Its attribute ``corrected(line, text, deadline_ms,
    rows)`` is that of `read_places.ReadPlaces`.
    Lines and columns are 1-based; columns count UTF-16 units. Raises ImportError when the parser is missing.
    """
    house = __package__ or _house()
    parts: dict[str, Any] = {name: import_module(f"{house}.{name}") for name in PARTS}
    parse = parts["parse"]
    parser = parse.load_parser(site_paths)
    symbols = parse.symbols_by_kind(parser)
    walk = parts["collecting"].FactWalk(symbols, parts)
    modules = parts["module_analysis"].ModuleAnalysis(parts, symbols)
    read_places = parts["read_places"].ReadPlaces(symbols, parts)
    looks = Looks(parts["locale_calls"].LocaleCalls(symbols, parts), parts["free_names"].FreeNames(symbols, parts))
    now = clock or import_module("time").thread_time

    def within(deadline_ms: int) -> Callable[[bytes], Tree | None]:
        return partial(parse.parse, parser, end=now() + deadline_ms / 1000, clock=now)

    def repaired(text: str, deadline_ms: int, found: dict[str, Any]) -> Any:
        facts = found.get("facts")
        names_node = "module.exports" in text or "require.main" in text
        if facts is not None and not (facts.get("modules") or names_node or repair.may_need_repair(text)):
            return None  # most programs are what was meant
        return _repaired(parts, text, within(deadline_ms), found)

    def corrected(line: str, text: str, deadline_ms: int, rows: list[list[int]] | None = None) -> str:
        return read_places.corrected(line, text, within(deadline_ms), rows)

    def analyse(text: str, deadline_ms: int, face: int = PLAIN, is_rehearsal: bool = False) -> dict[str, Any]:
        if parts["program_repair"].is_json(text):
            data = text.encode()
            at = len(data) - len(data.lstrip())
            return {"problems": parts["places"].placed(data, [{"message": JSON, "at": at}])}
        in_time = within(deadline_ms)
        if face == MODULE:
            return modules.analyse(text, in_time, is_rehearsal=is_rehearsal)
        return _function_body(
            parts, walk, looks, text, in_time, wants_names=face == WITH_NAMES, is_rehearsal=is_rehearsal
        )

    walk.prepare()
    modules.prepare()
    repair = parts["program_repair"]
    attributes = {
        "corrected": corrected,
        "repaired": repaired,
        "moved_back": repair.moved_back,
        "then": repair.then,
    }
    vars(analyse).update(attributes)
    return analyse


def _function_body(
    parts: dict[str, Any],
    walk: Any,
    looks: Looks,
    text: str,
    parse: Callable[[bytes], Tree | None],
    *,
    wants_names: bool,
    is_rehearsal: bool,
) -> dict[str, Any]:
    data, edits, placed = text.encode(), parts["edits"], parts["places"].placed
    tree = parse(data)
    if tree is None:
        return {"js": text, "facts": None}
    tree, arguments = parts["rereading"].reread(data, tree, parse)
    listeners = walk.listeners(data, wants_names, is_rehearsal)
    stripper = listeners.stripper
    stripper.add_type_arguments(arguments)
    parts["parse"].walk(tree, listeners.handlers)
    blanked = edits.blanked_text(data, stripper.gaps)
    if tree.root_node.has_error and (at := parts["parse"].first_error(tree, data)) is not None:
        (place,) = placed(data, [{"at": at}])
        return _unclear(text, blanked, place, is_ambiguous=stripper.is_ambiguous)
    if wrong := [*stripper.problems, *looks.locale_calls.problems(tree, data)]:
        problems = [{"message": message, "at": at} for at, message in wrong[:MAX_PROBLEMS]]
        return {"problems": placed(data, problems)}
    found = listeners.facts(partial(edits.code_of, data, stripper.gaps))
    found["modules"] = [use for use in found["modules"] if not stripper.is_only_type(use["at"])]
    if free := looks.free_names.collect(tree, data, has_tools=not wants_names):
        found["free"] = free
    length = parts["places"].utf16_length
    ending = parts["program_ending"].ending(tree, data)
    if ending is not None and ending.blank is not None:
        blanked = edits.blanked_text(data, [*stripper.gaps, edits.Gap(*ending.blank)])
    last = parts["last_expression"].last_expression(tree, data) if ending is None else ending.last
    if last is not None:
        found["last"] = [length(data[:at]) for at in last]
    if ending is not None:
        found["ends"] = ending.ends
        if ending.note:
            found["repairs"] = [ending.note]
        if ending.name:
            found |= {"last": [length(data)] * 2, "last_name": ending.name}
    return {"js": blanked, "facts": found | {kind: placed(data, found[kind]) for kind in PLACED if found.get(kind)}}


def _repaired(parts: dict[str, Any], text: str, parse: Callable[[bytes], Tree | None], found: dict[str, Any]) -> Any:
    repair, facts = parts["program_repair"], found.get("facts")
    if facts is not None and not repair.may_need_repair(text):
        exports = [use for use in facts.get("modules", ()) if use["kind"] == "export"]
        may_be_node = "module.exports" in text or "require.main" in text
        tree = parse(text.encode()) if exports or may_be_node else None
        if tree is None:
            return None
        last_at = parts["program_ending"].last_statement_at(tree)
        last_at = len(text.encode()[:last_at].decode())
        if exports:
            return repair.without_exports(text, exports, last_at)
        return repair.without_node_modules(text, last_at, is_module="module" in facts)

    trees: dict[str, Tree | None] = {}

    def tree_of(text: str) -> Tree | None:
        if text not in trees:
            tree = parse(text.encode())
            trees.clear()
            trees[text] = None if tree is None or parts["parse"].first_error(tree, text.encode()) is not None else tree
        return trees[text]

    def has_no_error(text: str) -> bool:
        return tree_of(text) is not None

    def node_at(text: str, at: int) -> str:
        tree, byte = tree_of(text), len(text[:at].encode())
        node = None if tree is None else tree.root_node.descendant_for_byte_range(byte, byte)
        return "" if node is None else node.type

    return repair.repaired(text, has_no_error, node_at)


def _unclear(text: str, blanked: str, place: dict[str, Any], *, is_ambiguous: bool) -> dict[str, Any]:
    """What is not understood runs as it is, or not at all: the engine says whether it is JavaScript."""
    if blanked == text:
        return {"js": text, "facts": None}
    return {"js": text, "facts": None, "draft": {"js": blanked, "is_ambiguous": is_ambiguous, **place}}


def _house() -> str:
    """Makes this file's folder importable when it was loaded by path, outside any package."""
    name = "codemode_source"
    package = type(sys)(name)
    package.__path__ = [__file__.rpartition("/")[0] or "."]
    sys.modules[name] = package
    return name
