"""Analyses a program that is an ES module: one parse, one walk, the engine's syntax check.

Loaded by path in locked workers. Knows no rule; it only connects the listeners of the walk.
"""

from __future__ import annotations

from functools import partial

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tree_sitter import Tree

    from .edits import BlankedGap
    from .import_calls import DynamicImport
    from .strip_types import TypeStripper

    Parse = Callable[[bytes], Tree | None]
    Result = dict[str, Any]

LONE_CARRIAGE_RETURN = compile_lazily("\r(?!\n)")
IMPORT = compile_lazily(rb"\bimport\b")
MAX_PROBLEMS = 64
RESULT_NAME = b"__codemode_result__"
HTML_COMMENT = "<!-- begins no comment in a module: write //"


class ModuleAnalyser:
    """Analyses programs. ``modules`` are this folder's, by name; ``symbols`` the grammar's.

    Each program has listeners of its own; those of the first are made ahead.
    """

    def __init__(self, modules: dict[str, Any], symbols: dict[str, list[int]]) -> None:
        self._modules, self._symbols = modules, symbols
        self._locale_calls = modules["locale_calls"].LocaleCallCheck(symbols, modules)
        self._free_names = modules["free_names"].UndefinedNameFinder(symbols, modules)
        self._prepared: _ModuleWalkListeners | None = None

    def prepare_first_listeners(self) -> None:
        """Make what listens to the first program."""
        self._prepared = _ModuleWalkListeners(self._modules, self._symbols)

    def analyse(self, text: str, parse: Parse, *, is_warm_up: bool) -> Result:
        """Analyse a module; the result is that of `analyse.load_analyser`."""
        evaluated_text = _to_evaluated_text(text)
        data = evaluated_text.encode()
        parsed_text, tree = self._modules["module_reparsing"].parse_module_rewriting_syntax(data, parse)
        if tree is None:
            return {"js": text, "asked": evaluated_text, "facts": None}
        tree, arguments = self._modules["reparsing"].reparse_misread_types(parsed_text, tree, parse)
        listeners = self._take_listeners(is_warm_up)
        listeners.set_program(data, arguments)
        self._modules["parse"].walk_tree(tree, listeners.handlers)
        stripper = listeners.stripper
        blanked_text = self._modules["edits"].blank_gaps_and_separate_statements(data, stripper.gaps)
        if tree.root_node.has_error and (at := self._modules["parse"].find_first_error(tree, data)) is not None:
            unclear = {"js": text, "asked": evaluated_text, "facts": None}
            return (
                unclear
                if blanked_text == evaluated_text
                else {**unclear, "draft": self._create_draft(blanked_text, data, at, stripper)}
            )
        html_comment_offset = self._modules["module_reparsing"].find_html_comment(data, tree)
        if html_comment_offset is not None:
            stripper.problems.append((html_comment_offset, HTML_COMMENT))
        stripper.problems += self._locale_calls.find_problems(tree, data)
        if stripper.problems:
            return {"problems": self._describe_problems(data, stripper.problems)}
        ending = self._modules["program_ending"].find_module_ending(tree, data)
        last = None if ending is None else ending.value_span
        if ending is None and RESULT_NAME not in data:  # a program that names the result gives one itself
            last = self._modules["last_expression"].find_last_expression(tree, data)
        program = _WalkedModule(self._modules, data, listeners, last, ending)
        if program.is_ambiguous():
            return {"js": text, "asked": blanked_text, "facts": None}
        facts: dict[str, Any] = {"calls": [], "modules": [], "shadowed": False, "module": program.build_facts()}
        if free_names := self._free_names.find_certainly_undefined_names(tree, data):
            facts["free"] = self._replace_offsets_with_locations(data, free_names)
        if program.ending is not None and program.ending.note:
            facts["repairs"] = [program.ending.note]
        js = program.prefix + self._modules["edits"].blank_gaps_and_separate_statements(data, program.gaps)
        return {"js": js, "asked": blanked_text, "facts": facts, **program.make_fields_keeping_last_value(js)}

    def _take_listeners(self, is_warm_up: bool) -> _ModuleWalkListeners:
        prepared = None if is_warm_up else self._prepared
        if prepared is not None:
            self._prepared = None
        return prepared or _ModuleWalkListeners(self._modules, self._symbols)

    def _describe_problems(self, data: bytes, found: list[tuple[int, str]]) -> list[dict[str, Any]]:
        problems = [{"message": message, "at": at} for at, message in found[:MAX_PROBLEMS]]
        return self._replace_offsets_with_locations(data, problems)

    def _create_draft(self, js: str, data: bytes, at: int, stripper: TypeStripper) -> dict[str, Any]:
        (place,) = self._replace_offsets_with_locations(data, [{"at": at}])
        return {"js": js, "is_ambiguous": stripper.is_ambiguous, **place}

    def _replace_offsets_with_locations(self, data: bytes, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        places = self._modules["source_positions"]
        return places.replace_offsets_with_locations(places.normalize_line_breaks(data), items)


class _ModuleWalkListeners:
    """Those who listen to the walk of one program."""

    def __init__(self, modules: dict[str, Any], symbols: dict[str, list[int]]) -> None:
        gap, clauses, facts = modules["edits"].BlankedGap, modules["clauses"], modules["facts"]
        self.stripper = modules["strip_types"].TypeStripper(b"", gap, is_module=True)
        self.ambiguities = modules["parse_ambiguities"].ParseAmbiguityFinder(
            modules["edits"].blank_spans, has_html_comments=False
        )
        self.module_collector = modules["modules"].ModuleStatementCollector(
            clauses, modules["strip_types"], gap, self.stripper
        )
        self.import_calls = modules["import_calls"].ImportCallCollector(
            clauses, facts, gap, identifiers=facts.IDENTIFIERS, functions=modules["named_calls"].FUNCTIONS
        )
        tables = [
            listener.get_handlers_by_kind()
            for listener in (self.module_collector, self.import_calls, self.ambiguities, self.stripper)
        ]
        self.handlers: dict[int, Any] = modules["parse"].map_handlers_by_symbol(symbols, tables)

    def set_program(self, data: bytes, arguments: list[tuple[int, int]]) -> None:
        """Take the program, and its type arguments that are in no node."""
        self.stripper.data = self.module_collector.data = self.import_calls.data = data
        self.stripper.blank_type_arguments(arguments)


class _WalkedModule:
    """One program that was walked: its ``gaps``, the ``prefix`` that stands in front of it, and its facts.

    ``last`` is where the expression stands that is its last statement, of which the value is kept. ``ending`` says what
    becomes of that, or of what the program exports, where it gives no result itself.
    """

    def __init__(
        self,
        parts: dict[str, Any],
        data: bytes,
        listeners: _ModuleWalkListeners,
        last: tuple[int, int] | None,
        ending: Any,
    ) -> None:
        self._modules, self._data, self._listeners = parts, data, listeners
        collector, names = listeners.module_collector, parts["module_text"].UnusedNameGenerator(data.decode())
        self._dynamic_imports = self._list_dynamic_imports_outside_types()
        load_name: str = names.create_import_function_name() if self._dynamic_imports else ""
        for load in self._dynamic_imports:
            load.gap.first = load_name
        self.gaps: list[BlankedGap] = [
            *listeners.stripper.gaps,
            *collector.gaps,
            *(load.gap for load in self._dynamic_imports),
        ]
        self._namespaces = {
            binding.name: collector.imports[binding.index]["from"]
            for binding in collector.bindings
            if binding.exported is None
        }
        is_read = (
            not listeners.ambiguities.has_no_candidates_but_methods()
            or listeners.import_calls.methods
            or listeners.import_calls.may_have_namespace_calls(self._namespaces)
        )
        self._blanked_code = (
            parts["source_positions"].normalize_whitespace(
                parts["edits"].blank_gaps_and_comments_bytewise(data, self.gaps)
            )
            if is_read
            else b""
        )
        self._first_ambiguity_offset = self._find_first_ambiguity() if self._blanked_code else None
        self._last_span = last if self._first_ambiguity_offset is None else None
        self.ending = ending if self._first_ambiguity_offset is None else None
        last_name = "" if self._last_span is None and self.ending is None else names.create_last_value_name()
        self._last_name = last_name
        self._keep_call = f"{last_name}.value=("
        self._global_name = (
            names.create_global_name() if collector.bindings or self._dynamic_imports or last_name else None
        )
        self.prefix = ""
        if self._global_name is not None:
            self.prefix = parts["module_text"].build_import_prefix(
                collector.bindings, load_name, last_name, self._global_name
            )

    def is_ambiguous(self) -> bool:
        """Return whether the engine may read the changes in another way, or read an import that was missed."""
        at = self._first_ambiguity_offset
        if at is None:
            return False
        return IMPORT.search(self._data, at) is not None or any(
            gap.end > at and not gap.is_comment for gap in self.gaps
        )

    def _find_first_ambiguity(self) -> int | None:
        ambiguities, calls = self._listeners.ambiguities, self._listeners.import_calls
        offset = ambiguities.find_first_ambiguity(self._blanked_code, calls.methods)
        # To the grammar `let` may be a variable, and what it declares one that is divided.
        let_offset = calls.find_first_name_use(b"let") if ambiguities.slash_nodes else None
        return offset if let_offset is None else let_offset if offset is None else min(offset, let_offset)

    def make_fields_keeping_last_value(self, js: str) -> dict[str, str]:
        """``{"keeping"}``: ``js`` with what keeps the value of the last statement, where that is an expression."""
        if self.ending is not None and self.ending.variable:
            return {"keeping": f"{js}\n;{self._last_name}.value={self.ending.variable};"}
        expression_span = (
            self._last_span if self.ending is None or self.ending.export_span is None else self.ending.export_span
        )
        if expression_span is None:
            return {}
        start, end = (len(self.prefix) + self._count_characters_before(at) for at in expression_span)
        if self.ending is not None and self.ending.export_span is not None:
            assigning = f"{self._last_name}.value="
            replaced, rest = js[start : start + len(assigning)], js[start + len(assigning) : end]
            if end - start < len(assigning) or not replaced.isprintable():  # no room, or a line break in it
                return {}
            blank = "".join(character if character in "\n\r\u2028\u2029" else " " for character in rest)
            return {"keeping": f"{js[:start]}{assigning}{blank}{js[end:]}"}
        before = js[:start]
        if self.ending is not None and self.ending.blank_span is not None:
            operator = len(self.prefix) + self._count_characters_before(self.ending.blank_span[0])
            before = js[:operator] + " " * (start - operator)
        return {"keeping": f"{before}{self._keep_call}{js[start:end]}){js[end:]}"}

    def _count_characters_before(self, at: int) -> int:
        """How many characters of the blanked text stand before a byte offset of the program."""
        if self._data.isascii():
            return at
        before = [gap for gap in self.gaps if gap.end <= at]
        return len(self._modules["edits"].blank_gaps_and_separate_statements(self._data[:at], before))

    def build_facts(self) -> dict[str, Any]:
        """``{"prefix", "take", "imports", "dynamic", "namespace_calls", "last"?}``, see `analyse.load_analyser`."""
        text_with_plain_breaks = self._modules["source_positions"].normalize_line_breaks(self._data)
        placed = partial(self._modules["source_positions"].replace_offsets_with_locations, text_with_plain_breaks)
        stripper, calls = self._listeners.stripper, self._listeners.import_calls
        excluded_names = self._listeners.module_collector.exported_names | calls.collect_names_in_skipped_nodes(
            self._blanked_code, stripper.skipped_nodes
        )
        facts: dict[str, Any] = {
            "prefix": len(self.prefix.encode()),
            "take": self._global_name,
            "imports": self._describe_imports(text_with_plain_breaks),
            "dynamic": placed(self._modules["module_text"].describe_dynamic_imports(self._dynamic_imports)),
            "namespace_calls": placed(calls.find_namespace_calls(self._namespaces, excluded_names, self._blanked_code)),
        }
        if self._last_span is not None:
            at = self._modules["source_positions"].count_utf16_units(self._data[: self._last_span[0]])
            facts["last"] = [at, len(self._keep_call)]
        if self.ending is not None:
            facts |= {"last": facts.get("last", [0, 0]), "ends": self.ending.action}
        return facts

    def _describe_imports(self, text_with_plain_breaks: bytes) -> list[dict[str, Any]]:
        imports = self._listeners.module_collector.imports
        offsets = sorted({at for imported in imports for at in (imported["at"], *imported["ats"])})
        places = dict(
            zip(
                offsets,
                self._modules["source_positions"].iterate_locations(text_with_plain_breaks, offsets),
                strict=True,
            )
        )
        return [
            {
                "from": imported["from"],
                "names": imported["names"],
                "places": [list(places[at]) for at in imported["ats"]],
                "line": places[imported["at"]][0],
                "column": places[imported["at"]][1],
            }
            for imported in imports
        ]

    def _list_dynamic_imports_outside_types(self) -> list[DynamicImport]:
        """The calls of `import()` that are not part of a type."""
        loads, gaps = self._listeners.import_calls.dynamic_imports, self._listeners.stripper.gaps
        if not loads or not gaps:
            return loads
        outermost_ids = {
            id(gap) for gap in self._modules["edits"].select_outermost_gaps([*gaps, *(load.gap for load in loads)])
        }
        return [load for load in loads if id(load.gap) in outermost_ids]


def _to_evaluated_text(text: str) -> str:
    """Return the text that the engine evaluates: lone carriage returns as line feeds, a hashbang as a comment."""
    if "\r" in text:
        text = LONE_CARRIAGE_RETURN.sub("\n", text)
    return "//" + text[2:] if text.startswith("#!") else text
