"""Word the calls of a program for the model that wrote it: done, failed, denied, unknown, each with its texts.

Every surface uses these lines, so that a model never repeats what is done and never misses what it needs of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import CallSummary
from ..protocol.call_status import IN_ERRORS, may_have_run
from ..trace.visible_text import clipped, visible

MAX_CHARACTERS = 3000
_GROUPS = (
    ("Already done, do not repeat: ", 0.4),
    ("May or may not have happened, find out before repeating: ", 0.15),
    ("Waits for a person, not done: ", 0.1),
    ("Denied by a person, not done: ", 0.1),
    ("Failed: ", 0.15),
    ("Done, only read: ", 0.4),
    ("Cut off, only reads: ", 0.1),
)
_DONE, _UNKNOWN, _WAITING, _DENIED, _FAILED, _READ, _READING = range(len(_GROUPS))
_STATUSES = {
    IN_ERRORS.fulfilled: (_DONE, _READ),
    IN_ERRORS.open: (_UNKNOWN, _READING),
    IN_ERRORS.waiting: (_WAITING, _WAITING),
    "denied": (_DENIED, _DENIED),
    IN_ERRORS.rejected: (_FAILED, _FAILED),
}
# Of each text of a call: the first with which all calls fit.
_TEXT_CHARACTERS = (1000, 500, 200, 80, 30)
_MAX_NAME_CHARACTERS = 120
_MAX_NAMES = 2
_MAX_KEPT_CHARACTERS = 200  # of a result that the next program can read whole
_MORE_CHARACTERS = 80  # of what is said of those left out


def call_lines(calls: Iterable[CallSummary], most: int = MAX_CHARACTERS) -> list[str]:
    """Return one line for each way in which calls stand, of at most so many characters in all; none without calls.

    Texts are shortened, and calls left out and counted, as far as there is no room for all of them.
    """
    groups: list[list[CallSummary]] = [[] for _ in _GROUPS]
    for call in calls:
        if may_have_run(call) and (group := _STATUSES.get(call.get("status", ""))) is not None:
            groups[group[call.get("reads_only") is True]].append(call)
    found = [(*words, group) for words, group in zip(_GROUPS, groups, strict=True) if group]
    scale = most / max(1.0, sum(share for _, share, _ in found))
    return [
        clipped(meaning + _listed(group, int(share * scale) - len(meaning)), int(share * scale))
        for meaning, share, group in found
    ]


def without_last(calls: Sequence[CallSummary], name: str, *, is_late: bool = False) -> list[CallSummary]:
    """Return calls without the last of this name that failed, or was late: its error is told anyway."""
    statuses = (IN_ERRORS.late,) if is_late else (IN_ERRORS.rejected, "denied")
    kept = list(calls)
    failed = [at for at, call in enumerate(kept) if call["name"] == name and call["status"] in statuses]
    if failed:
        del kept[failed[-1]]
    return kept


def has_done(calls: Iterable[CallSummary]) -> bool:
    """Tell whether a call is done, or may be, that must not be made again without thinking."""
    changing = (IN_ERRORS.fulfilled, IN_ERRORS.open)
    return any(one.get("status") in changing and may_have_run(one) and not one.get("reads_only") for one in calls)


def _listed(calls: Sequence[CallSummary], room: int) -> str:
    """Return calls with as much of their texts as fits, else the first of them and how many more there are."""
    texts: list[str] = []
    for characters in _TEXT_CHARACTERS:
        texts = [_call(call, characters) for call in calls]
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


def _call(call: CallSummary, characters: int) -> str:
    name = clipped(call["name"], _MAX_NAME_CHARACTERS)
    given = call.get("input")
    shown = name if given is None else f"{name}({clipped(given, characters)})"
    if (result := call.get("result")) is not None:
        key = call.get("kept")
        shown += f" -> {clipped(result, characters if key is None else min(characters, _MAX_KEPT_CHARACTERS))}"
        shown += "" if key is None else f' (the whole: await state.get("{key}"))'
    elif (message := call.get("error")) is not None:
        shown += f": {clipped(' '.join(message.split()), characters)}"
    return visible(shown)
