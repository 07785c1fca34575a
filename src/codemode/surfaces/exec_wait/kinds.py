"""What tells calls of the pair from those of other tools of these names: the kind of tool, and of what it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...data.narrowing import is_mapping
from .options import LANGUAGES

EXEC_KIND, WAIT_KIND = "code_mode_exec", "code_mode_wait"
TOOL_KIND, TOOL_INPUT_KIND = "toolKind", "toolInputKind"


@dataclass(frozen=True)
class Kinds:
    """The kind of a tool, and the languages that its input may be in; none for one that takes no program."""

    tool_kind: str
    languages: tuple[str, ...] = ()

    def fixed(self) -> dict[str, str]:
        """Return what holds for every call. The input is of the language that one without any is in."""
        if not self.languages:
            return {TOOL_KIND: self.tool_kind}
        return {TOOL_KIND: self.tool_kind, TOOL_INPUT_KIND: default_language(self.languages)}

    def of_call(self, given: Any) -> dict[str, str]:
        """Return what holds for a call with this input; no kind of input where it names a language there is not."""
        language = given.get("language") if is_mapping(given) else None
        if not self.languages or language is None:
            return self.fixed()
        known = {TOOL_INPUT_KIND: language} if isinstance(language, str) and language in self.languages else {}
        return {TOOL_KIND: self.tool_kind, **known}


def default_language(languages: tuple[str, ...]) -> str:
    """Return the language of an input that says none."""
    return LANGUAGES[0] if LANGUAGES[0] in languages else languages[0]
