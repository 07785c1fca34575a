"""What models have been shown of the servers of a run tool. Lists nothing, and runs no program."""

from __future__ import annotations

from collections.abc import Mapping

from .description import RunDescription, described
from .options import RunOptions
from .server_set import ServerSet


class Descriptions:
    """The descriptions of one tool, each made once for each listing and length. Safe to use from several threads."""

    def __init__(self, servers: ServerSet, options: RunOptions) -> None:
        self._servers = servers
        self._options = options
        self._made: tuple[object, dict[int, RunDescription]] | None = None
        self._read: RunDescription | None = None

    @property
    def is_read(self) -> bool:
        """True once somebody has asked for one."""
        return self._read is not None

    @property
    def read_of(self) -> Mapping[str, str]:
        """The modules that a model has read the declarations of, by the paths of their servers."""
        return {} if self._read is None else self._read.declared

    def read(self, most: int | None = None) -> RunDescription:
        """Return what a model reads from now on, of the servers as they were last listed.

        Of models that read different ones, what is known of all is what the shortest declares.
        """
        mine, known = self._description(most), self._read
        if known is None or known not in self._of_now().values() or len(mine.text) < len(known.text):
            self._read = mine
        return mine

    def take_as_read(self) -> None:
        """Have what nobody has asked for be what it would be now. Metered work."""
        if self._read is None:
            self._read = self._description()

    def _description(self, most: int | None = None) -> RunDescription:
        made, most = self._of_now(), most or self._options.max_description_characters
        return made.get(most) or made.setdefault(most, described(self._servers.shown(), self._options, most))

    def _of_now(self) -> dict[int, RunDescription]:
        listed, made = self._servers.listing(), self._made
        if made is None or made[0] != listed:
            made = self._made = (listed, {})
        return made[1]
