"""What is known of the clients that a gateway meets: which names they take, how much they read, how they can ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from codemode.data.narrowing import is_mapping

from ..config.model import GatewaySettings

# A client is known by the name it gives itself; what is here was seen at its documents, its source or its issues.

Asks = Literal["declared", "console"]

DOTTED, PLAIN = "codemode.run", "codemode_run"
TOOL_NAMES = (DOTTED, PLAIN)
"""Both are always accepted, whichever is announced."""

_VIA = (" (via ", " via ")


@dataclass(frozen=True)
class Announced:
    """What one client is shown, and how it can ask a person.

    ``tool_name`` is the announced name, ``description_characters`` what it reads of a description; ``asks`` is
    ``declared`` where it can do what it declares, ``console`` where it is not to be asked at all.
    """

    tool_name: str = PLAIN
    description_characters: int = 4_000
    takes_dots: bool = False
    asks: Asks = "declared"


# Without a row: an underscore, 4,000 characters, and the ways to ask that the client itself declares.
CLIENTS: Mapping[str, Announced] = {
    "claude-code": Announced(description_characters=2_000),  # cuts at 2,048, and says so in no log
    "codex-mcp-client": Announced(description_characters=4_000),
    "mcp-inspector": Announced(takes_dots=True),
    "inspector-client": Announced(takes_dots=True),
    "inspector-cli": Announced(takes_dots=True),
}


def announced(client_info: Any, settings: GatewaySettings) -> Announced:
    """Return what a client is shown: by its name, with what the settings say otherwise.

    ``client_info`` is the SDK's ``Implementation``, or None. ``settings.clients`` has, by name, ``toolName``,
    ``descriptionCharacters`` and ``asks``; ``*`` is every client.
    """
    name = _plain(getattr(client_info, "name", None))
    known = CLIENTS.get(name, Announced())
    wanted = settings.tool_name
    own = {_plain(key): value for key, value in settings.clients.items()}
    for said in (own.get("*"), own.get(name)):
        if is_mapping(said):
            wanted = str(said.get("toolName", wanted))
            known = _overridden(known, said)
    auto = DOTTED if known.takes_dots else PLAIN
    return replace(known, tool_name=auto if wanted == "auto" else wanted)


def _overridden(known: Announced, said: Mapping[str, Any]) -> Announced:
    characters = said.get("descriptionCharacters", known.description_characters)
    return replace(known, description_characters=int(characters), asks=said.get("asks", known.asks))


def _plain(name: Any) -> str:
    """Return a name as the table has it: a proxy adds itself to the name of the client behind it."""
    plain = name.casefold() if isinstance(name, str) else ""
    for via in _VIA:
        plain = plain.partition(via)[0]
    return plain.strip()
