"""Users, and authentication by token, proxy header or function."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from starlette.requests import Request

from codemode.options.checked_fields import WrongTypeError
from codemode.stores import ALL_TENANTS
from codemode.stores.records import Tenant

from .visible_text import to_visible_text
from .web import TrustedProxies, get_peer_address

_log = logging.getLogger("codemode.console")
_MAX_NAME_CHARACTERS = 1000
_MAX_LOGGED_CHARACTERS = 200
_HASH_PREFIX = "sha256:"
_HEX_DIGITS = frozenset("0123456789abcdef")
_MAX_TOKEN_CHARACTERS = 4096
_MAX_TENANTS = 200  # the store's limit
Tenants: TypeAlias = Collection[str] | Tenant


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user.

    Args:
        name: Name in the audit, at most 1,000 characters.
        tenants: At most 200 tenants whose records the user sees, or `ALL_TENANTS`.
        may_decide: False for users who may only look.

    Raises `ValueError` for other values.
    """

    name: str
    tenants: Tenants
    may_decide: bool = True

    def __post_init__(self) -> None:
        name = cast("Any", self.name)
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME_CHARACTERS or not name.isprintable():
            raise ValueError(f"name must be a visible text of at most {_MAX_NAME_CHARACTERS} characters, got {name!r}")
        if not isinstance(cast("object", self.may_decide), bool):
            raise WrongTypeError(f"may_decide must be True or False, got {self.may_decide!r}")
        object.__setattr__(self, "tenants", _normalize_tenants(self.tenants))

    def can_see(self, tenant: str) -> bool:
        """Return whether the user may see records of this tenant."""
        return self.tenants is ALL_TENANTS or tenant in self.tenants


def _normalize_tenants(tenants: Any) -> Tenants:
    if tenants is ALL_TENANTS:
        return ALL_TENANTS
    if isinstance(tenants, str) or not isinstance(tenants, Iterable):
        raise WrongTypeError(f"tenants must be a collection of names, or ALL_TENANTS, got {tenants!r}")
    names = frozenset(cast("Iterable[Any]", tenants))
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"tenants must be texts, got {tenants!r}")
    if len(names) > _MAX_TENANTS:
        raise ValueError(f"tenants must be at most {_MAX_TENANTS} names, or ALL_TENANTS, got {len(names)}")
    return cast("frozenset[str]", names)


def new_token() -> str:
    """Return a new token of 256 random bits."""
    return secrets.token_urlsafe(32)


def new_private_path() -> str:
    """Return a new random path for `ConsoleOptions.private_path`."""
    return f"~{secrets.token_urlsafe(24)}"


def token_hash(token: str) -> str:
    """Return the stored form of a token: "sha256:" and its SHA-256, without a salt since tokens are random."""
    return _HASH_PREFIX + hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class TokenAuth:
    """Users by the hashes of their tokens (see `token_hash`). They sign in on a page.

    Raises `ValueError` for keys that are no hashes, such as tokens, and for values that are no `User`.
    """

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users: dict[str, User] = {}
        self.replace(users)

    def replace(self, users: Mapping[str, User]) -> None:
        """Replace the users; sessions of removed users end at once. Raises `ValueError`."""
        users_by_hash = {_normalize_token_hash(key): _require_user(user) for key, user in users.items()}
        if not users_by_hash:
            raise ValueError("TokenAuth needs at least one user")
        self._users = users_by_hash

    @classmethod
    def from_json(cls, text: str) -> TokenAuth:
        """Read ``{hash: {"name": ..., "tenants": [...] or "*", "may_decide": false}}``.

        ``may_decide`` is true by default. Raises `ValueError`.
        """
        users: Any = json.loads(text, object_pairs_hook=_reject_duplicate_keys)
        if not isinstance(users, dict):
            raise WrongTypeError("a file of tokens must be an object of users by the hashes of their tokens")
        return cls({key: _parse_user(value) for key, value in cast("dict[str, Any]", users).items()})

    def find_by_token(self, token: str) -> User | None:
        """Return the user of a token."""
        # Hashing first makes the time of the lookup useless for guessing tokens.
        return None if len(token) > _MAX_TOKEN_CHARACTERS else self._users.get(token_hash(token))

    async def authenticate(self, token: str, request: Request) -> tuple[User, str] | None:  # noqa: ARG002
        """Return the user of a token and their session key (see `find_by_session_key`); None if unknown.

        Subclasses may accept other tokens. Raises `Problem` where a token cannot be checked now.
        """
        user = self.find_by_token(token)
        return None if user is None else (user, self.compute_session_key(token))

    @property
    def has_one_user(self) -> bool:
        """True with a single user, who cannot be signed in as another one by mistake."""
        return len(self._users) == 1

    def find_by_session_key(self, key: str) -> User | None:
        """Return the user of a session key; None after the user was removed."""
        return self._users.get(key)

    def compute_session_key(self, token: str) -> str:
        """Return the part of a token that its session stores."""
        return token_hash(token)


class ProxyHeaderAuth:
    """Users by a header that an authenticating proxy sets.

    Args:
        header: Name of the header.
        trusted_proxies: Addresses and networks from which the header is believed; others are ignored and logged.
        users: Names or `User` objects, compared without case.
        domains: Accepted domains of names such as ana@example.com. ``users`` or ``domains`` is required.
        tenants: Tenants of users that are not given as `User`.
        may_decide: False if those users may only look.

    Raises `ValueError` for invalid arguments.
    """

    def __init__(
        self,
        header: str,
        *,
        trusted_proxies: Iterable[str],
        users: Iterable[str | User] = (),
        domains: Iterable[str] = (),
        tenants: Tenants = ALL_TENANTS,
        may_decide: bool = True,
    ) -> None:
        self.trusted_proxies = TrustedProxies(trusted_proxies)
        if isinstance(users, str) or isinstance(domains, str):
            raise WrongTypeError("users and domains must be lists")
        self._users: dict[str, User] = {}
        for user in (self._to_user(name_or_user, tenants, may_decide) for name_or_user in users):
            if (existing := self._users.setdefault(user.name.lower(), user)) is not user:
                raise ValueError(f"users names {existing.name!r} and {user.name!r}, which are the same without case")
        self._domains = frozenset(domain.removeprefix("@").lower() for domain in domains)
        self._header, self._tenants, self._may_decide = header.lower(), _normalize_tenants(tenants), may_decide
        if not self.trusted_proxies or not (self._users or self._domains):
            raise ValueError("ProxyHeaderAuth needs trusted_proxies, and users or domains")
        if not header.isascii() or not header.replace("-", "").isalnum():
            raise ValueError(f"header must be the name of a header, got {header!r}")

    @staticmethod
    def _to_user(name_or_user: str | User, tenants: Tenants, may_decide: bool) -> User:
        return name_or_user if isinstance(name_or_user, User) else User(name_or_user, tenants, may_decide)

    async def __call__(self, request: Request) -> User | None:
        """Return the user whom the proxy names."""
        values = request.headers.getlist(self._header)
        if not values:
            return None
        peer = get_peer_address(request)
        if peer not in self.trusted_proxies:
            _log.warning("the header %s from %s, which is not a trusted proxy, was ignored", self._header, peer)
            return None
        if len(values) > 1:
            _log.warning("the header %s of %s came %d times and was ignored", self._header, peer, len(values))
            return None
        user = self._find_or_create_user(values[0])
        if user is None and values[0]:
            name = to_visible_text(values[0][:_MAX_LOGGED_CHARACTERS], one_line=True)
            _log.warning("%s, signed in by the proxy %s, is not a user", name, peer)
        return user

    def has_user_name(self, request: Request) -> bool:
        """Return whether a trusted proxy names a user, known or not."""
        values = request.headers.getlist(self._header)
        return len(values) == 1 and bool(values[0]) and get_peer_address(request) in self.trusted_proxies

    def _find_or_create_user(self, name: str) -> User | None:
        name = name.lower()
        if name in self._users:
            return self._users[name]
        person, _, domain = name.partition("@")
        # With a second @, a comma or a space a name could be mistaken for another.
        is_unambiguous = name.isascii() and name.isprintable() and not set(name) & set(" ,;<>\"'()")
        if not person or not is_unambiguous or len(name) > _MAX_NAME_CHARACTERS or domain not in self._domains:
            return None
        return User(name, self._tenants, self._may_decide)


AuthFunction: TypeAlias = Callable[[Request], Awaitable[User | None]]
Auth: TypeAlias = TokenAuth | ProxyHeaderAuth | AuthFunction


def validate_auth(auth: Any) -> Auth:
    """Return ``auth``. Raises `ValueError` without one: a console is never open to all."""
    if auth is None or not (isinstance(auth, TokenAuth) or callable(auth)):
        raise ValueError(
            "auth must be TokenAuth, ProxyHeaderAuth or an async function of the request: without it everybody could"
            f" decide; got {auth!r:.100}"
        )
    return cast("Auth", auth)


async def call_auth_function(auth: AuthFunction, request: Request) -> User | None:
    """Call an authentication function. Raises `TypeError` unless it returns a `User` or None."""
    user = cast("Any", await auth(request))
    if user is None or isinstance(user, User):
        return user
    raise TypeError(f"auth must return a User or None, got {type(user).__name__}")


def _normalize_token_hash(key: str) -> str:
    digest = key.lower().removeprefix(_HASH_PREFIX)
    if len(digest) != 64 or not set(digest) <= _HEX_DIGITS:
        # The key may be an unhashed token, so the message does not contain it.
        raise ValueError("the keys of TokenAuth must be hashes of tokens, as token_hash(token) makes them")
    return _HASH_PREFIX + digest


def _require_user(user: Any) -> User:
    if not isinstance(user, User):
        raise WrongTypeError(f"the values of TokenAuth must be User objects, got {type(user).__name__}")
    return user


def _parse_user(value: Any) -> User:
    if not isinstance(value, dict):
        raise WrongTypeError("each user in a file of tokens must be an object with name and tenants")
    fields = cast("dict[str, Any]", value)
    if not fields.keys() <= {"name", "tenants", "may_decide"} or not {"name", "tenants"} <= fields.keys():
        expected = "a user has name, tenants and optionally may_decide"
        raise ValueError(f"{expected}, got {', '.join(sorted(fields))}")
    tenants = ALL_TENANTS if fields["tenants"] == "*" else fields["tenants"]
    return User(fields["name"], tenants, fields.get("may_decide", True))


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a tokens file has a duplicate key")
    return members
