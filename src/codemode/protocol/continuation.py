"""A paused invocation as plain JSON: program, settings and ledger. Pure; signing and sealing happen around it.

The text comes back signed by this host, yet every field is checked: a key may leak, and a bug must not become a replay
of something that never happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from ..data.json_values import MAX_DEPTH, canonical_json, decode_json
from ..dataclass import dataclass
from ..errors import CodeModeProtocolError
from ..options.parts import LargeHeapPolicy
from .kept_contents import parts_to_list, read_contents
from .kept_ledger import check_ledger, entry_from_dict, entry_to_dict
from .kept_values import (
    read_count,
    read_flag,
    read_items,
    read_mapping,
    read_object,
    read_optional_text,
    read_positive,
    read_text,
    read_texts,
)
from .ledger import Ledger, Progress
from .settings import Settings, kept_limits

REPLAY_VERSION = 12
"""Raised whenever something changes that a replay depends on: kernel, delivery order, clock, random, limits.

6: ledgers hold requests about state, and continuations carry content. 8: ledgers hold how long calls took.
9: calls may wait for others (`in_flight_limit`). 10: texts of numbers, dates and comparisons are those of en-US.
11: continuations hold the program as it was sent.
"""


@dataclass(frozen=True, slots=True)
class Continuation:
    """Everything that a resume needs beside tools and options. ``kept`` are the settings that a replay depends on.

    ``given_json`` is what the invocation was given, JSON of an object, if anything was. ``source`` is the program as it
    was sent, where ``js``, which runs, is another text.
    """

    js: str
    engine: str
    kept: Mapping[str, Any]
    ledger: Ledger
    given_json: str | None = None
    carries_content: bool = True
    source: str | None = None

    @classmethod
    def of(
        cls, js: str, engine: str, settings: Settings, ledger: Ledger, *, carries_content: bool = True
    ) -> Continuation:
        """Return the continuation of an invocation. ``carries_content``: no store keeps its images, audio and files.

        Raises `CodeModeSerializationError` for more content than it carries.
        """
        if carries_content and ledger.contents is not None:
            ledger.contents.require_carried()
        return cls(
            js, engine, replayed_settings(settings), ledger, settings.given_json, carries_content, settings.source
        )

    @property
    def given(self) -> Mapping[str, Any] | None:
        """What the invocation was given, as plain JSON."""
        return None if self.given_json is None else _read(self.given_json, MAX_DEPTH + _DEPTH_AROUND_GIVEN)

    def settings(self, fresh: Settings) -> Settings:
        """Return the settings of the resumed run: ``fresh`` ones but for what a replay depends on."""
        limits = {name: self.kept[name] for name in kept_limits(LargeHeapPolicy)}
        identity = {name: self.kept[name] for name in _IDENTITY if name not in _PROFILE}
        return replace(
            fresh, limits=replace(fresh.limits, **limits), given_json=self.given_json, source=self.source, **identity
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        contents = self.ledger.contents
        return {
            "replayVersion": REPLAY_VERSION,
            "engine": self.engine,
            "js": self.js,
            "source": self.source,
            "given": self.given_json,
            "settings": dict(self.kept),
            "ledger": [entry_to_dict(entry) for entry in self.ledger.entries],
            "contents": parts_to_list(contents) if contents is not None and self.carries_content else [],
            "deliveries": list(self.ledger.deliveries),
            "notices": self.ledger.notices,
            "progress": list(self.ledger.progress),
        }

    @classmethod
    def from_dict(cls, value: Any) -> Continuation:
        """Read it back. Raises `CodeModeProtocolError` for anything that `to_dict` could not have made."""
        _require_version(read_mapping(value))
        body = read_object(value, _KEYS)
        kept = read_object(body["settings"], {*_IDENTITY, *kept_limits(LargeHeapPolicy)})
        for name, read in _IDENTITY.items():
            read(kept[name])
        _check_limits(kept)
        entries = [entry_from_dict(item, position) for position, item in enumerate(read_items(body["ledger"]), 1)]
        deliveries = [read_positive(item) for item in read_items(body["deliveries"])]
        progress, contents = _read_progress(body["progress"]), read_contents(read_items(body["contents"]))
        ledger = Ledger(entries, deliveries, read_count(body["notices"]), progress=progress, contents=contents)
        check_ledger(ledger, kept["outer_tool_call_id"])
        given_json = read_optional_text(body["given"])
        if given_json is not None:
            _read(given_json, MAX_DEPTH + _DEPTH_AROUND_GIVEN)
        js, engine, source = read_text(body["js"]), read_text(body["engine"]), read_optional_text(body["source"])
        return cls(js, engine, kept, ledger, given_json, source=source)


def replayed_settings(settings: Settings) -> dict[str, Any]:
    """Return what a replay must find unchanged, by name; everything else comes from the options of the resume."""
    profile = settings.profile
    kept: dict[str, Any] = {name: getattr(settings, name) for name in _IDENTITY if name not in _PROFILE}
    kept |= {name: getattr(settings.limits, name) for name in kept_limits(LargeHeapPolicy)}
    kept["language_names"] = list(settings.language_names)
    return {**kept, "profile": profile.name, "parameters": dict(profile.parameters)}


# What can be long stands in the wire form as it is: escaping and parsing it again would cost more than all the rest.
_DEPTH_AROUND_GIVEN = 8  # of a value in it, which may be as deep as any
_KEYS = {
    *("replayVersion", "engine", "js", "source", "given", "settings"),
    *("ledger", "contents", "deliveries", "notices", "progress"),
}
_APART = ("js", "source", "given", "ledger", "contents")
_LONG_TEXTS = ("inputJson", "executedInputJson", "valueJson", "interruptPayloadJson", "shownInputJson")


def texts_of(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts in which a continuation travels.

    These are a head, the program, what it was given (an empty text for nothing), the program as it was sent where that
    is another text (likewise), then each entry and its long texts,
    then each part of content and its bytes.
    """
    yield canonical_json({key: value for key, value in body.items() if key not in _APART})
    yield body["js"]
    yield body["given"] or ""
    yield body["source"] or ""
    for entry in body["ledger"]:
        names = [name for name in _LONG_TEXTS if name in entry]
        rest = {key: value for key, value in entry.items() if key not in names}
        yield canonical_json({"entry": rest, "texts": names})
        yield from (entry[name] for name in names)
    for part in body["contents"]:
        yield canonical_json({"content": {**part, "data": None}})
        yield part["data"]


def body_of(texts: Iterable[str]) -> dict[str, Any]:
    """Return what `texts_of` was given. Raises `CodeModeProtocolError` for texts that it could not have made."""
    rest = iter(texts)
    try:
        head = _read(next(rest))
        _require_version(head)  # on which it depends what the texts behind it are
        body: dict[str, Any] = {**head, "js": next(rest)}
        body |= {"given": next(rest) or None, "source": next(rest) or None}
        ledger: list[dict[str, Any]] = []
        contents: list[dict[str, Any]] = []
        for text in rest:
            item = _read(text)
            if item.keys() == {"content"}:
                contents.append({**read_mapping(item["content"]), "data": next(rest)})
                continue
            item = read_object(item, {"entry", "texts"})
            long_texts = {_long_text(name): next(rest) for name in read_items(item["texts"])}
            ledger.append({**read_mapping(item["entry"]), **long_texts})
    except StopIteration:
        raise CodeModeProtocolError("the continuation is cut off") from None
    return {**body, "ledger": ledger, "contents": contents}


def _require_version(head: Mapping[str, Any]) -> None:
    if head.get("replayVersion") != REPLAY_VERSION:
        raise CodeModeProtocolError(
            f"the continuation has replay version {head.get('replayVersion')!r}, this host has {REPLAY_VERSION}:"
            " it was made by another version of codemode and cannot be resumed"
        )


def _read_progress(value: object) -> Progress:
    counts = [read_count(item) for item in read_items(value)]
    if len(counts) != len(Progress._fields):
        raise CodeModeProtocolError("the continuation is malformed")
    return Progress(*counts)


def _read(text: str, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    try:
        return read_mapping(decode_json(text, max_depth=max_depth))
    except ValueError as error:
        raise CodeModeProtocolError("the continuation cannot be read") from error


def _long_text(name: object) -> str:
    if name not in _LONG_TEXTS:
        raise CodeModeProtocolError("the continuation is malformed")
    return cast("str", name)


def _check_limits(kept: Mapping[str, Any]) -> None:
    """Check each limit as the option that it was. A resume cannot widen what the machine stands."""
    try:
        LargeHeapPolicy(**{name: kept[name] for name in kept_limits(LargeHeapPolicy)})
    except ValueError as error:
        raise CodeModeProtocolError(f"the continuation holds a limit that cannot be: {error}") from None


_IDENTITY: dict[str, Callable[[object], Any]] = {
    "outer_tool_call_id": read_text,
    "salt": read_text,
    "seed": read_text,
    "started_ms": read_positive,
    "profile": read_text,
    "parameters": read_mapping,
    "fetch": read_flag,
    "state": read_flag,
    "language_names": read_texts,
}
_PROFILE = ("profile", "parameters")  # by which the profile itself is found again
