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

    Analyser = Callable[..., dict[str, Any]]

MAX_PROBLEMS = 64
PLACED = ("calls", "modules", "loops", "named_calls")
PARTS = ("parse", "rereading", "strip_types", "edits", "facts", "names", "named_calls", "collecting")


def load(site_paths: list[str], clock: Callable[[], float] | None = None) -> Analyser:
    """An analyser. ``site_paths`` hold the parser's packages; ``clock`` gives seconds. A rehearsal uses nothing up.

    Its result is one of ``{"js", "facts"}``, ``{"js", "facts": None}`` with the text as it came (not parsed in time or
    not understood: nothing may be concluded; with a ``"draft"`` where types stand beside what was not understood) and
    ``{"problems": [{"message", "line", "column"}]}``. No text makes it raise.
    The facts are those of `facts.FactCollector`, with ``"line"`` and ``"column"`` in place of ``"at"``, and with
    ``wants_names`` also ``{"names": {name: [byte offset in the text]} or None (not certain), "loops": [{"kind", "line",
    "column"}], "named_calls": [{"name", "caught", "line", "column"}], "definitions": [name]}``.
    Lines and columns are 1-based; columns count UTF-16 units. Raises ImportError when the parser is missing.
    """
    house = __package__ or _house()
    parse, rereading, strip_types, edits, facts, names, named_calls, collecting = (
        import_module(f"{house}.{name}") for name in PARTS
    )
    parser = parse.load_parser(site_paths)
    symbols = parse.symbols_by_kind(parser)
    parts: dict[str, Any] = {"parse": parse, "edits": edits, "strip_types": strip_types}
    walk = collecting.FactWalk(symbols, **parts, facts=facts, names=names, named_calls=named_calls)
    now = clock or import_module("time").monotonic

    def analyse(text: str, deadline_ms: int, wants_names: bool = False, is_rehearsal: bool = False) -> dict[str, Any]:
        data, end = text.encode(), now() + deadline_ms / 1000
        tree = parse.parse(parser, data, end, now)
        if tree is None:
            return {"js": text, "facts": None}
        tree, arguments = rereading.reread(data, tree, partial(parse.parse, parser, end=end, clock=now))
        listeners = walk.listeners(data, wants_names, is_rehearsal)
        stripper = listeners.stripper
        stripper.add_type_arguments(arguments)
        parse.walk(tree, listeners.handlers)
        blanked = edits.blanked_text(data, stripper.gaps)
        if tree.root_node.has_error:
            return _unclear(text, blanked, parse.first_error(tree), is_ambiguous=stripper.is_ambiguous)
        if stripper.problems:
            problems = [{"message": message, "at": at} for at, message in stripper.problems[:MAX_PROBLEMS]]
            return {"problems": _placed(data, problems)}
        found = listeners.facts(partial(edits.code_of, data, stripper.gaps))
        found["modules"] = [use for use in found["modules"] if not stripper.is_only_type(use["at"])]
        placed = {kind: _placed(data, found[kind]) for kind in PLACED if kind in found}
        return {"js": blanked, "facts": {**found, **placed}}

    walk.prepare()
    return analyse


def _unclear(text: str, blanked: str, at: int, *, is_ambiguous: bool) -> dict[str, Any]:
    """What is not understood runs as it is, or not at all: the engine says whether it is JavaScript."""
    if blanked == text:
        return {"js": text, "facts": None}
    (place,) = _placed(text.encode(), [{"at": at}])
    return {"js": text, "facts": None, "draft": {"js": blanked, "is_ambiguous": is_ambiguous, **place}}


def _house() -> str:
    """Makes this file's folder importable when it was loaded by path, outside any package."""
    name = "codemode_source"
    package = type(sys)(name)
    package.__path__ = [__file__.rpartition("/")[0] or "."]
    sys.modules[name] = package
    return name


def _placed(data: bytes, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was found, in order, with line and column in place of the byte offset ``"at"``."""
    placed: list[dict[str, Any]] = []
    position, line, column = 0, 1, 1
    for item in sorted(found, key=lambda item: item["at"]):
        at = item.pop("at")
        passed = data[position:at]
        line += passed.count(b"\n")
        last_line = passed[passed.rfind(b"\n") + 1 :]
        text = last_line.decode()
        # Encoding to UTF-16 would import a codec, which a locked worker cannot.
        units = len(text) + sum(character > "\uffff" for character in text)
        column = 1 + units if len(last_line) < len(passed) else column + units
        position = at
        placed.append({**item, "line": line, "column": column})
    return placed
