"""Chaos with consoles: people who click in web pages, and whoever serves, resumes or clicks is killed at random.

``python -m tests.soak.consoles [records] [seed] [sqlite|postgres] [guard|journal]`` is `tests.soak.pauses` with two
consoles between the people and the database.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tests.soak import console_hosts, pauses
from tests.soak.pauses import PEOPLE, Chaos
from tests.support.free_ports import free_ports

CONSOLES = 2
_HOSTS = console_hosts.__name__


class ConsoleChaos(Chaos):
    """As its parent, with consoles that die too."""

    modules: ClassVar[tuple[str, ...]] = (*Chaos.modules, _HOSTS)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ports = dict(zip((f"console {number}" for number in range(CONSOLES)), free_ports(CONSOLES), strict=True))

    def _names(self) -> list[str]:
        return [*self._ports, *super()._names()]

    def _host(self, name: str) -> list[Any]:
        if name in self._ports:
            return [_HOSTS, "serve_for_ever", *self.database, self._ports[name], list(PEOPLE)]
        if name in PEOPLE:
            return [_HOSTS, "click_for_ever", *self._person(name), list(self._ports.values())]
        return super()._host(name)


if __name__ == "__main__":
    pauses.main("consoles", "200", of=ConsoleChaos)
