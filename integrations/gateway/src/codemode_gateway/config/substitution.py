"""Substitute `${VARIABLE}`, keyring entries and inputs; parse .env files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from codemode.trace.visible_text import clip_to_visible_line

from . import codemode_section
from .config_file import ConfigFieldError, join_field_path, quote_name
from .locations import get_home_folder
from .secret_detection import is_secret_name, is_secret_variable

_ASSIGNMENT = re.compile(
    r"""[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*"""
    r"""("(?:[^"\\]|\\.)*"|'[^']*'|[^\r\n]*)[ \t]*(\#[^\r\n]*)?(?:\r\n|\r|\n|\Z)""",
    re.DOTALL,
)
_BLANK_LINE = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n|\Z)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def parse_env_file(text: str, path: str, name: str) -> dict[str, str]:
    """Parse the .env file ``name``. Raises `ConfigFieldError` with the line number."""
    variables, position = dict[str, str](), 0
    while position < len(text):
        if blank := _BLANK_LINE.match(text, position):
            position = blank.end()
            continue
        line = _ASSIGNMENT.match(text, position)
        if line is None:
            number = text.count("\n", 0, position) + 1
            raise ConfigFieldError(path, f"{name}, line {number}: expected NAME=value, a comment or an empty line")
        variables[line[1]] = _parse_env_value(line[2])
        position = line.end()
    return variables


def _parse_env_value(value_text: str) -> str:
    if value_text.startswith('"') and value_text.endswith('"') and len(value_text) > 1:
        return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), value_text[1:-1], flags=re.DOTALL)
    if value_text.startswith("'") and value_text.endswith("'") and len(value_text) > 1:
        return value_text[1:-1]
    return re.split(r"(?:^|[ \t])#", value_text, maxsplit=1)[0].strip()


KEYRING_SERVICE = "codemode"
_MAX_DESCRIPTION_CHARACTERS = 120

_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\([A-Za-z0-9]*\))?")

Keyring = Callable[[str, str], str | None]


def _read_keyring(service: str, name: str) -> str | None:
    # Late import: keyring is optional and slow to import.
    import keyring  # pyright: ignore[reportMissingImports]

    return cast("Any", keyring).get_password(service, name)


def escape_variables(text: str) -> str:
    """Return a text that expands to ``text``."""
    return text.replace("${", "$${")


def expand_workspace_variables(text: str, workspace: Path) -> str:
    """Return ``text`` with the variables of the workspace substituted; other variables stay variables."""
    values = _create_workspace_values(workspace)

    def substitute_match(match: re.Match[str]) -> str:
        return escape_variables(values[match[1]]) if match[1] in values else match[0]

    return _VARIABLE.sub(substitute_match, text)


def _create_workspace_values(workspace: Path) -> dict[str, str]:
    folder = str(workspace)
    return {"workspaceFolder": folder, "workspaceFolderBasename": workspace.name, "workspaceRoot": folder}


def get_input_variable_name(name: str) -> str:
    """Return the environment variable for the input ``name``."""
    return "CODEMODE_INPUT_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


@dataclass(frozen=True)
class Variables:
    """Sources of variable values. ``defaults`` and ``descriptions`` belong to the inputs that the file declares."""

    environ: Mapping[str, str]
    workspace: Path
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    descriptions: Mapping[str, str] = field(default_factory=dict[str, str])
    keyring: Keyring = _read_keyring

    def __repr__(self) -> str:
        return "<Variables>"

    def expand(self, text: str, path: str, secrets: set[str]) -> str:
        """Return ``text`` with its variables substituted, and add secret values to ``secrets``.

        Values are not expanded again. ``$${`` means a literal ``${``. Raises `ConfigFieldError` for a variable without
        a value.
        """

        def substitute_match(match: re.Match[str]) -> str:
            return "${" if match[1] is None else self._resolve_variable(match[1], path, secrets)

        return _VARIABLE.sub(substitute_match, text)

    def _resolve_variable(self, expression: str, path: str, secrets: set[str]) -> str:
        kind, colon, argument = expression.partition(":")
        if colon and kind == "input":
            secrets.add(value := self._get_input_value(argument, path))
            return value
        if colon and kind == "keyring":
            secrets.add(value := self._get_from_keyring(argument, path))
            return value
        if (value := self._get_predefined_value(expression)) is not None:
            return value
        name, has_default, default = (argument if colon and kind == "env" else expression).partition(":-")
        if not _VARIABLE_NAME.fullmatch(name) or "${" in default:
            raise ConfigFieldError(path, _UNKNOWN_VARIABLE_MESSAGE.format(quote_name("${" + name + "}")))
        if (value := self.environ.get(name)) or (value is not None and not has_default):
            if is_secret_variable(name, value):
                secrets.add(value)
            return value
        if has_default:
            return default
        # A secret must not be a default in the file.
        alternative = f"${{keyring:{name}}}" if is_secret_name(name) else f"${{{name}:-default}}"
        raise ConfigFieldError(
            path, f"the variable {name} is not set; set it, or write {alternative}", lacks_value=True
        )

    def _get_predefined_value(self, expression: str) -> str | None:
        predefined = {
            **_create_workspace_values(self.workspace),
            "userHome": str(get_home_folder(self.environ)),
            "pathSeparator": os.sep,
            "/": os.sep,
        }
        return predefined.get(expression)

    def _get_input_value(self, name: str, path: str) -> str:
        variable = get_input_variable_name(name)
        for source, key in ((self.inputs, name), (self.environ, variable), (self.defaults, name)):
            if key in source:
                return source[key]
        described = self.descriptions.get(name)
        description = f" ({clip_to_visible_line(described, _MAX_DESCRIPTION_CHARACTERS)})" if described else ""
        message = f"the input {quote_name(name)}{description} has no value; set the environment variable {variable}"
        raise ConfigFieldError(path, message, lacks_value=True)

    def _get_from_keyring(self, reference: str, path: str) -> str:
        service, slash, name = reference.rpartition("/")
        service = service if slash else KEYRING_SERVICE
        try:
            value = self.keyring(service, name)
        except ImportError:
            message = "the keyring is not installed; install codemode-gateway[keyring]"
            raise ConfigFieldError(path, message, lacks_value=True) from None
        except Exception:  # noqa: BLE001 - backends raise any error, and its message may contain the secret
            message = f"the keyring of this system could not be read for {quote_name(reference)}; is it unlocked?"
            raise ConfigFieldError(path, message, lacks_value=True) from None
        if value is None:
            message = f"the keyring has no {quote_name(reference)}; add it with `keyring set {service} {name}`"
            raise ConfigFieldError(path, message, lacks_value=True)
        return value


_UNKNOWN_VARIABLE_MESSAGE = (
    "unknown variable {}; use ${{NAME}}, ${{NAME:-default}} with a default that has no variable, "
    "${{env:NAME}}, ${{input:id}}, ${{keyring:name}}, ${{workspaceFolder}} and ${{userHome}}; for the text itself "
    "write $${{"
)


@dataclass
class Substitution:
    """Substitutes variables and collects secrets, once for each server and once for the section."""

    variables: Variables
    secrets: set[str] = field(default_factory=set[str], repr=False)
    files: set[Path] = field(default_factory=set[Path])
    """Files with parts of the configuration, whether they exist or not."""

    def substitute_text(self, value: Any, path: str) -> str:
        return self.variables.expand(codemode_section.require_text(value, path), path, self.secrets)

    def substitute_texts(self, value: Any, path: str) -> tuple[str, ...]:
        texts = codemode_section.to_texts(value, path)
        return tuple(self.substitute_text(text, f"{path}[{index}]") for index, text in enumerate(texts))

    def substitute_object_without_nulls(self, value: Any, path: str) -> dict[str, str]:
        """Return an object of strings without null values, which editors ignore too."""
        items = codemode_section.require_object(value, path).items()
        present = [(key, item, join_field_path(path, key)) for key, item in items if item is not None]
        return {
            key: self.substitute_text(codemode_section.to_text(item, item_path), item_path)
            for key, item, item_path in present
        }

    def substitute_value(self, value: Any, path: str) -> Any:
        """Return a JSON value with the variables of all its strings substituted."""
        if isinstance(value, str):
            return self.substitute_text(value, path)
        if isinstance(value, Mapping):
            fields = codemode_section.require_object(cast("Any", value), path)
            return {key: self.substitute_value(item, join_field_path(path, key)) for key, item in fields.items()}
        if isinstance(value, list | tuple):
            items = cast("list[Any]", value)
            return [self.substitute_value(item, f"{path}[{index}]") for index, item in enumerate(items)]
        return value
