"""Remove secrets from texts, JSON values and logs, in plain and encoded forms."""

from __future__ import annotations

import base64
import binascii
import html
import logging
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, NamedTuple, cast

from codemode.data.json_shape import run_off_loop_if_large
from codemode.data.narrowing import is_array, is_mapping
from codemode.host.forks import create_fork_safe_rlock
from codemode.host.threads import BackgroundThreads

# One escaped character of a URL (as UTF-8 bytes), of JSON or a Python literal, or of HTML.
_CONTINUATION_BYTE = "%[89ABab][0-9A-Fa-f]"
_ESCAPE = re.compile(
    rf"%[0-7][0-9A-Fa-f]|%[CDcd][0-9A-Fa-f]{_CONTINUATION_BYTE}|%[Ee][0-9A-Fa-f](?:{_CONTINUATION_BYTE}){{2}}|%[Ff][0-7](?:{_CONTINUATION_BYTE}){{3}}"
    r"|\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\[^ux]"
    r"|&(?:amp|lt|gt|quot|apos|\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6});",
    re.DOTALL,
)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "0": "\0"}
_MAX_DECODINGS = 3


class DecodedView:
    """A text with its escapes decoded, which maps positions back to the original text."""

    def __init__(self, text: str, source: DecodedView | None = None, ends: list[int] | None = None) -> None:
        self.text = text
        self._source = source
        self._escape_ends = ends or []  # the end of each decoded escape in this text
        self._removed_counts: list[int] = []  # characters that decoding removed up to there

    def to_original_position(self, position: int) -> int:
        """Return the position in the original text."""
        if self._source is None:
            return position
        index = bisect_right(self._escape_ends, position) - 1
        return self._source.to_original_position(position + (self._removed_counts[index] if index >= 0 else 0))

    def decode_next_layer(self) -> DecodedView | None:
        """Return this text with its escapes decoded, or None without escapes."""
        parts: list[str] = []
        decoded = DecodedView("", self)
        removed = end = length = 0
        for match in _ESCAPE.finditer(self.text):
            start, escape_end = match.span()
            character = _decode_escape(self.text[start:escape_end])
            parts += (self.text[end:start], character)
            length += start - end + len(character)
            removed += escape_end - start - len(character)
            end = escape_end
            decoded._escape_ends.append(length)
            decoded._removed_counts.append(removed)
        if not parts:
            return None
        decoded.text = "".join([*parts, self.text[end:]])
        return decoded


def list_decoded_views(text: str) -> Iterator[DecodedView]:
    """Yield the text itself, then decoded once, twice and three times."""
    view: DecodedView | None = DecodedView(text)
    for _ in range(_MAX_DECODINGS + 1):
        if view is None:
            return
        yield view
        view = view.decode_next_layer()


def _decode_escape(escape: str) -> str:
    if escape[0] == "%":
        return bytes.fromhex(escape.replace("%", "")).decode(errors="replace")
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[1] in "ux":
        digits = [part for part in re.split(r"\\[ux]", escape) if part]
        units = b"".join(int(part, 16).to_bytes(2, "big") for part in digits)
        return units.decode("utf-16-be", errors="surrogatepass")
    return _CONTROLS.get(escape[1], escape[1])


# The length of the prefix that makes a position a candidate.
_PREFIX_LENGTH = 4


class SecretSearch:
    """Finds the longest of ``texts`` at each position of a text.

    A position costs O(log n) for n texts: they are sorted, and every match is a prefix of the last one that is not
    greater than the text at the position.
    """

    def __init__(self, texts: Mapping[str, bool]) -> None:
        self._texts = sorted(texts)
        self._matches_only_whole = dict(texts)
        self._prefix_indexes = _find_longest_prefix_indexes(self._texts)
        self._prefix_pattern = (
            re.compile(_build_prefix_pattern({text[:_PREFIX_LENGTH] for text in self._texts})) if texts else None
        )
        self._max_length = max(map(len, texts), default=0)
        self.min_length = min(map(len, texts), default=0)
        self.has_digits = any(text.isdigit() for text in texts)

    def find_matches(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """Yield start, end and flag of the longest match at each position."""
        for start in self._find_candidate_positions(text):
            match = self._find_match_at(text, start)
            if match is not None:
                yield start, start + len(match), self._matches_only_whole[match]

    def _find_candidate_positions(self, text: str) -> Iterator[int]:
        begins = self._prefix_pattern
        if begins is None:
            return
        position = 0
        while (match := begins.search(text, position)) is not None:
            yield match.start()
            position = match.start() + 1

    def _find_match_at(self, text: str, start: int) -> str | None:
        text_at_start = text[start : start + self._max_length]
        index = bisect_right(self._texts, text_at_start) - 1
        if index < 0:
            return None
        common = _compute_common_prefix_length(self._texts[index], text_at_start)
        while index >= 0 and len(self._texts[index]) > common:
            index = self._prefix_indexes[index]
        return self._texts[index] if index >= 0 else None


def _find_longest_prefix_indexes(texts: list[str]) -> list[int]:
    """Return for each sorted text the index of the longest other text that is its prefix, or -1."""
    indexes: list[int] = []
    open_indexes: list[int] = []
    for index, text in enumerate(texts):
        while open_indexes and not text.startswith(texts[open_indexes[-1]]):
            open_indexes.pop()
        indexes.append(open_indexes[-1] if open_indexes else -1)
        open_indexes.append(index)
    return indexes


def _compute_common_prefix_length(first: str, second: str) -> int:
    """Return the length of the common prefix of two texts."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if second.startswith(first[:middle]):
            low = middle
        else:
            high = middle - 1
    return low


def _build_prefix_pattern(prefixes: Iterable[str]) -> str:
    """Return a regular expression for these prefixes, as a trie."""
    tree: dict[str, set[str]] = {}
    for prefix in prefixes:
        tree.setdefault(prefix[:1], set()).add(prefix[1:])
    branches = [
        re.escape(first) + (_build_prefix_pattern(suffixes) if "" not in suffixes else "")
        for first, suffixes in sorted(tree.items())
    ]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


MIN_SECRET_LENGTH = 4
# Shorter texts are removed only as whole words, because they occur in ordinary words.
MIN_ANYWHERE_LENGTH = 8
_MIN_ENCODED_LENGTH = 8
_MIN_LINE_LENGTH = 20
_SCHEMES = ("bearer", "basic", "token", "apikey", "api-key", "key", "digest", "negotiate")


def create_search_texts(secrets: Iterable[str]) -> dict[str, bool]:
    """Return the texts to search for; True for those that only count as whole words."""
    search_texts: dict[str, bool] = {}
    for secret in secrets:
        for text in _list_secret_parts(secret):
            if len(text) >= MIN_SECRET_LENGTH:
                search_texts[text] = len(text) < MIN_ANYWHERE_LENGTH
            if len(text) >= MIN_ANYWHERE_LENGTH:
                search_texts.update(
                    (form, False) for form in _list_embedded_encodings(text) if len(form) >= _MIN_ENCODED_LENGTH
                )
            elif len(text) >= MIN_SECRET_LENGTH:
                search_texts.update((form, True) for form in _list_standalone_encodings(text))
    return search_texts


def is_whole_word(text: str, start: int, end: int) -> bool:
    """Return whether no letter, digit or underscore is next to this span."""
    before = start > 0 and (text[start - 1].isalnum() or text[start - 1] == "_")
    return not before and not (end < len(text) and (text[end].isalnum() or text[end] == "_"))


def _list_secret_parts(secret: str) -> Iterator[str]:
    """Yield the secret, and its parts that are secret too: the token of a header, the lines of a key."""
    yield secret
    bare = secret.strip()
    # Characters of the secret that look like escapes are decoded together with the text.
    yield from (view.text for view in list_decoded_views(bare))
    if " " in bare:
        yield bare.replace(" ", "+")  # as in form data
        scheme, _, credentials = bare.partition(" ")
        if scheme.lower() in _SCHEMES:
            yield credentials.strip()
            if scheme.lower() == "basic":
                yield from _decode_basic_credentials(credentials.strip())
    if "\n" in bare:
        yield bare.replace("\r\n", "\n")
        lines = [line.strip() for line in bare.splitlines()]
        yield from (line for line in lines if len(line) >= _MIN_LINE_LENGTH and not line.startswith("-----"))


def _decode_basic_credentials(credentials: str) -> Iterator[str]:
    with suppress(ValueError, binascii.Error):
        both = base64.b64decode(credentials, validate=True).decode()
        yield both
        yield both.partition(":")[2]


def _list_embedded_encodings(text: str) -> Iterator[str]:
    data = text.encode(errors="surrogatepass")
    yield from (data.hex(), data.hex().upper())
    # Base64 has three alignments. The first and last digits depend on the neighbouring bytes, so they are cut off.
    for before in range(3):
        digits = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        inner = digits[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")
    yield from _list_standalone_encodings(text)


def _list_standalone_encodings(text: str) -> Iterator[str]:
    data = text.encode(errors="surrogatepass")
    for digits in (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()):
        yield digits
        yield digits.rstrip("=")


_MAX_RECENT = 32
"""The maximum of secrets whose search is rebuilt for each new one, possibly on the event loop."""


class SecretSearchSet(NamedTuple):
    """Searches that together find all secrets. ``min_length`` is the length of the shortest one, 0 without any."""

    searches: tuple[SecretSearch, ...]
    min_length: int
    has_digits: bool


class SecretIndex:
    """Searches for the secrets of ``list_secrets``, which is called with ``lock`` held, as is `add_secrets`.

    Searches are immutable. Recent secrets have a small search that is rebuilt for each addition; when it is full, a new
    one starts and a thread merges the older ones. A listed secret is always in some search; a removed one may still be
    found for a while.
    """

    search_set: SecretSearchSet

    def __init__(self, lock: threading.RLock, list_secrets: Callable[[], set[str]]) -> None:
        self._lock, self._list_secrets = lock, list_secrets
        self._older_searches: tuple[SecretSearch, ...] = ()
        self._recent_search = SecretSearch({})
        self._recent_secrets: dict[str, None] = {}  # the secrets of the recent search
        self._is_merging = False
        self.add_secrets(list_secrets())

    def add_secrets(self, new: Iterable[str]) -> None:
        """Search for these secrets too."""
        current_secrets = self._list_secrets()
        self._recent_secrets = {secret: None for secret in (*self._recent_secrets, *new) if secret in current_secrets}
        self._recent_search = SecretSearch(create_search_texts(self._recent_secrets))
        if len(self._recent_secrets) > _MAX_RECENT:
            self._older_searches, self._recent_search, self._recent_secrets = (
                (*self._older_searches, self._recent_search),
                SecretSearch({}),
                {},
            )
        self._update_search_set()
        if len(self._older_searches) > 1 and not self._is_merging:
            self._is_merging = True
            BackgroundThreads("codemode-secrets", 1, idle_seconds=0).submit(self._merge_older_searches)

    def _update_search_set(self) -> None:
        searches = tuple(search for search in (*self._older_searches, self._recent_search) if search.min_length)
        min_length = min((search.min_length for search in searches), default=0)
        self.search_set = SecretSearchSet(searches, min_length, any(search.has_digits for search in searches))

    def _merge_older_searches(self) -> None:
        while True:
            with self._lock:
                merged, older_secrets = self._older_searches, self._list_secrets().difference(self._recent_secrets)
                if len(merged) < 2:
                    self._is_merging = False
                    return
            search = SecretSearch(create_search_texts(older_secrets))
            with self._lock:  # later searches follow the merged ones
                self._older_searches = (search, *self._older_searches[len(merged) :])
                self._update_search_set()


# Secrets are found in plain text and in encoded forms: escaped for URLs, JSON, HTML or Python literals, up to three
# times; in base64, alone or within a longer text (``user:secret``); in hexadecimal. The time is linear in the text,
# independent of the number of secrets.

REPLACEMENT = "[secret]"

# Refreshed tokens stay secret, because they may still be valid. The limits bound the memory of a long-running gateway.
_MAX_ADDED = 2_000
_MAX_PER_OWNER = 16  # a server that issues many tokens only displaces its own
_CONFIGURATION_OWNER = ""
# "client" is a logger of the MCP SDK.
_OWN_LOGGERS = {"codemode", "mcp", "client"}
_GUARDED_LOGGERS = {*_OWN_LOGGERS, "httpx", "httpx2", "httpcore", "httpcore2", "sse_starlette", "uvicorn", "asyncio"}


class SecretRedactor:
    """Replaces secrets in texts, values and logs. Ignores secrets of fewer than four characters.

    Secrets of fewer than eight characters are replaced only as whole words.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._lock = create_fork_safe_rlock()
        self._added: dict[str, dict[str, None]] = {}  # by owner, the most recent last
        self._fixed = frozenset(texts)
        self._index = SecretIndex(self._lock, self._list_all_secrets)

    def __repr__(self) -> str:
        return f"<Secrets: {len(self._list_all_secrets())}>"

    def add_secrets(self, *texts: str, owner: str = _CONFIGURATION_OWNER) -> None:
        """Also replace these texts, such as new tokens.

        The last 16 are kept for each ``owner``, one user's sign-in at one server, and 2,000 of the configuration.
        """
        with self._lock:
            new_texts = [text for text in texts if text not in self._fixed]
            owner_texts = self._added.pop(owner, {})
            is_known = all(text in owner_texts for text in new_texts)
            owner_texts = {text: None for text in owner_texts if text not in new_texts} | dict.fromkeys(new_texts)
            if owner_texts:
                self._added[owner] = owner_texts
            if is_known:
                return
            while len(owner_texts) > (_MAX_ADDED if owner == _CONFIGURATION_OWNER else _MAX_PER_OWNER):
                del owner_texts[next(iter(owner_texts))]
            others = [other_owner for other_owner in self._added if other_owner not in (owner, _CONFIGURATION_OWNER)]
            count = sum(len(self._added[other_owner]) for other_owner in (*others, owner))
            for other_owner in others:
                if count <= _MAX_ADDED:
                    break
                count -= len(self._added.pop(other_owner))
            self._index.add_secrets(new_texts)

    def _list_all_secrets(self) -> set[str]:
        return {*self._fixed, *chain.from_iterable(self._added.values())}

    def redact_text(self, text: str) -> str:
        """Return the text with ``[secret]`` in place of each secret."""
        searches, min_length, _ = self._index.search_set
        if not min_length or len(text) < min_length:
            return text
        spans = sorted(
            span
            for view in list_decoded_views(text)
            for search in searches
            for span in _find_secret_spans(search, view)
        )
        return "".join(_replace_spans(text, spans)) if spans else text

    def redact(self, value: Any) -> Any:
        """Return a JSON value with secrets replaced in texts, keys and integers. Copies it if there are secrets."""
        if not self._index.search_set.min_length:
            return value
        root: list[Any] = []
        pending: list[tuple[Any, Any]] = [([value], root)]
        while pending:
            source, target = pending.pop()
            if is_array(source):
                target.extend(self._redact_part(item, pending) for item in source)
            else:
                self._redact_mapping(source, target, pending)
        return root[0]

    def create_log_filter(self) -> logging.Filter:
        """Return a log filter that passes every record, with its secrets replaced."""
        return _RedactingFilter(self)

    @contextmanager
    def redact_logs(self) -> Generator[None]:
        """Replace secrets in the logs of the gateway, the SDK and its HTTP client, for all handlers.

        A logger's filter does not see records of child loggers, so this changes the log record factory.
        """
        redacting_filter, is_open = self.create_log_filter(), True
        previous_factory = logging.getLogRecordFactory()

        def make_redacted_record(name: str, *args: Any, **more: Any) -> logging.LogRecord:
            record = previous_factory(name, *args, **more)
            if is_open and name.split(".", maxsplit=1)[0] in _GUARDED_LOGGERS:
                redacting_filter.filter(record)
            return record

        logging.setLogRecordFactory(make_redacted_record)
        try:
            yield
        finally:
            is_open = False
            if logging.getLogRecordFactory() is make_redacted_record:
                logging.setLogRecordFactory(previous_factory)

    async def redact_off_loop(self, value: Any) -> Any:
        """Return what `redact` returns, in a thread if the value is large."""
        return await run_off_loop_if_large(value, lambda: self.redact(value))

    def _redact_mapping(
        self, source: Mapping[Any, Any], target: dict[Any, Any], pending: list[tuple[Any, Any]]
    ) -> None:
        name_counts: dict[str, int] = {}
        for key, value in source.items():
            name = self.redact_text(key) if isinstance(key, str) else key
            if name != key:
                base = name
                while name in target or name in source:  # two keys with secrets stay distinct
                    name_counts[base] = count = name_counts.get(base, 1) + 1
                    name = f"{base} {count}"
            target[name] = self._redact_part(value, pending)

    def _redact_part(self, value: Any, pending: list[tuple[Any, Any]]) -> Any:
        if isinstance(value, str):
            return self.redact_text(value)
        if is_mapping(value) or is_array(value) or isinstance(value, tuple):
            target: Any = {} if is_mapping(value) else []
            source: Any = list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
            pending.append((source, target))
            return target
        if self._index.search_set.has_digits and type(value) is int and value.bit_length() < _MAX_NUMBER_BITS:
            number = str(value)
            redacted = self.redact_text(number)
            return value if redacted == number else redacted
        return value


class _RedactingFilter(logging.Filter):
    def __init__(self, secrets: SecretRedactor) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        """Format the record and its traceback now, so that handlers only see redacted text."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            message = str(record.msg)
        record.msg, record.args = self._secrets.redact_text(message), None
        if record.exc_info:
            record.exc_text = record.exc_text or _formatter.formatException(record.exc_info)
            record.exc_info = None
        for name, value in list(record.__dict__.items()):
            if isinstance(value, str) and name != "msg":
                record.__dict__[name] = self._secrets.redact_text(value)
            elif isinstance(value, dict | list | tuple):
                record.__dict__[name] = self._secrets.redact(value)
        return True


_formatter = logging.Formatter()

# Longer integers are slow to format and never secrets.
_MAX_NUMBER_BITS = 4_000


def _find_secret_spans(search: SecretSearch, view: DecodedView) -> Iterator[tuple[int, int]]:
    for start, end, is_short in search.find_matches(view.text):
        if not is_short or is_whole_word(view.text, start, end):
            yield view.to_original_position(start), view.to_original_position(end)


def _replace_spans(text: str, spans: list[tuple[int, int]]) -> Iterator[str]:
    copied_to, hidden_to = 0, -1
    for start, end in spans:
        if start > hidden_to:
            if hidden_to >= 0:
                yield REPLACEMENT
                copied_to = hidden_to
            yield text[copied_to:start]
        hidden_to = max(hidden_to, end)
    yield REPLACEMENT
    yield text[hidden_to:]
