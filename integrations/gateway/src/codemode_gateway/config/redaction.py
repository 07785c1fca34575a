"""Remove secrets from texts and values, in each encoding in which they may appear."""

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

from codemode.data.json_shape import run_bounded
from codemode.data.narrowing import is_array, is_mapping
from codemode.host.forks import forkable_rlock
from codemode.host.threads import Errands

# One character each: of URLs (the bytes of its UTF-8), of JSON and of Python's literals, of HTML.
_CONT = "%[89ABab][0-9A-Fa-f]"
_ESCAPE = re.compile(
    rf"%[0-7][0-9A-Fa-f]|%[CDcd][0-9A-Fa-f]{_CONT}|%[Ee][0-9A-Fa-f](?:{_CONT}){{2}}|%[Ff][0-7](?:{_CONT}){{3}}"
    r"|\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\\[^ux]"
    r"|&(?:amp|lt|gt|quot|apos|\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6});",
    re.DOTALL,
)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "0": "\0"}
_ROUNDS = 3


class View:
    """A text with its escapes resolved. ``place`` tells where a place of it is in the text that it was made of."""

    def __init__(self, text: str, before: View | None = None, ends: list[int] | None = None) -> None:
        self.text = text
        self._before = before
        self._ends = ends or []  # places in this text behind each character that was an escape
        self._lost: list[int] = []  # by how many characters the text before is longer up to there

    def place(self, place: int) -> int:
        """Return the place in the first text; one between two characters stays between them."""
        if self._before is None:
            return place
        index = bisect_right(self._ends, place) - 1
        return self._before.place(place + (self._lost[index] if index >= 0 else 0))

    def resolved(self) -> View | None:
        """Return the next view, or None where this text has no escapes."""
        parts: list[str] = []
        found = View("", self)
        lost = end = length = 0
        for match in _ESCAPE.finditer(self.text):
            start, behind = match.span()
            one = _character(self.text[start:behind])
            parts += (self.text[end:start], one)
            length += start - end + len(one)
            lost += behind - start - len(one)
            end = behind
            found._ends.append(length)
            found._lost.append(lost)
        if not parts:
            return None
        found.text = "".join([*parts, self.text[end:]])
        return found


def views_of(text: str) -> Iterator[View]:
    """Yield the text as it is, and with its escapes resolved once, twice and three times."""
    view: View | None = View(text)
    for _ in range(_ROUNDS + 1):
        if view is None:
            return
        yield view
        view = view.resolved()


def _character(escape: str) -> str:
    if escape[0] == "%":
        return bytes.fromhex(escape.replace("%", "")).decode(errors="replace")
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[1] in "ux":
        digits = [part for part in re.split(r"\\[ux]", escape) if part]
        units = b"".join(int(part, 16).to_bytes(2, "big") for part in digits)
        return units.decode("utf-16-be", errors="surrogatepass")
    return _CONTROLS.get(escape[1], escape[1])


# So many characters of each text decide whether a place is looked at closely.
_PREFIX = 4


class Search:
    """Finds, at each place of a text, the longest of ``texts`` that begins there.

    A place costs the logarithm of the number of texts and never more: they are sorted, and the last that is not
    behind what stands at the place begins with every text that is there.
    """

    def __init__(self, texts: Mapping[str, bool]) -> None:
        self._texts = sorted(texts)
        self._are_short = dict(texts)
        self._within = _nested(self._texts)
        self._begins = re.compile(_one_of({text[:_PREFIX] for text in self._texts})) if texts else None
        self._longest = max(map(len, texts), default=0)
        self.shortest = min(map(len, texts), default=0)
        self.has_digits = any(text.isdigit() for text in texts)

    def found(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """Yield where something begins and ends, and its flag. Of those that begin at one place, the longest."""
        for start in self._places(text):
            one = self._at(text, start)
            if one is not None:
                yield start, start + len(one), self._are_short[one]

    def _places(self, text: str) -> Iterator[int]:
        begins = self._begins
        if begins is None:
            return
        place = 0
        while (match := begins.search(text, place)) is not None:
            yield match.start()
            place = match.start() + 1

    def _at(self, text: str, start: int) -> str | None:
        here = text[start : start + self._longest]
        index = bisect_right(self._texts, here) - 1
        if index < 0:
            return None
        common = _common(self._texts[index], here)
        while index >= 0 and len(self._texts[index]) > common:
            index = self._within[index]
        return self._texts[index] if index >= 0 else None


def _nested(texts: list[str]) -> list[int]:
    """Return for each of the sorted texts the index of the longest other that it begins with, or -1."""
    found: list[int] = []
    open_ones: list[int] = []
    for index, text in enumerate(texts):
        while open_ones and not text.startswith(texts[open_ones[-1]]):
            open_ones.pop()
        found.append(open_ones[-1] if open_ones else -1)
        open_ones.append(index)
    return found


def _common(one: str, other: str) -> int:
    """Return how many characters two texts have in common from their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if other.startswith(one[:middle]):
            low = middle
        else:
            high = middle - 1
    return low


def _one_of(prefixes: Iterable[str]) -> str:
    """Return an expression for any of these texts that asks for each character once: a tree of them."""
    tree: dict[str, set[str]] = {}
    for one in prefixes:
        tree.setdefault(one[:1], set()).add(one[1:])
    branches = [re.escape(first) + (_one_of(rest) if "" not in rest else "") for first, rest in sorted(tree.items())]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


SHORTEST = 4
# From here on a text is taken out wherever it stands; shorter ones may be parts of ordinary words.
SHORTEST_ANYWHERE = 8
_SHORTEST_ENCODED = 8
_SHORTEST_LINE = 20
_SCHEMES = ("bearer", "basic", "token", "apikey", "api-key", "key", "digest", "negotiate")


def forms_of(secrets: Iterable[str]) -> dict[str, bool]:
    """Return every text to look for; true for those that are taken out only where they stand alone."""
    found: dict[str, bool] = {}
    for secret in secrets:
        for text in _parts(secret):
            if len(text) >= SHORTEST:
                found[text] = len(text) < SHORTEST_ANYWHERE
            if len(text) >= SHORTEST_ANYWHERE:
                found.update((form, False) for form in _encoded(text) if len(form) >= _SHORTEST_ENCODED)
            elif len(text) >= SHORTEST:
                found.update((form, True) for form in _whole(text))
    return found


def alone(text: str, start: int, end: int) -> bool:
    """Whether no letter or digit stands beside this place."""
    before = start > 0 and (text[start - 1].isalnum() or text[start - 1] == "_")
    return not before and not (end < len(text) and (text[end].isalnum() or text[end] == "_"))


def _parts(secret: str) -> Iterator[str]:
    """Yield the secret, and what of it a server may say without the rest: the token of a header, a line of a key."""
    yield secret
    bare = secret.strip()
    # Where its own characters look like escapes they are resolved together with those of whoever wrote it.
    yield from (view.text for view in views_of(bare))
    if " " in bare:
        yield bare.replace(" ", "+")  # as forms write it
        scheme, _, rest = bare.partition(" ")
        if scheme.lower() in _SCHEMES:
            yield rest.strip()
            if scheme.lower() == "basic":
                yield from _password(rest.strip())
    if "\n" in bare:
        yield bare.replace("\r\n", "\n")
        lines = [line.strip() for line in bare.splitlines()]
        yield from (line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-----"))


def _password(credentials: str) -> Iterator[str]:
    with suppress(ValueError, binascii.Error):
        both = base64.b64decode(credentials, validate=True).decode()
        yield both
        yield both.partition(":")[2]


def _encoded(text: str) -> Iterator[str]:
    data = text.encode(errors="surrogatepass")
    yield from (data.hex(), data.hex().upper())
    # In base64 a text looks in one of three ways, by what stands before it; the outermost digits belong to both.
    for before in range(3):
        digits = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        inner = digits[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")
    yield from _whole(text)


def _whole(text: str) -> Iterator[str]:
    data = text.encode(errors="surrogatepass")
    for digits in (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()):
        yield digits
        yield digits.rstrip("=")


_MOST_FRESH = 32
"""So many are put together anew whenever one comes, by whoever brings it: on the event loop, if that is where."""


class LookedFor(NamedTuple):
    """Searches that together find all there is; ``shortest`` is what they find at least, 0 where they find nothing."""

    searches: tuple[Search, ...]
    shortest: int
    has_digits: bool


class SecretLayers:
    """Searches for the secrets that ``known`` gives, which is called with the ``lock`` held, as is `take`.

    A search is never changed. The last ones are in one of their own that is made anew for each; where that has too
    many it stays as it is, the next ones begin another, and a thread makes one of all. Whatever ``known`` gives is in
    one of them at any time; what it gives no more may be found for a while.
    """

    looked_for: LookedFor

    def __init__(self, lock: threading.RLock, known: Callable[[], set[str]]) -> None:
        self._lock, self._known = lock, known
        self._full: tuple[Search, ...] = ()
        self._last = Search({})
        self._fresh: dict[str, None] = {}  # what is in the last
        self._is_merging = False
        self.take(known())

    def take(self, new: Iterable[str]) -> None:
        """Look for these too from now on."""
        known = self._known()
        self._fresh = {one: None for one in (*self._fresh, *new) if one in known}
        self._last = Search(forms_of(self._fresh))
        if len(self._fresh) > _MOST_FRESH:
            self._full, self._last, self._fresh = (*self._full, self._last), Search({}), {}
        self._look()
        if len(self._full) > 1 and not self._is_merging:
            self._is_merging = True
            Errands("codemode-secrets", 1, idle_seconds=0).send(self._merge)

    def _look(self) -> None:
        used = tuple(one for one in (*self._full, self._last) if one.shortest)
        shortest = min((one.shortest for one in used), default=0)
        self.looked_for = LookedFor(used, shortest, any(one.has_digits for one in used))

    def _merge(self) -> None:
        while True:
            with self._lock:
                merged, known = self._full, self._known().difference(self._fresh)
                if len(merged) < 2:
                    self._is_merging = False
                    return
            search = Search(forms_of(known))
            with self._lock:  # what has come meanwhile is behind
                self._full = (search, *self._full[len(merged) :])
                self._look()


# A secret is found as it is and in the forms in which a server may give it back: with its characters escaped for URLs,
# JSON, HTML or Python's literals, several times over; in base64, alone or within a longer text (``user:secret``); in
# hexadecimal digits. What it takes is linear in the text, however many secrets there are.

HIDDEN = "[secret]"

# Tokens that were refreshed stay secret, as they may still be valid; a gateway that runs for a year keeps the last.
_MOST_ADDED = 2_000
_MOST_OF_ONE = 16  # owner: a server that gives new ones all the time drives out its own
_CONFIGURATION = ""
# "client" is the name of a logger of the SDK.
_OURS = {"codemode", "mcp", "client"}
_GUARDED = {*_OURS, "httpx", "httpx2", "httpcore", "httpcore2", "sse_starlette", "uvicorn", "asyncio"}


class Secrets:
    """What nobody may read. Texts of fewer than four characters are not looked for: they are everywhere.

    Those of fewer than eight are taken out where they stand alone, so that words that contain them stay whole.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._lock = forkable_rlock()
        self._added: dict[str, dict[str, None]] = {}  # by owner, whoever has got one last at the end
        self._fixed = frozenset(texts)
        self._layers = SecretLayers(self._lock, self._all)

    def __repr__(self) -> str:
        return f"<Secrets: {len(self._all())}>"

    def add(self, *texts: str, owner: str = _CONFIGURATION) -> None:
        """Take these out as well from now on: tokens that were just given.

        Of an ``owner``, some user's sign-in at some server, the last 16 are kept; of the configuration 2,000.
        """
        with self._lock:
            new = [text for text in texts if text not in self._fixed]
            own = self._added.pop(owner, {})
            is_known = all(text in own for text in new)
            own = {text: None for text in own if text not in new} | dict.fromkeys(new)
            if own:
                self._added[owner] = own
            if is_known:
                return
            while len(own) > (_MOST_ADDED if owner == _CONFIGURATION else _MOST_OF_ONE):
                del own[next(iter(own))]
            others = [one for one in self._added if one not in (owner, _CONFIGURATION)]
            count = sum(len(self._added[one]) for one in (*others, owner))
            for one in others:
                if count <= _MOST_ADDED:
                    break
                count -= len(self._added.pop(one))
            self._layers.take(new)

    def _all(self) -> set[str]:
        return {*self._fixed, *chain.from_iterable(self._added.values())}

    def text(self, text: str) -> str:
        """Return the text with ``[secret]`` wherever a secret stood."""
        searches, shortest, _ = self._layers.looked_for
        if not shortest or len(text) < shortest:
            return text
        spans = sorted(span for view in views_of(text) for one in searches for span in _spans(one, view))
        return "".join(_hidden(text, spans)) if spans else text

    def value(self, value: Any) -> Any:
        """Return the same JSON with texts, keys and whole numbers so treated: a copy where there are secrets at all."""
        if not self._layers.looked_for.shortest:
            return value
        root: list[Any] = []
        pending: list[tuple[Any, Any]] = [([value], root)]
        while pending:
            source, target = pending.pop()
            if is_array(source):
                target.extend(self._part(one, pending) for one in source)
            else:
                self._fill(source, target, pending)
        return root[0]

    def of_logs(self) -> logging.Filter:
        """Return a filter for handlers and loggers that lets every record pass, without secrets."""
        return _WithoutSecrets(self)

    @contextmanager
    def guarding_logs(self) -> Generator[None]:
        """Take secrets out of what the gateway, the SDK and its HTTP client log, whoever listens.

        A filter of a logger does not see what the loggers below it say: the records are changed as they are made.
        """
        cleaned, is_open = self.of_logs(), True
        before = logging.getLogRecordFactory()

        def make(name: str, *args: Any, **more: Any) -> logging.LogRecord:
            record = before(name, *args, **more)
            if is_open and name.split(".", maxsplit=1)[0] in _GUARDED:
                cleaned.filter(record)
            return record

        logging.setLogRecordFactory(make)
        try:
            yield
        finally:
            is_open = False
            if logging.getLogRecordFactory() is make:
                logging.setLogRecordFactory(before)

    async def off_loop(self, value: Any) -> Any:
        """Return what `value` does, in a thread where it takes long."""
        return await run_bounded(value, lambda: self.value(value))

    def _fill(self, source: Mapping[Any, Any], target: dict[Any, Any], pending: list[tuple[Any, Any]]) -> None:
        taken: dict[str, int] = {}
        for key, one in source.items():
            name = self.text(key) if isinstance(key, str) else key
            if name != key:
                base = name
                while name in target or name in source:  # two keys that held secrets stay two
                    taken[base] = count = taken.get(base, 1) + 1
                    name = f"{base} {count}"
            target[name] = self._part(one, pending)

    def _part(self, value: Any, pending: list[tuple[Any, Any]]) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if is_mapping(value) or is_array(value) or isinstance(value, tuple):
            target: Any = {} if is_mapping(value) else []
            source: Any = list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
            pending.append((source, target))
            return target
        if self._layers.looked_for.has_digits and type(value) is int and value.bit_length() < _LONGEST_NUMBER:
            number = str(value)
            found = self.text(number)
            return value if found == number else found
        return value


class _WithoutSecrets(logging.Filter):
    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        """Word the record here, with its traceback, so that no handler finds more than that in it."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            message = str(record.msg)
        record.msg, record.args = self._secrets.text(message), None
        if record.exc_info:
            record.exc_text = record.exc_text or _formatter.formatException(record.exc_info)
            record.exc_info = None
        for name, value in list(record.__dict__.items()):
            if isinstance(value, str) and name != "msg":
                record.__dict__[name] = self._secrets.text(value)
            elif isinstance(value, dict | list | tuple):
                record.__dict__[name] = self._secrets.value(value)
        return True


_formatter = logging.Formatter()

# Longer ones take long to write, and no secret is one.
_LONGEST_NUMBER = 4_000


def _spans(search: Search, view: View) -> Iterator[tuple[int, int]]:
    for start, end, is_short in search.found(view.text):
        if not is_short or alone(view.text, start, end):
            yield view.place(start), view.place(end)


def _hidden(text: str, spans: list[tuple[int, int]]) -> Iterator[str]:
    shown_to, hidden_to = 0, -1
    for start, end in spans:
        if start > hidden_to:
            if hidden_to >= 0:
                yield HIDDEN
                shown_to = hidden_to
            yield text[shown_to:start]
        hidden_to = max(hidden_to, end)
    yield HIDDEN
    yield text[hidden_to:]
