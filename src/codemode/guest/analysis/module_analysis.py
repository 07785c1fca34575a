"""Analyses a program that is an ES module: one parse, one walk, and the engine's word on its syntax.

Loaded by path in locked workers. Knows no rule; it only brings together those who listen to the walk.
"""

from __future__ import annotations

import re
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tree_sitter import Tree

    from .edits import Gap
    from .import_calls import Load
    from .strip_types import TypeStripper

    Parse = Callable[[bytes], Tree | None]
    Result = dict[str, Any]

LONE_RETURN = re.compile("\r(?!\n)")
IMPORT = re.compile(rb"\bimport\b")
MAX_PROBLEMS = 64
RESULT = b"__codemode_result__"
HTML_COMMENT = "<!-- begins no comment in a module: write //"


class ModuleAnalysis:
    """Analyses programs. ``parts`` are this folder's, by name; ``symbols`` the grammar's.

    Each program has listeners of its own; those of the first are made ahead.
    """

    def __init__(self, parts: dict[str, Any], symbols: dict[str, list[int]]) -> None:
        self._parts, self._symbols = parts, symbols
        self._locale_calls = parts["locale_calls"].LocaleCalls(symbols, parts)
        self._free_names = parts["free_names"].FreeNames(symbols, parts)
        self._ahead: _Listeners | None = None

    def prepare(self) -> None:
        """Make what listens to the first program."""
        self._ahead = _Listeners(self._parts, self._symbols)

    def analyse(self, text: str, parse: Parse, *, is_rehearsal: bool) -> Result:
        """As `analyse.load` says."""
        shown = _as_evaluated(text)
        data = shown.encode()
        view, tree = self._parts["module_rereading"].parsed(data, parse)
        if tree is None:
            return {"js": text, "asked": shown, "facts": None}
        tree, arguments = self._parts["rereading"].reread(view, tree, parse)
        listeners = self._listeners(is_rehearsal)
        listeners.begin(data, arguments)
        self._parts["parse"].walk(tree, listeners.handlers)
        stripper = listeners.stripper
        asked = self._parts["edits"].blanked_text(data, stripper.gaps)
        if tree.root_node.has_error and (at := self._parts["parse"].first_error(tree, data)) is not None:
            unclear = {"js": text, "asked": shown, "facts": None}
            return unclear if asked == shown else {**unclear, "draft": self._draft(asked, data, at, stripper)}
        html = self._parts["module_rereading"].html_comment(data, tree)
        if html is not None:
            stripper.problems.append((html, HTML_COMMENT))
        stripper.problems += self._locale_calls.problems(tree, data)
        if stripper.problems:
            return {"problems": self._problems(data, stripper.problems)}
        ending = self._parts["program_ending"].ending_of_module(tree, data)
        last = None if ending is None else ending.last
        if ending is None and RESULT not in data:  # a program that names the result gives one itself
            last = self._parts["last_expression"].last_expression(tree, data)
        program = _Program(self._parts, data, listeners, last, ending)
        if program.is_doubtful():
            return {"js": text, "asked": asked, "facts": None}
        facts: dict[str, Any] = {"calls": [], "modules": [], "shadowed": False, "module": program.facts()}
        if free := self._free_names.collect(tree, data):
            facts["free"] = self._placed(data, free)
        if program.ending is not None and program.ending.note:
            facts["repairs"] = [program.ending.note]
        js = program.prefix + self._parts["edits"].blanked_text(data, program.gaps)
        return {"js": js, "asked": asked, "facts": facts, **program.keeping_last(js)}

    def _listeners(self, is_rehearsal: bool) -> _Listeners:
        ahead = None if is_rehearsal else self._ahead
        if ahead is not None:
            self._ahead = None
        return ahead or _Listeners(self._parts, self._symbols)

    def _problems(self, data: bytes, found: list[tuple[int, str]]) -> list[dict[str, Any]]:
        problems = [{"message": message, "at": at} for at, message in found[:MAX_PROBLEMS]]
        return self._placed(data, problems)

    def _draft(self, js: str, data: bytes, at: int, stripper: TypeStripper) -> dict[str, Any]:
        (place,) = self._placed(data, [{"at": at}])
        return {"js": js, "is_ambiguous": stripper.is_ambiguous, **place}

    def _placed(self, data: bytes, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        places = self._parts["places"]
        return places.placed(places.with_plain_breaks(data), found)


class _Listeners:
    """Those who listen to the walk of one program."""

    def __init__(self, parts: dict[str, Any], symbols: dict[str, list[int]]) -> None:
        gap, clauses, facts = parts["edits"].Gap, parts["clauses"], parts["facts"]
        self.stripper = parts["strip_types"].TypeStripper(b"", gap, is_module=True)
        self.doubts = parts["doubts"].Doubts(parts["edits"].without, html=False)
        self.modules = parts["modules"].ModuleCollector(clauses, parts["strip_types"], gap, self.stripper)
        self.calls = parts["import_calls"].ImportCalls(
            clauses, facts, gap, identifiers=facts.IDENTIFIERS, functions=parts["named_calls"].FUNCTIONS
        )
        tables = [listener.handlers() for listener in (self.modules, self.calls, self.doubts, self.stripper)]
        self.handlers: dict[int, Any] = parts["parse"].handlers_by_symbol(symbols, tables)

    def begin(self, data: bytes, arguments: list[tuple[int, int]]) -> None:
        """Take the program, and its type arguments that are in no node."""
        self.stripper.data = self.modules.data = self.calls.data = data
        self.stripper.add_type_arguments(arguments)


class _Program:
    """One program that was walked: its ``gaps``, the ``prefix`` that stands in front of it, and its facts.

    ``last`` is where the expression stands that is its last statement, of which the value is kept. ``ending`` says what
    becomes of that, or of what the program exports, where it gives no result itself.
    """

    def __init__(
        self, parts: dict[str, Any], data: bytes, listeners: _Listeners, last: tuple[int, int] | None, ending: Any
    ) -> None:
        self._parts, self._data, self._listeners = parts, data, listeners
        modules, names = listeners.modules, parts["module_text"].Names(data.decode())
        self._loads = self._live_loads()
        load_name: str = names.load_name() if self._loads else ""
        for load in self._loads:
            load.gap.first = load_name
        self.gaps: list[Gap] = [*listeners.stripper.gaps, *modules.gaps, *(load.gap for load in self._loads)]
        self._namespaces = {
            binding.name: modules.imports[binding.index]["from"]
            for binding in modules.bindings
            if binding.exported is None
        }
        is_read = (
            not listeners.doubts.is_idle() or listeners.calls.methods or listeners.calls.may_read(self._namespaces)
        )
        self._code = parts["places"].with_plain_blanks(parts["edits"].code_of(data, self.gaps)) if is_read else b""
        self._doubt = self._first_doubt() if self._code else None
        self._last = last if self._doubt is None else None
        self.ending = ending if self._doubt is None else None
        last_name = "" if self._last is None and self.ending is None else names.last_name()
        self._last_name = last_name
        self._keeping = f"{last_name}.value=("
        self._take = names.global_name() if modules.bindings or self._loads or last_name else None
        self.prefix = ""
        if self._take is not None:
            self.prefix = parts["module_text"].prefix(modules.bindings, load_name, last_name, self._take)

    def is_doubtful(self) -> bool:
        """Whether the engine may read in another way what is changed here, or read an import that was not seen."""
        at = self._doubt
        if at is None:
            return False
        return IMPORT.search(self._data, at) is not None or any(
            gap.end > at and not gap.is_comment for gap in self.gaps
        )

    def _first_doubt(self) -> int | None:
        doubts, calls = self._listeners.doubts, self._listeners.calls
        found = doubts.first(self._code, calls.methods)
        # To the grammar `let` may be a variable, and what it declares one that is divided.
        let = calls.first_place(b"let") if doubts.slashes else None
        return found if let is None else let if found is None else min(found, let)

    def keeping_last(self, js: str) -> dict[str, str]:
        """``{"keeping"}``: ``js`` with what keeps the value of the last statement, where that is an expression."""
        if self.ending is not None and self.ending.name:
            return {"keeping": f"{js}\n;{self._last_name}.value={self.ending.name};"}
        place = self._last if self.ending is None or self.ending.export is None else self.ending.export
        if place is None:
            return {}
        start, end = (len(self.prefix) + self._characters(at) for at in place)
        if self.ending is not None and self.ending.export is not None:
            assigning = f"{self._last_name}.value="
            replaced, rest = js[start : start + len(assigning)], js[start + len(assigning) : end]
            if end - start < len(assigning) or not replaced.isprintable():  # no room, or a line break in it
                return {}
            blank = "".join(character if character in "\n\r\u2028\u2029" else " " for character in rest)
            return {"keeping": f"{js[:start]}{assigning}{blank}{js[end:]}"}
        before = js[:start]
        if self.ending is not None and self.ending.blank is not None:
            operator = len(self.prefix) + self._characters(self.ending.blank[0])
            before = js[:operator] + " " * (start - operator)
        return {"keeping": f"{before}{self._keeping}{js[start:end]}){js[end:]}"}

    def _characters(self, at: int) -> int:
        """How many characters of the blanked text stand before a byte offset of the program."""
        if self._data.isascii():
            return at
        before = [gap for gap in self.gaps if gap.end <= at]
        return len(self._parts["edits"].blanked_text(self._data[:at], before))

    def facts(self) -> dict[str, Any]:
        """``{"prefix", "take", "imports", "dynamic", "namespace_calls", "last"?}``, as `analyse.load` says."""
        plain = self._parts["places"].with_plain_breaks(self._data)
        placed = partial(self._parts["places"].placed, plain)
        stripper, calls = self._listeners.stripper, self._listeners.calls
        taken = self._listeners.modules.exported | calls.words(self._code, stripper.unread)
        facts: dict[str, Any] = {
            "prefix": len(self.prefix.encode()),
            "take": self._take,
            "imports": self._imports(plain),
            "dynamic": placed(self._parts["module_text"].dynamic_facts(self._loads)),
            "namespace_calls": placed(calls.namespace_calls(self._namespaces, taken, self._code)),
        }
        if self._last is not None:
            at = self._parts["places"].utf16_length(self._data[: self._last[0]])
            facts["last"] = [at, len(self._keeping)]
        if self.ending is not None:
            facts |= {"last": facts.get("last", [0, 0]), "ends": self.ending.ends}
        return facts

    def _imports(self, plain: bytes) -> list[dict[str, Any]]:
        imports = self._listeners.modules.imports
        offsets = sorted({at for one in imports for at in (one["at"], *one["ats"])})
        places = dict(zip(offsets, self._parts["places"].places(plain, offsets), strict=True))
        return [
            {
                "from": one["from"],
                "names": one["names"],
                "places": [list(places[at]) for at in one["ats"]],
                "line": places[one["at"]][0],
                "column": places[one["at"]][1],
            }
            for one in imports
        ]

    def _live_loads(self) -> list[Load]:
        """The calls of `import()` that are not part of a type."""
        loads, gaps = self._listeners.calls.loads, self._listeners.stripper.gaps
        if not loads or not gaps:
            return loads
        kept = {id(gap) for gap in self._parts["edits"].outermost([*gaps, *(load.gap for load in loads)])}
        return [load for load in loads if id(load.gap) in kept]


def _as_evaluated(text: str) -> str:
    """A text in which each line break that the engine counts is one of two, and which need not stand first."""
    if "\r" in text:
        text = LONE_RETURN.sub("\n", text)
    return "//" + text[2:] if text.startswith("#!") else text
