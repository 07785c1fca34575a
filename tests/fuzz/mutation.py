"""Mutations from a fixed seed: of the bytes, and of the JSON values in them. Knows no target."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

_MAX_BYTES = 1 << 14
_STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**53, 2**64, -0.0, 1e308, "", "\x00", "\ud800", "😀", "x" * 600, [], {}, [[]], [None],
    "constructor", "__proto__", "tool", {"a": {"b": []}}, ["a"] * 70,
)  # fmt: skip


def mutated(seeds: Sequence[bytes], words: Sequence[bytes], random: Random) -> Iterator[bytes]:
    """Give inputs for ever: first the seeds themselves, then mutations of seeds and of mutations."""
    yield from seeds
    kept = list(seeds)
    while True:
        data = random.choice(kept)
        for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
            data = _mutate(data, kept, words, random)[:_MAX_BYTES]
        yield data
        if random.random() < 0.05:
            kept[random.randrange(len(seeds), len(seeds) + 32) % (len(kept) + 1) :] = [data]
            kept[: len(seeds)] = seeds


def _mutate(data: bytes, kept: Sequence[bytes], words: Sequence[bytes], random: Random) -> bytes:
    start, end = sorted((random.randint(0, len(data)), random.randint(0, len(data))))
    end = min(end, start + random.choice((1, 4, 64)))
    match random.randrange(8):
        case 0:
            return data[:start] + bytes([random.randrange(256)]) + data[start + 1 :]
        case 1:
            return data[:start] + data[end:]
        case 2:
            return data[:end] + data[start:end] * random.choice((1, 1, 8)) + data[end:]
        case 3:
            other = random.choice(kept)
            return data[:start] + other[random.randint(0, len(other)) :]
        case 4 if words:
            return data[:start] + random.choice(words) + data[random.choice((start, end)) :]
        case _:
            return _with_changed_json(data, random)


def _with_changed_json(data: bytes, random: Random) -> bytes:
    """Change one value somewhere in one of the JSON objects in the data; a length in front of it is corrected."""
    text = data.decode("latin-1")
    places = [place for place, character in enumerate(text) if character == "{"]
    random.shuffle(places)
    for place in places[:4]:
        try:
            value, end = json.JSONDecoder().raw_decode(text, place)
        except ValueError:
            continue
        changed = json.dumps(_changed(value, random)).encode()
        head = data[:place]
        # A frame: four bytes of length, one of kind.
        if place >= 5 and int.from_bytes(head[place - 5 : place - 1], "big") == end - place + 1:
            head = head[: place - 5] + (len(changed) + 1).to_bytes(4, "big") + head[place - 1 :]
        return head + changed + data[end:]
    return data


def _changed(value: Any, random: Random) -> Any:
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        rest = {name: item for name, item in value.items() if name != key}
        match random.randrange(6):
            case 0:
                return rest
            case 1:
                return {**value, random.choice(list(value)): value[key]}
            case 2:
                return {**value, str(random.choice(_STRANGE)): random.choice(_STRANGE)}
            case _:
                return {**value, key: _changed(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.85:
        number = random.randrange(len(value))
        match random.randrange(4):
            case 0:
                return value[:number] + value[number + 1 :]
            case 1:
                return [*value, *value[number : number + 1] * random.choice((1, 40))]
            case _:
                return [*value[:number], _changed(value[number], random), *value[number + 1 :]]
    return random.choice((*_STRANGE, value + 1 if type(value) is int else value))
