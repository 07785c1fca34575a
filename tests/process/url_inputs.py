"""Generated inputs for URL, its setters, URLSearchParams and TextDecoder.

Left out is what Node itself does not do as the URL Standard has it: setting an empty host, or port 0.
"""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from random import Random
from typing import Any

PIECES: dict[str, list[Any]] = json.loads((Path(__file__).parents[1] / "data" / "url_pieces.json").read_text())
SCHEMES = PIECES["schemes"]
SLASHES = PIECES["slashes"]
USERS = PIECES["users"]
HOSTS = PIECES["hosts"]
PORTS = PIECES["ports"]
SEGMENTS = PIECES["segments"]
QUERIES = PIECES["queries"]
FRAGMENTS = PIECES["fragments"]
AROUND = PIECES["around"]
BASES = PIECES["bases"]
PARTS = PIECES["parts"]
BYTES = bytes.fromhex("80 bf c0 c2 e0 ed f0 f4 f5 ff a0 9f")


def text_of_url(random: Random) -> str:
    pick = random.choice
    if random.random() < 0.15:  # relative
        path = "/".join([pick(HOSTS), *(pick(SEGMENTS) for _ in range(random.randint(0, 4)))])
        return pick(AROUND) + pick(("", "/", "//", "\\")) + path + pick(QUERIES) + pick(FRAGMENTS)
    path = "".join(pick(("/", "/", "\\")) + pick(SEGMENTS) for _ in range(random.randint(0, 4)))
    authority = pick(SLASHES) + pick(USERS) + pick(HOSTS) + pick(PORTS)
    return pick(AROUND) + pick(SCHEMES) + authority + path + pick(QUERIES) + pick(FRAGMENTS) + pick(AROUND)


def setter(random: Random) -> list[str]:
    pick, part = random.choice, random.choice(PARTS)
    values = {
        "href": lambda: text_of_url(random),
        "protocol": lambda: pick(SCHEMES) + pick(("", "x")),
        "username": lambda: pick(USERS),
        "password": lambda: pick(USERS),
        "host": lambda: (pick(HOSTS) or "a") + pick(PORTS) + pick(("", "/x", "\\")),
        "hostname": lambda: (pick(HOSTS) or "a") + pick(("", "", ":8", "/x")),
        "port": lambda: pick(PORTS)[1:] + pick(("", "", "a", "/", "\t1")),
        "pathname": lambda: (
            "".join(pick(("/", "\\", "")) + pick(SEGMENTS) for _ in range(random.randint(0, 4))) + pick(QUERIES)
        ),
        "search": lambda: pick(QUERIES)[random.randint(0, 1) :] + pick(("", "#x", "a")),
        "hash": lambda: pick(FRAGMENTS)[random.randint(0, 1) :],
    }
    return [part, values[part]()]


def parameter_step(random: Random) -> list[Any]:
    pick = random.choice
    name, value = pick(("a", "b", "", "ü", "a b", "\ud800", "a=&+%")), pick(("1", "2", "", "x y", "&=+%", "\U0001f600"))
    return pick(
        [
            ["append", name, value],
            ["set", name, value],
            ["delete", name],
            ["delete", name, value],
            ["sort"],
            ["get", name],
            ["getAll", name],
            ["has", name],
            ["has", name, value],
        ]
    )


def url_case(random: Random) -> dict[str, Any]:
    steps = [setter(random) for _ in range(random.choice((0, 0, 1, 3)))]
    parameters = [parameter_step(random) for _ in range(random.choice((0, 0, 0, 3)))]
    return {"input": text_of_url(random), "base": random.choice(BASES), "set": steps, "parameters": parameters}


def bytes_case(random: Random) -> dict[str, Any]:
    """Bytes in pieces, most of them parts of UTF-8, and how they are to be decoded.

    A byte order mark is the first of all or none: Node drops some in the middle of a stream, the standard none.
    """
    pieces: list[list[int]] = []
    for _ in range(random.randint(1, 4)):
        text = "".join(random.choice(("a", "é", "€", "\U0001f600", "\x00")) for _ in range(random.randint(0, 4)))
        data = bytearray(text.encode())
        for _ in range(random.choice((0, 0, 1, 3))):
            data.insert(
                random.randint(0, len(data)),
                random.choice((0x80, 0xBF, 0xC0, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xF5, 0xFF, 0xA0, 0x9F)),
            )
        cut = random.randint(0, len(data))
        pieces += [[*data[:cut]], [*data[cut:]]]
    if random.random() < 0.2:
        pieces = [[*codecs.BOM_UTF8, *pieces[0]], *pieces[1:]]
    return {"pieces": pieces, "fatal": random.random() < 0.3, "ignoreBOM": random.random() < 0.3}
