"""The one value in which surfaces differ. Nothing below `surfaces/` asks for a profile's name to decide anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .options.parts import ExecutionPolicy


@dataclass(frozen=True, kw_only=True)
class GuestFace:
    """How a program stands in its guest: rows of the tables in `guest/kernel/faces.js`.

    ``wrapper`` is the function that the program's text becomes the body of; ``globals`` are installed by name when the
    program starts, and ``fetch`` beside them where profile and policy have it.
    """

    wrapper: Literal["sloppy", "strict"]
    globals: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a surface asks of a run. A field is here because something reads it.

    ``name`` is signed into continuations, which only go on under the same one, and part of the program cache's key.
    ``outer_tool`` is what the model calls; spans name it. ``request_kinds`` are those that a program may make.
    ``limits`` are the defaults of this surface, for those that the host does not set.
    """

    name: str
    outer_tool: str
    guest: GuestFace
    request_kinds: frozenset[str] = frozenset({"tool", "catalog", "fetch"})
    limits: ExecutionPolicy = field(default_factory=ExecutionPolicy)
