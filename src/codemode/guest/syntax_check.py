"""Asks the engine whether a text is a module, without running it. Loaded by path; pure."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Problem = dict[str, Any]
    Evaluate = Callable[[str], object]

# No module can be loaded, and none is before the whole text has been read: nothing of it runs.
_BLOCKING_IMPORT = 'import"codemode:never";'
_SYNTAX_ERROR = "SyntaxError: "
_PLACE_PREFIX = "<input>:"
_UNCLEAR_MESSAGE = "this is not understood, as TypeScript or as JavaScript: write it without types here"
_UNKNOWN_EXPORT = re.compile(r"exported variable '(.+)' does not exist")
_EXPORT_LIST = re.compile(r"\bexport\s*\{([^{}]*)\}")
# A text up to this long is read again and again to find what the engine gives no place of.
_MAX_SEARCHED_CHARACTERS = 1 << 16


def check_syntax_of_analysed_module(evaluate: Evaluate, result: dict[str, Any]) -> dict[str, Any]:
    """Return the analyser's result for a module, or the engine's syntax error in it.

    ``result["asked"]`` is the text that the engine checks; the return value lacks it. The ``"draft"`` is checked where
    the text itself is no module, and ``"js"`` too where an imported name could be declared again: the engine sees no
    import that a declaration collides with, only the code for it in front of the text.
    A text ``"keeping"`` the value of the last statement replaces ``"js"`` where the engine can read it.
    If the engine has too little memory or stack to check, the run decides.
    """
    draft, text = result.pop("draft", None), result.pop("asked", None) or result.get("js")
    if text is None:
        return result
    problem = find_syntax_problem(evaluate, text)
    if draft is not None and (problem is not None or draft["is_ambiguous"]):
        unclear = {"message": _UNCLEAR_MESSAGE, "line": draft["line"], "column": draft["column"]}
        problem = find_syntax_problem(evaluate, draft["js"]) or unclear
    if problem is None and (prefix := _get_binding_prefix_length(result.get("facts"))):
        problem = find_syntax_problem(evaluate, result["js"], prefix)
    js_keeping_last = result.pop("keeping", None)
    if problem is None and js_keeping_last is not None:
        if find_syntax_problem(evaluate, js_keeping_last) is None:
            result["js"] = js_keeping_last
        else:
            del result["facts"]["module"]["last"]
    return result if problem is None else {"problems": [problem]}


def _get_binding_prefix_length(facts: dict[str, Any] | None) -> int:
    """How many bytes stand in front of the program that bind names of its imports."""
    module = None if facts is None else facts.get("module")
    if module is None or not any(local for imported in module["imports"] for _, local in imported["names"]):
        return 0
    return module["prefix"]


def find_syntax_problem(evaluate: Evaluate, text: str, prefix: int = 0) -> Problem | None:
    """The engine's syntax error as message, line and column of the text; None for a module.

    The first ``prefix`` bytes of the text are not the author's.
    """
    if (nul_index := text.find("\0")) >= 0:
        return {"message": "a program cannot have the character U+0000 in it", **_to_line_and_column(text, nul_index)}
    answer = _compile_and_find_syntax_error(evaluate, text)
    if answer is None:
        return None
    message, _, rest = answer.partition("\n")
    row, _, column = rest.partition(_PLACE_PREFIX)[2].partition("\n")[0].partition(":")
    if row.isdecimal() and column.isdecimal():
        return {"message": message, "line": int(row), "column": _to_utf16_column(text, int(row), int(column), prefix)}
    return {"message": message, **_to_line_and_column(text, _locate_syntax_error(evaluate, text, message))}


def _compile_and_find_syntax_error(evaluate: Evaluate, text: str) -> str | None:
    if text.startswith("#!"):  # which means something at the very beginning alone
        text = "//" + text[2:]
    try:
        evaluate(_BLOCKING_IMPORT + text)
    except Exception as error:  # noqa: BLE001 -- the engine's class has no name here
        error_text = str(error)
        return error_text[len(_SYNTAX_ERROR) :] if error_text.startswith(_SYNTAX_ERROR) else None
    return None


def _to_utf16_column(text: str, line_number: int, column: int, prefix: int) -> int:
    """The column in UTF-16 units; the engine counts bytes, and what it was asked about stands behind our import."""
    lines = text.split("\n", line_number)
    if line_number > len(lines):  # lines of the engine's may end where others see no end
        lines = text.replace("\u2028", "\n").replace("\u2029", "\n").split("\n", line_number)
    if line_number > len(lines):
        return 1
    skipped = prefix if line_number == 1 else 0
    end = max(skipped, column - 1 - (len(_BLOCKING_IMPORT) if line_number == 1 else 0))
    before = lines[line_number - 1].encode()[skipped:end].decode("utf-8", "ignore")
    return 1 + len(before) + sum(character > "\uffff" for character in before)


def _to_line_and_column(text: str, offset: int) -> dict[str, int]:
    before = text[:offset]
    line = before[before.rfind("\n") + 1 :]
    units = len(line) + sum(character > "\uffff" for character in line)
    return {"line": 1 + before.count("\n"), "column": 1 + units}


def _locate_syntax_error(evaluate: Evaluate, text: str, message: str) -> int:
    """Return the place of an error that the engine reports without one.

    The engine reads from the front and stops there, so the shortest beginning with the same message ends there.
    Messages about the whole text fit no beginning.
    """
    missing_export = _UNKNOWN_EXPORT.fullmatch(message)
    if missing_export is not None:
        word = re.compile(rf"(?<![\w$]){re.escape(missing_export[1])}(?![\w$])")
        exports = (word.search(text, names.start(1), names.end(1)) for names in _EXPORT_LIST.finditer(text))
        return next((name.start() for name in exports if name is not None), 0)
    if len(text) > _MAX_SEARCHED_CHARACTERS:
        return 0
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if (_compile_and_find_syntax_error(evaluate, text[:middle]) or "").partition("\n")[0] == message:
            high = middle
        else:
            low = middle + 1
    return max(0, text.rfind("/", 0, max(0, low - 1)))
