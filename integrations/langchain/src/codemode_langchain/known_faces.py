"""The surfaces that a middleware has made: each over the tools that some step of its agent hides."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.tools import BaseTool

from codemode.plugins import forkable_lock

from .faces import Face

_MAX_FACES = 32
_MAX_TOOLS = 8192  # of all together, about 12 kB each: a server that is listed for every request may have any number
Key = tuple[Any, ...]


class KnownFaces:
    """Makes each surface once, one at a time; what is known is found while another one is made.

    That takes a second for a thousand tools: it is for a thread, where an event loop would wait.
    """

    def __init__(self, make: Callable[[Sequence[BaseTool]], Face]) -> None:
        self._make = make
        self._faces: OrderedDict[Key, Face] = OrderedDict()
        self._lock = forkable_lock()
        self._making = forkable_lock()

    def __contains__(self, key: Key) -> bool:
        return key in self._faces

    def of(self, key: Key, tools: Sequence[BaseTool]) -> Face:
        """Return the surface that is known by a key, which changes with all that it is made of."""
        face = self._known(key)
        if face is not None:
            return face
        with self._making:
            while (face := self._known(key)) is None:  # what was made by rules that are forgotten is made again
                faces, made = self._faces, self._make(tools)
                with self._lock:
                    faces[key] = made
                    while len(faces) > 1 and (len(faces) > _MAX_FACES or _tools_of(faces) > _MAX_TOOLS):
                        faces.popitem(last=False)
            return face

    def all(self) -> list[Face]:
        """Return those that are known."""
        with self._lock:
            return list(self._faces.values())

    def forget(self) -> None:
        """Make all of them again when they are asked for."""
        with self._lock:
            self._faces = OrderedDict()

    def _known(self, key: Key) -> Face | None:
        with self._lock:
            face = self._faces.get(key)
            if face is not None:
                self._faces.move_to_end(key)
            return face


def _tools_of(faces: Mapping[Key, Face]) -> int:
    return sum(len(one.given) for one in faces.values())
