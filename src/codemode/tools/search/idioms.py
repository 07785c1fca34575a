"""Expressions of more than one word that mean what one word says: "look it up" is a search. Data, and one pattern."""

from __future__ import annotations

import re
from functools import cache

_IDIOMS = """
up to date: update
out of date: old
look up, looked up, looking up: search
find out, figure out: find
get rid of, gets rid of, throw away: delete
take away, take off, take out: remove
take back: undo
at once, at the same time, at one time, in one go, all together: multiple
sign off: approve
sign in, log in: login
sign out, log out: logout
sign up: register
fill in, fill out: fill
write down, jot down: write
note down: note
set up, put together: create
make sure, check that, check whether, check if: verify
turn off, switch off: disable
turn on, switch on: enable
shut down: close
shut off: stop
bring together: merge
carry out: execute
go over: review
go through: read
point out: highlight
keep track of: track
right now: current
so far: history
how many: count
how much: amount
how long: duration
how big, how large: size
how far: distance
how often: frequency
go off, goes off, went off: alarm
run into, ran into: error
no longer, any more, any longer: not
in detail: details
in depth: detailed
step by step: steps
"""
# What may stand between the two words of one: "look something up".
_BETWEEN = r"(?:\s+(?:it|this|that|them|something|things|everything|all))?\s+"


def plainly(query: str) -> str:
    """Return a query with that word behind each such expression, which a description may have as it is."""
    if " " not in query:
        return query
    pattern, meant = _known()
    return pattern.sub(lambda found: f"{found[0]} {meant[(found.lastindex or 1) - 1]}", query)


@cache
def _known() -> tuple[re.Pattern[str], list[str]]:
    pairs = [
        (said, word)
        for line in _IDIOMS.strip().split("\n")
        for alike, _, word in (line.partition(": "),)
        for said in alike.split(", ")
    ]
    pairs.sort(key=lambda pair: -len(pair[0]))
    forms = (f"({_form(said.split())})" for said, _ in pairs)
    return re.compile(rf"\b(?:{'|'.join(forms)})\b", re.IGNORECASE), [word for _, word in pairs]


def _form(words: list[str]) -> str:
    return (_BETWEEN if len(words) == 2 else r"\s+").join(words)
