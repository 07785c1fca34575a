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
    from .syntax import Ask

    Parse = Callable[[bytes], Tree | None]
    Result = dict[str, Any]

LONE_RETURN = re.compile("\r(?!\n)")
IMPORT = re.compile(rb"\bimport\b")
MAX_PROBLEMS = 64
NUL = "a program holds no NUL character; in a string it is written \\0"


class ModuleAnalysis:
    """Analyses programs. ``parts`` are this folder's, by name; ``symbols`` the grammar's.

    Each program has listeners of its own; those of the first are made ahead.
    """

    def __init__(self, parts: dict[str, Any], symbols: dict[str, list[int]]) -> None:
        self._parts, self._symbols = parts, symbols
        self._ahead: _Listeners | None = None

    def prepare(self) -> None:
        """Make what listens to the first program."""
        self._ahead = _Listeners(self._parts, self._symbols)

    def analyse(self, text: str, parse: Parse, *, is_rehearsal: bool, ask: Ask | None) -> Result:
        """As `analyse.load` says. ``ask`` is the engine's, `syntax.Engine`; without it `asked` says what to ask it."""
        shown = _as_evaluated(text)
        data = shown.encode()
        if "\0" in shown:
            return self._problems(data, [(data.index(b"\0"), NUL)])
        view, tree = self._parts["module_rereading"].parsed(data, parse)
        if tree is None:
            return self._not_understood(text, shown, shown, ask)
        tree, arguments = self._parts["rereading"].reread(view, tree, parse)
        listeners = self._listeners(is_rehearsal)
        listeners.begin(data, arguments)
        self._parts["parse"].walk(tree, listeners.handlers)
        stripper = listeners.stripper
        asked = self._parts["edits"].blanked_text(data, stripper.gaps)
        if tree.root_node.has_error:
            return self._not_understood(text, shown, asked, ask)
        if stripper.problems:
            return self._problems(data, stripper.problems)
        program = _Program(self._parts, data, listeners)
        if program.is_doubtful():
            return self._not_understood(text, shown, asked, ask)
        js = program.prefix + self._parts["edits"].blanked_text(data, program.gaps)
        facts: dict[str, Any] = {"calls": [], "modules": [], "shadowed": False, "module": program.facts()}
        result: Result = {"js": js, "facts": facts}
        if ask is None:
            return {**result, "asked": asked}
        problem = self._problem(self._engine(ask), asked, js, program)
        return result if problem is None else {"problems": [problem]}

    def _listeners(self, is_rehearsal: bool) -> _Listeners:
        ahead = None if is_rehearsal else self._ahead
        if ahead is not None:
            self._ahead = None
        return ahead or _Listeners(self._parts, self._symbols)

    def _problems(self, data: bytes, found: list[tuple[int, str]]) -> Result:
        problems = [{"message": message, "at": at} for at, message in found[:MAX_PROBLEMS]]
        places = self._parts["places"]
        return {"problems": places.placed(places.with_plain_breaks(data), problems)}

    def _engine(self, ask: Ask) -> Any:
        places = self._parts["places"]
        return self._parts["syntax"].Engine(ask, places.places, places.with_plain_breaks)

    def _problem(self, engine: Any, asked: str, js: str, program: _Program) -> dict[str, Any] | None:
        problem = engine.problem(asked, "", program.regexes)
        # To the engine an import is nothing that another declaration could collide with; the prefix is.
        return engine.problem(js, program.prefix) if problem is None and program.binds else problem

    def _not_understood(self, text: str, shown: str, draft: str, ask: Ask | None) -> Result:
        """It does not run; if the engine finds a mistake in it, that is why. ``draft`` is without its types."""
        result: Result = {"js": text, "facts": None}
        if ask is None:
            return {**result, "asked": draft}
        engine = self._engine(ask)
        problem = engine.problem(shown)
        if problem is not None and draft != shown:
            problem = engine.problem(draft)
        return result if problem is None else {"problems": [problem]}


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
    """One program that was walked: its ``gaps``, the ``prefix`` that stands in front of it, and its facts."""

    def __init__(self, parts: dict[str, Any], data: bytes, listeners: _Listeners) -> None:
        self._parts, self._data, self._listeners = parts, data, listeners
        modules, names = listeners.modules, parts["module_text"].Names(data.decode())
        self._loads = self._live_loads()
        load_name: str = names.load_name() if self._loads else ""
        for load in self._loads:
            load.gap.first = load_name
        self.gaps: list[Gap] = [*listeners.stripper.gaps, *modules.gaps, *(load.gap for load in self._loads)]
        self.binds = bool(modules.bindings)
        self._take = names.global_name() if self.binds or self._loads else None
        self.prefix = "" if self._take is None else parts["module_text"].prefix(modules.bindings, load_name, self._take)
        self._namespaces = {
            binding.name: modules.imports[binding.index]["from"]
            for binding in modules.bindings
            if binding.exported is None
        }
        is_read = (
            not listeners.doubts.is_idle() or listeners.calls.methods or listeners.calls.may_read(self._namespaces)
        )
        self._code = parts["edits"].code_of(data, self.gaps) if is_read else b""

    @property
    def regexes(self) -> tuple[str, ...]:
        """The regular expressions of the program."""
        return tuple(self._data[start:end].decode() for start, end in self._listeners.doubts.regexes())

    def is_doubtful(self) -> bool:
        """Whether the engine may read in another way what is changed here, or read an import that was not seen."""
        at = self._first_doubt() if self._code else None
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

    def facts(self) -> dict[str, Any]:
        """``{"prefix", "take", "imports", "dynamic", "namespace_calls"}``, as `analyse.load` says."""
        plain = self._parts["places"].with_plain_breaks(self._data)
        placed = partial(self._parts["places"].placed, plain)
        stripper, calls = self._listeners.stripper, self._listeners.calls
        taken = self._listeners.modules.exported | calls.words(self._code, stripper.unread)
        return {
            "prefix": len(self.prefix.encode()),
            "take": self._take,
            "imports": self._imports(plain),
            "dynamic": placed(self._parts["module_text"].dynamic_facts(self._loads)),
            "namespace_calls": placed(calls.namespace_calls(self._namespaces, taken, self._code)),
        }

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
