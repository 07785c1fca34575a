"""Fill in `${VARIABLE}`, values of the keyring and of .env files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from codemode.trace.visible_text import one_line

from . import codemode_section
from .config_file import MistakeError, inside, short
from .places import home
from .secret_detection import is_secret_name, says_secret

_LINE = re.compile(
    r"""[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*"""
    r"""("(?:[^"\\]|\\.)*"|'[^']*'|[^\r\n]*)[ \t]*(\#[^\r\n]*)?(?:\r\n|\r|\n|\Z)""",
    re.DOTALL,
)
_BLANK = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n|\Z)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def read_env_file(text: str, path: str, name: str) -> dict[str, str]:
    """Return the variables of ``text``, the file ``name``. Raises `MistakeError`, with the number of the line."""
    found, at = dict[str, str](), 0
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
            continue
        line = _LINE.match(text, at)
        if line is None:
            number = text.count("\n", 0, at) + 1
            raise MistakeError(path, f"{name}, line {number}: here must be NAME=value, a comment, or nothing")
        found[line[1]] = _value(line[2])
        at = line.end()
    return found


def _value(written: str) -> str:
    if written.startswith('"') and written.endswith('"') and len(written) > 1:
        return re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[1]), written[1:-1], flags=re.DOTALL)
    if written.startswith("'") and written.endswith("'") and len(written) > 1:
        return written[1:-1]
    return re.split(r"(?:^|[ \t])#", written, maxsplit=1)[0].strip()


KEYRING_SERVICE = "codemode"
_DESCRIBED_CHARACTERS = 120

_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\([A-Za-z0-9]*\))?")

Keyring = Callable[[str, str], str | None]


def _keyring(service: str, name: str) -> str | None:
    # Optional and slow to import: only a configuration that names it pays for it.
    import keyring  # pyright: ignore[reportMissingImports]

    return cast("Any", keyring).get_password(service, name)


def input_variable(name: str) -> str:
    """Return the environment variable that gives the input ``name`` its value."""
    return "CODEMODE_INPUT_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


@dataclass(frozen=True)
class Variables:
    """Where variables get their values. ``defaults`` and ``descriptions`` are of the inputs that the file declares."""

    environ: Mapping[str, str]
    workspace: Path
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    descriptions: Mapping[str, str] = field(default_factory=dict[str, str])
    keyring: Keyring = _keyring

    def __repr__(self) -> str:
        return "<Variables>"

    def expand(self, text: str, path: str, secrets: set[str]) -> str:
        """Return ``text`` with its variables filled in; ``secrets`` gets the values that nobody may read.

        What a variable gives is never looked through for variables. ``$${`` is written for ``${`` itself. Raises
        `MistakeError` for one without a value.
        """

        def filled(found: re.Match[str]) -> str:
            return "${" if found[1] is None else self._value(found[1], path, secrets)

        return _VARIABLE.sub(filled, text)

    def _value(self, said: str, path: str, secrets: set[str]) -> str:
        kind, colon, rest = said.partition(":")
        if colon and kind == "input":
            secrets.add(found := self._input(rest, path))
            return found
        if colon and kind == "keyring":
            secrets.add(found := self._of_keyring(rest, path))
            return found
        if (found := self._predefined(said)) is not None:
            return found
        name, given, default = (rest if colon and kind == "env" else said).partition(":-")
        if not _NAME.fullmatch(name) or "${" in default:
            raise MistakeError(path, _UNKNOWN.format(short("${" + name + "}")))
        if (found := self.environ.get(name)) or (found is not None and not given):
            if says_secret(name, found):
                secrets.add(found)
            return found
        if given:
            return default
        # A default stands in the file for all who read it.
        way = f"${{keyring:{name}}}" if is_secret_name(name) else f"${{{name}:-default}}"
        raise MistakeError(path, f"the variable {name} is not set; set it, or write {way}", lacks_value=True)

    def _predefined(self, said: str) -> str | None:
        known = {
            "workspaceFolder": self.workspace,
            "workspaceFolderBasename": self.workspace.name,
            "workspaceRoot": self.workspace,
            "userHome": home(self.environ),
            "pathSeparator": os.sep,
            "/": os.sep,
        }
        return str(known[said]) if said in known else None

    def _input(self, name: str, path: str) -> str:
        variable = input_variable(name)
        for source, key in ((self.inputs, name), (self.environ, variable), (self.defaults, name)):
            if key in source:
                return source[key]
        described = self.descriptions.get(name)
        told = f" ({one_line(described, _DESCRIBED_CHARACTERS)})" if described else ""
        message = f"the input {short(name)}{told} has no value; set the environment variable {variable}"
        raise MistakeError(path, message, lacks_value=True)

    def _of_keyring(self, written: str, path: str) -> str:
        service, slash, name = written.rpartition("/")
        service = service if slash else KEYRING_SERVICE
        try:
            found = self.keyring(service, name)
        except ImportError:
            message = "the keyring is not installed; install codemode-gateway[keyring]"
            raise MistakeError(path, message, lacks_value=True) from None
        except Exception:  # noqa: BLE001 - backends raise what they like, and their words may tell what they hold
            message = f"the keyring of this system could not be asked for {short(written)}; is it unlocked?"
            raise MistakeError(path, message, lacks_value=True) from None
        if found is None:
            message = f"the keyring has no {short(written)}; give it one with `keyring set {service} {name}`"
            raise MistakeError(path, message, lacks_value=True)
        return found


_UNKNOWN = (
    "the variable {} is not known here; known are ${{NAME}}, ${{NAME:-default}} with a default that holds no variable, "
    "${{env:NAME}}, ${{input:id}}, ${{keyring:name}}, ${{workspaceFolder}} and ${{userHome}}; for the text itself "
    "write $${{"
)


@dataclass
class Filling:
    """Fills in variables and gathers what nobody may read; one for each server, one for the top."""

    variables: Variables
    secrets: set[str] = field(default_factory=set[str], repr=False)
    files: set[Path] = field(default_factory=set[Path])
    """Files beside the configuration that say a part of it, be they there or not."""

    def text(self, value: Any, path: str) -> str:
        return self.variables.expand(codemode_section.a_text(value, path), path, self.secrets)

    def texts(self, value: Any, path: str) -> tuple[str, ...]:
        found = codemode_section.texts(value, path)
        return tuple(self.text(one, f"{path}[{index}]") for index, one in enumerate(found))

    def table(self, value: Any, path: str) -> dict[str, str]:
        """Return an object of strings; what is null is left out, as editors have it."""
        found = codemode_section.an_object(value, path).items()
        given = [(key, one, inside(path, key)) for key, one in found if one is not None]
        return {key: self.text(codemode_section.as_text(one, at), at) for key, one, at in given}

    def within(self, value: Any, path: str) -> Any:
        """Return any value with the variables of all its strings filled in."""
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, Mapping):
            found = codemode_section.an_object(cast("Any", value), path)
            return {key: self.within(one, inside(path, key)) for key, one in found.items()}
        if isinstance(value, list | tuple):
            items = cast("list[Any]", value)
            return [self.within(one, f"{path}[{index}]") for index, one in enumerate(items)]
        return value
