"""Reads the inputs of exec and wait: what a model may send, and what it is told that sends something else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...data.narrowing import is_mapping
from ...options.parts import MAX_SOURCE_BYTES
from ...source.program_input import with_program_field
from .kinds import default_language
from .options import LANGUAGES, ExecWaitOptions
from .waiting_run import RUN_PREFIX

INVALID_INPUT = "invalid_input"
UNSUPPORTED_LANGUAGE = "unsupported_language"
RUN_ID = re.compile(rf"{RUN_PREFIX}[0-9a-f]{{32}}", re.ASCII)
_OTHER_ID = re.compile(
    r"(?:(?:job|proc|process|task|pid|session|sess)[-_ :#]?)?\d{1,10}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    re.IGNORECASE,
)
_MAX_SHOWN = 60


class RefusedInputError(Exception):
    """An input of a model that means nothing, with the code of why."""

    def __init__(self, message: str, code: str = INVALID_INPUT) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass(frozen=True)
class ExecRequest:
    """A program to run, and the language that its model says it is in: types are stripped in both."""

    code: str
    language: str


def read_exec(given: Any, options: ExecWaitOptions, max_source_bytes: int = MAX_SOURCE_BYTES) -> ExecRequest:
    """Return what exec is asked to run. Raises `RefusedInputError`.

    What is longer than any program may be is refused here, for whatever looks at a text takes as long as it is.
    """
    if not (is_mapping(given) and "command" in given):
        given = with_program_field(given, "code")
    fields = _fields(given, ("code", "command", "language"), "exec takes {code, language?}")
    code, command = fields.get("code"), fields.get("command")
    for name, value in (("code", code), ("command", command)):
        if value is not None and not isinstance(value, str):
            raise RefusedInputError(f"exec: {name} must be a string of JavaScript")
    if code is not None and command is not None and code != command:
        raise RefusedInputError("exec: code and command are two names of one field; give one of them")
    text = command if code is None else code
    if text is not None and len(text) > max_source_bytes:
        raise RefusedInputError(
            f"exec: the program has {len(text)} characters; max_source_bytes is {max_source_bytes}. Send a shorter"
            " program; fetch data with tools instead of writing it in"
        )
    if text is None or not text.strip():
        raise RefusedInputError("exec: code must be a program, and it is empty")
    language = fields.get("language")
    if language is None:
        language = default_language(options.languages)
    elif not isinstance(language, str):
        raise RefusedInputError("exec: language must be the name of one, as text", UNSUPPORTED_LANGUAGE)
    elif language not in LANGUAGES:
        raise RefusedInputError(f"exec: there is no language {language[:_MAX_SHOWN]!r}", UNSUPPORTED_LANGUAGE)
    elif language not in options.languages:
        raise RefusedInputError(f"exec: {language} is not enabled here", UNSUPPORTED_LANGUAGE)
    return ExecRequest(text, language)


def read_wait(given: Any) -> str:
    """Return the id of the run that wait is asked to go on with. Raises `RefusedInputError`."""
    fields = _fields(given, ("runId", "run_id"), "wait takes {runId}")
    run_id, other = fields.get("runId"), fields.get("run_id")
    if not all(one is None or isinstance(one, str) for one in (run_id, other)) or not (run_id or other):
        raise RefusedInputError("wait: runId must be the runId of a result whose status is waiting")
    if run_id is not None and other is not None and run_id != other:
        raise RefusedInputError("wait: runId and run_id are two names of one field; give one of them")
    return str(run_id or other)


def unknown_run(run_id: str) -> RefusedInputError:
    """Return the refusal of an id that names no run here."""
    shown = run_id[:_MAX_SHOWN]
    if RUN_ID.fullmatch(run_id) is None and _OTHER_ID.fullmatch(run_id.strip()):
        return RefusedInputError(
            f"wait: {shown!r} looks like the id of another tool's job or process. wait takes the runId of a result of"
            " exec or wait whose status is waiting, and nothing else"
        )
    return RefusedInputError(f"wait: there is no waiting run {shown!r}. Start one with exec")


SHELL_REFUSED = (
    "exec runs JavaScript, and this looks like a shell command, which it is not. Write a program: find tools with"
    ' `await tools.search("what it should do")`, and call one with `await tools.call(id, input)`'
)


def _fields(given: Any, known: tuple[str, ...], usage: str) -> Mapping[str, Any]:
    if not is_mapping(given):
        raise RefusedInputError(f"{usage}, an object")
    unknown: list[Any] = [key for key in given if key not in known]  # of a host's own mapping anything
    if unknown:
        shown = (repr(key[:_MAX_SHOWN]) if isinstance(key, str) else "a key that is no text" for key in unknown[:8])
        raise RefusedInputError(f"{usage}, and not {', '.join(shown)}")
    return given
