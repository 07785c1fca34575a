"""Strings of one part of a configuration with their variables filled in, and the secrets that came in by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from . import checks
from .mistakes import inside
from .variables import Variables


@dataclass
class Filling:
    """Fills in variables and gathers what nobody may read; one for each server, one for the top."""

    variables: Variables
    secrets: set[str] = field(default_factory=set[str], repr=False)
    files: set[Path] = field(default_factory=set[Path])
    """Files beside the configuration that say a part of it, be they there or not."""

    def text(self, value: Any, path: str) -> str:
        return self.variables.expand(checks.a_text(value, path), path, self.secrets)

    def texts(self, value: Any, path: str) -> tuple[str, ...]:
        found = checks.texts(value, path)
        return tuple(self.text(one, f"{path}[{index}]") for index, one in enumerate(found))

    def table(self, value: Any, path: str) -> dict[str, str]:
        """Return an object of strings; what is null is left out, as editors have it."""
        found = checks.an_object(value, path).items()
        given = [(key, one, inside(path, key)) for key, one in found if one is not None]
        return {key: self.text(checks.as_text(one, at), at) for key, one, at in given}

    def within(self, value: Any, path: str) -> Any:
        """Return any value with the variables of all its strings filled in."""
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, Mapping):
            found = checks.an_object(cast("Any", value), path)
            return {key: self.within(one, inside(path, key)) for key, one in found.items()}
        if isinstance(value, list | tuple):
            items = cast("list[Any]", value)
            return [self.within(one, f"{path}[{index}]") for index, one in enumerate(items)]
        return value
