"""The team's knowledge graph: who owns a service, and who is called at night."""

from __future__ import annotations

from typing import Any

from .people import LOGINS, SERVICES

_TEAMS = ("Team Checkout", "Team Payments", "Team Catalog", "Team Platform")
_OWNED = {"payments": 1, "catalog": 2, "search": 2, "stock": 2, "mail": 3, "auth": 3, "edge": 3}


class Knowledge:
    def __init__(self) -> None:
        self._entities = [*map(_service, SERVICES), *map(_team, _TEAMS), *map(_person, LOGINS)]
        self._relations = [
            *(_relation(one, _TEAMS[_OWNED.get(one.split("-")[0], 0)], "is_owned_by") for one in SERVICES),
            *(_relation(one, LOGINS[at * 3], "has_on_call") for at, one in enumerate(_TEAMS)),
            *(_relation(one, _TEAMS[at // 3], "works_in") for at, one in enumerate(LOGINS)),
        ]

    def functions(self) -> dict[str, Any]:
        return {
            "memory_search_nodes": self._search_and_count_event,
            "memory_open_nodes": self._open,
            "memory_read_graph": self._read_file,
        }

    async def _search_and_count_event(self, given: dict[str, Any]) -> dict[str, Any]:
        wanted = given["query"].lower()
        texts = {
            one["name"]: " ".join([one["name"], one["entityType"], *one["observations"]]) for one in self._entities
        }
        return self._about({name for name, text in texts.items() if wanted in text.lower()})

    async def _open(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._about(set(given["names"]))

    async def _read_file(self, _given: dict[str, Any]) -> dict[str, Any]:
        return self._about({one["name"] for one in self._entities})

    def _about(self, names: set[str]) -> dict[str, Any]:
        return {
            "entities": [one for one in self._entities if one["name"] in names],
            "relations": [one for one in self._relations if one["from"] in names or one["to"] in names],
        }


def _relation(start: str, end: str, kind: str) -> dict[str, str]:
    return {"from": start, "to": end, "relationType": kind}


def _service(name: str) -> dict[str, Any]:
    said = [
        f"Deployed from acme/shop, folder services/{name}",
        "Runs on ECS in eu-central-1, three tasks",
        "Python 3.14",
    ]
    return {"name": name, "entityType": "service", "observations": said}


def _team(name: str) -> dict[str, Any]:
    said = [f"Channel #{name.lower().replace(' ', '-')}", "Stand-up at 09:30 Berlin", "Hands over on Mondays"]
    return {"name": name, "entityType": "team", "observations": said}


def _person(login: str) -> dict[str, Any]:
    number = 3000 + 17 * LOGINS.index(login)
    said = [f"GitHub login {login}", f"Phone +49 30 555 {number}", "Prefers a call to a message at night"]
    return {"name": login, "entityType": "person", "observations": said}
