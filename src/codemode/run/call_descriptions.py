"""Describe the calls of a program for the model that wrote it.

Every surface uses these lines, so that a model never repeats what is done and has what it needs of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import CallSummary
from ..protocol.call_status import IN_ERRORS, may_have_run
from ..trace.visible_text import clipped, visible

MAX_CHARACTERS = 3000
# How each kind of line begins, and its share of the room.
_GROUPS = (
    ("Already done, do not repeat: ", 0.4),
    ("May or may not have happened, find out before repeating: ", 0.15),
    ("Waits for a person, not done: ", 0.1),
    ("Denied, not done: ", 0.1),
    ("Failed: ", 0.15),
    ("Done, only read: ", 0.4),
    ("Cut off, only reads: ", 0.1),
)
_DONE, _UNKNOWN, _WAITING, _DENIED, _FAILED, _READ, _READING = range(len(_GROUPS))
# The group of a call by its status, and of one that only reads.
_STATUSES = {
    IN_ERRORS.fulfilled: (_DONE, _READ),
    IN_ERRORS.open: (_UNKNOWN, _READING),
    IN_ERRORS.waiting: (_WAITING, _WAITING),
    "denied": (_DENIED, _DENIED),
    IN_ERRORS.rejected: (_FAILED, _FAILED),
}
_TEXT_CHARACTERS = (1000, 500, 200, 80, 30)  # of each text of a call: the first with which all calls fit
_MAX_NAME_CHARACTERS = 120
_MAX_NAMES = 2
_MAX_KEPT_CHARACTERS = 200  # of a result that the next program can read whole
_MORE_CHARACTERS = 80  # of what is said of those left out


def describe_calls(calls: Iterable[CallSummary], most: int = MAX_CHARACTERS) -> list[str]:
    """Return one line for each way in which calls stand, at most ``most`` characters in all; [] without calls.

    Inputs, results and messages are shortened, and calls left out and counted, where there is no room for them.
    """
    groups: list[list[CallSummary]] = [[] for _ in _GROUPS]
    for call in calls:
        if may_have_run(call) and (group := _STATUSES.get(call.get("status", ""))) is not None:
            groups[group[call.get("reads_only") is True]].append(call)
    found = [(beginning, share, group) for (beginning, share), group in zip(_GROUPS, groups, strict=True) if group]
    scale = most / max(1.0, sum(share for _, share, _ in found))
    return [
        clipped(beginning + _join_calls(group, int(share * scale) - len(beginning)), int(share * scale))
        for beginning, share, group in found
    ]


def drop_last_failure(calls: Sequence[CallSummary], name: str, *, is_late: bool = False) -> list[CallSummary]:
    """Return the calls without the last of this name that failed, or was late: an error that describes it anyway."""
    statuses = (IN_ERRORS.late,) if is_late else (IN_ERRORS.rejected, "denied")
    failed = [at for at, call in enumerate(calls) if call["name"] == name and call["status"] in statuses]
    return [call for at, call in enumerate(calls) if at != max(failed, default=None)]


def has_done(calls: Iterable[CallSummary]) -> bool:
    """Return True when a call is done, or may be, that changes something: the program must not simply run again."""
    statuses = (IN_ERRORS.fulfilled, IN_ERRORS.open)
    return any(
        call.get("status") in statuses and may_have_run(call) and call.get("reads_only") is not True for call in calls
    )


def _join_calls(calls: Sequence[CallSummary], room: int) -> str:
    """Return calls with as much of their texts as fits, else the first calls and how many more there are."""
    texts: list[str] = []
    for characters in _TEXT_CHARACTERS:
        texts = [_describe(call, characters) for call in calls]
        if sum(len(text) + 2 for text in texts) <= room:
            return "; ".join(texts)
    room -= _MORE_CHARACTERS
    count = used = 0
    for text in texts:
        used += len(text) + 2
        if count and used > room:
            break
        count += 1
    names = list(dict.fromkeys(clipped(call["name"], _MAX_NAME_CHARACTERS) for call in calls[count:]))
    others = ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")
    return f"{'; '.join(texts[:count])} and {len(calls) - count} more ({visible(others)})"


def _describe(call: CallSummary, characters: int) -> str:
    """Return ``name(input) -> result`` or ``name(input): message``, each text of at most so many characters."""
    text = clipped(call["name"], _MAX_NAME_CHARACTERS)
    if (call_input := call.get("input")) is not None:
        text += f"({clipped(call_input, characters)})"
    if (result := call.get("result")) is not None:
        key = call.get("kept")
        text += f" -> {clipped(result, characters if key is None else min(characters, _MAX_KEPT_CHARACTERS))}"
        text += "" if key is None else f' (the whole: await state.get("{key}"))'
    elif (message := call.get("error")) is not None:
        text += f": {clipped(' '.join(message.split()), characters)}"
    return visible(text)
