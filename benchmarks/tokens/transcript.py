"""A conversation with a model as the texts that go in and come out, request by request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# What marks the role and the ends of a message, and the id of a call or of its result. Formats differ: OpenAI's has
# three or four for a message; ids are longer.
MARKS = 4
SYSTEM = "You help the team of a small web shop. Use the tools, and answer in a few words. It is 2026-11-20, 09:00 UTC."


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def result_text(value: Any) -> str:
    """Return what a model is shown of a tool's output: text as it is, and JSON without spaces.

    An object that has nothing but the text of a file is shown as this text, as its server does.
    """
    if isinstance(value, Exception):
        return f"Error: {value}"
    match value:
        case str():
            return value
        case {"content": str(text), **rest} if not rest:
            return text
        case _:
            return compact(value)


@dataclass(frozen=True)
class Turn:
    """One request's end: what the model wrote, each call or the answer by itself, and what came back for it."""

    written: tuple[str, ...]
    shown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Transcript:
    """What a way of working has said about one task. ``listing`` is what each request tells of the tools."""

    listing: str
    question: str
    turns: list[Turn] = field(default_factory=list[Turn])

    def call(self, *calls: tuple[str, Any, str]) -> None:
        """Add a turn of calls that are made at once: name, input and the text that came back."""
        written = tuple(compact({"name": name, "arguments": given}) for name, given, _ in calls)
        self.turns.append(Turn(written, tuple(text for _, _, text in calls)))

    def answer(self, text: str) -> None:
        self.turns.append(Turn((text,)))

    def texts(self) -> Iterator[str]:
        yield from (self.listing, SYSTEM, self.question)
        for turn in self.turns:
            yield from (*turn.written, *turn.shown)


@dataclass(frozen=True)
class Counted:
    """Tokens of a transcript.

    ``given`` is the sum over all requests of all that they carry; ``listed`` is the part of it that tells of the tools;
    ``new`` has each token once, as with a cache of the conversation: the tools', and everything that was said.
    """

    requests: int
    given: int
    listed: int
    new: int
    written: int

    @property
    def beside_tools(self) -> int:
        """What all requests carry beside the listing of tools."""
        return self.given - self.listed


def counted(transcript: Transcript, tokens: Mapping[str, int]) -> Counted:
    """Count a transcript with the tokens of each text."""
    listing = tokens[transcript.listing]
    said = tokens[SYSTEM] + tokens[transcript.question] + 2 * MARKS
    given = written = new = 0
    for turn in transcript.turns:
        new = listing + said
        given += new
        wrote = sum(tokens[text] + MARKS for text in turn.written)
        written += wrote
        said += wrote + sum(tokens[text] + MARKS for text in turn.shown)
    requests = len(transcript.turns)
    return Counted(requests=requests, given=given, listed=requests * listing, new=new, written=written)
