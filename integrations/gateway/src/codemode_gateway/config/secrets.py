"""Takes secrets out of all that leaves: the one rule for results, errors, logs, traces, descriptions, continuations.

A secret is found as it is and in the forms in which a server may give it back: with its characters escaped for URLs,
JSON, HTML or Python's literals, several times over; in base64, alone or within a longer text (``user:secret``); in
hexadecimal digits. What it takes is linear in the text, however many secrets there are, and counted in steps.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, cast

from codemode.data.narrowing import is_array, is_mapping
from codemode.host import steps
from codemode.host.forks import forkable_rlock
from codemode.host.threads import run_check

from .secret_forms import alone
from .secret_layers import SecretLayers
from .secret_search import Search
from .unescaping import View, views_of

HIDDEN = "[secret]"

# Tokens that were refreshed stay secret, as they may still be valid; a gateway that runs for a year keeps the last.
_MOST_ADDED = 2_000
_MOST_OF_ONE = 16  # owner: a server that gives new ones all the time drives out its own
_CONFIGURATION = ""
_CHARACTERS_OF_A_STEP = 7  # as a power of two
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
        steps.take(1 + (len(text) >> _CHARACTERS_OF_A_STEP))
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
            steps.take()
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
        characters = len(value) if isinstance(value, str) else 0
        return await run_check(characters, lambda: self.value(value))

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
        steps.take()
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
