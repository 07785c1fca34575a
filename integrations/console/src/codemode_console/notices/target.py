"""Targets of notices, and the URL of a record."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast
from urllib.parse import quote

import httpx

from codemode.options.checked_fields import WrongTypeError
from codemode.stores import Notice, Record, StoredRequest

from ..visible_text import is_all_visible
from ..web import extract_origin

MAX_LISTED_REQUESTS = 50
_MAX_NAME_CHARACTERS = 1_000


def format_record_url(base_url: str, record_id: str) -> str:
    """Return the URL of a record's page."""
    return f"{base_url.rstrip('/')}/records/{quote(record_id, safe='')}"


def list_pending_requests(record: Record) -> list[StoredRequest]:
    """Return the pending requests of a record."""
    return [request for request in record.requests if request.state == "waiting"]


def truncate_text(text: str, max_characters: int = _MAX_NAME_CHARACTERS) -> str:
    """Return a text, or its beginning and an ellipsis."""
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}\N{HORIZONTAL ELLIPSIS}"


_MAX_TARGET_NAME_CHARACTERS = 100
_MAX_URL_CHARACTERS = 2_000
_DIGEST_CHARACTERS = 16
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """Headers and body to post. They may be secret or long and are not in ``repr``."""

    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class NoticeTarget(ABC):
    """A URL that notices are posted to. ``name`` is used in store, pages and logs and holds no secret.

    The default name is the kind and a digest of the URL. Raises `ValueError`.
    """

    kind: ClassVar[str]

    def __init__(self, url: str, *, include_input: bool = False, name: str | None = None) -> None:
        self._url = _validate_webhook_url(url)
        if not isinstance(cast("object", include_input), bool):
            raise WrongTypeError(f"include_input must be True or False, got {include_input!r:.100}")
        self._include_input = include_input
        digest = hashlib.sha256(self._url.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        self.name = f"{self.kind}-{digest}" if name is None else _validate_target_name(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, include_input={self._include_input})"

    @property
    def url(self) -> str:
        """The URL, which may hold a secret."""
        return self._url

    @abstractmethod
    def create_request(self, notice: Notice, link: str, now: float) -> WebhookRequest:
        """Return the request to post at Unix time ``now``. It contains no credential."""


def validate_notice_targets(notify: Any, base_url: str | None) -> tuple[NoticeTarget, ...]:
    """Return the targets of a console. Raises `ValueError`, also without a base URL for links."""
    if isinstance(notify, NoticeTarget | str) or not isinstance(notify, Iterable):
        raise WrongTypeError("notify must be a list of Webhook and SlackWebhook")
    targets = tuple(cast("Iterable[Any]", notify))
    for target in targets:
        if not isinstance(target, NoticeTarget):
            raise WrongTypeError(
                f"notify must be a list of Webhook and SlackWebhook, got {type(target).__name__} in it"
            )
    names = [target.name for target in targets]
    if len(set(names)) < len(names):
        raise ValueError("notify has two targets of one name, or of one URL without names")
    if targets:
        _require_base_url_for_links(base_url)
    return targets


def _require_base_url_for_links(base_url: str | None) -> None:
    if base_url is None:
        raise ValueError("notify needs base_url, where the console is for browsers: each notice has a link")
    if extract_origin(base_url) is None or set(base_url) & set("?#|<>") or len(base_url) > _MAX_URL_CHARACTERS:
        raise ValueError("base_url must be the URL of the console, without a query, for the links of notices")


def _validate_webhook_url(url: Any) -> str:
    # The URL of a webhook is a secret, so no message contains it.
    if not isinstance(url, str):
        raise WrongTypeError(f"url must be a text, got {type(url).__name__}")
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError, ValueError):
        found = httpx.URL("")
    is_reachable = bool(found.host) and (found.port is None or 0 < found.port <= _MAX_PORT)
    if found.scheme not in ("http", "https") or not is_reachable or not url.isprintable() or " " in url:
        raise ValueError("url must be an http or https URL with a host")
    if found.userinfo:
        raise ValueError("url must hold no user and password")
    return url


def _validate_target_name(name: Any) -> str:
    if not isinstance(name, str):
        raise WrongTypeError(f"name must be a text, got {type(name).__name__}")
    if not 0 < len(name) <= _MAX_TARGET_NAME_CHARACTERS or not is_all_visible(name):
        raise ValueError(
            f"name must be a visible text of at most {_MAX_TARGET_NAME_CHARACTERS} characters, got {name!r}"
        )
    return name
