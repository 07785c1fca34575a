"""Who and what there is: names that several servers tell of."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)
LOGINS = ("ada", "bruno", "chidi", "dewi", "elif", "farid", "greta", "hugo", "ines", "jun", "kofi", "lena")
SERVICES = (
    "checkout-api",
    "payments-api",
    "payments-worker",
    "catalog-api",
    "search-api",
    "cart-api",
    "orders-api",
    "orders-worker",
    "mail-worker",
    "stock-sync",
    "auth-api",
    "edge-proxy",
)
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def seeded(name: str) -> random.Random:
    """Return the random numbers of one server: the same in every world, whatever the others do."""
    return random.Random(f"tokens:{name}")


def text_of(moment: datetime) -> str:
    """As GitHub and CloudWatch write it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def before(days: float) -> datetime:
    """Return the moment so many days before now."""
    return NOW - timedelta(days=days)


def node_id(numbers: random.Random, prefix: str) -> str:
    return f"{prefix}_kwDO" + "".join(numbers.choices(_LETTERS, k=14))


def sha(numbers: random.Random) -> str:
    return f"{numbers.getrandbits(160):040x}"


def user(login: str) -> dict[str, Any]:
    """Return a user with the fields that the types of the published server name."""
    number = 4_100_000 + 7919 * LOGINS.index(login)
    return {
        "login": login,
        "id": number,
        "avatar_url": f"https://avatars.githubusercontent.com/u/{number}?v=4",
        "url": f"https://api.github.com/users/{login}",
        "html_url": f"https://github.com/{login}",
    }
