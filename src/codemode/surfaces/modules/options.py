"""Options of `codemode.run`: what a request may ask for, how much the model is shown, what is never told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ...options.checked_fields import limit
from ...options.part import OptionPart
from .limits import RunCeilings, RunLimits, settled


def _secrets(value: Any, path: str) -> tuple[str, ...]:
    items = cast("list[Any]", [*value]) if isinstance(value, list | tuple | set | frozenset) else None
    if items is None or not all(isinstance(one, str) and one for one in items):
        # The values themselves are secrets and stay out of the message.
        raise ValueError(f"{path} must be a list of non-empty strings")
    # What holds another secret goes first, so that nothing of it is left.
    return tuple(sorted(dict.fromkeys(items), key=len, reverse=True))


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RunOptions(OptionPart):
    """Options of `create_run_tool`. ``limits`` and ``ceilings`` are mappings with snake_case or camelCase keys.

    ``limits`` hold what a request has that asks for nothing, ``ceilings`` the most that it may ask for, each of
    ``timeout_ms`` (30,000), ``max_memory_bytes`` (64 MiB), ``max_log_bytes`` (64 KiB), ``max_tool_calls`` (256),
    ``max_concurrent_tool_calls`` (32) and ``max_result_bytes`` (100,000). A limit without a ceiling is its own ceiling;
    the ceilings of limits that nobody names are 120,000, 256 MiB, 1 MiB, 1,024, 64 and 1 MiB.
    ``max_description_characters`` bounds the description, ``max_declarations_characters`` what an answer adds to it.
    ``secrets`` are texts that no error shows a program or a model. Raises `ValueError` naming what is wrong.
    """

    limits: RunLimits = field(default_factory=RunLimits)
    ceilings: RunCeilings = field(default_factory=RunCeilings)
    max_description_characters: int = limit(4_000)
    max_declarations_characters: int = limit(20_000)
    secrets: tuple[str, ...] = field(default=(), repr=False, metadata={"check": _secrets})

    def __init__(
        self,
        limits: RunLimits | Mapping[str, Any] | None = None,
        ceilings: RunCeilings | Mapping[str, Any] | None = None,
        max_description_characters: int = 4_000,
        max_declarations_characters: int = 20_000,
        secrets: Iterable[str] = (),
    ) -> None:
        given = settled(RunLimits.of(limits), RunCeilings.of(ceilings))
        values = (*given, max_description_characters, max_declarations_characters, secrets)
        names = ("limits", "ceilings", "max_description_characters", "max_declarations_characters", "secrets")
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)
        self.__post_init__()
