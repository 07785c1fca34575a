"""Secrets that come while a gateway runs are found from the first moment on, and cost nobody a look at all others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from codemode_gateway.config import redaction
from codemode_gateway.config.redaction import REPLACEMENT, SecretRedactor
from hypothesis import given
from hypothesis import strategies as st

BOUND = 60.0


class Later:
    """What would be done in a thread: done when a test says so."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def send(self, _errands: Any, work: Callable[[], None]) -> None:
        self.work.append(work)

    def happens(self) -> None:
        while self.work:
            self.work.pop(0)()


def secret(number: int) -> str:
    return f"token-{number:05}-of-somebody"


def assert_hidden(secrets: SecretRedactor, numbers: range | list[int]) -> None:
    said = secrets.redact_text(" ".join(secret(number) for number in numbers))
    assert said == " ".join(REPLACEMENT for _ in numbers)


STEP = st.sampled_from(["few", "many", "merge", "again"])


@given(st.integers(0, 9), st.lists(st.tuples(STEP, st.integers(1, 5)), max_size=25))
def test_whatever_comes_in_whatever_order_is_found_at_once_and_stays_so(fixed: int, steps: list[tuple[str, int]]):
    later = Later()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(redaction, "_MAX_RECENT", 3)
        patched.setattr(redaction.BackgroundThreads, "submit", lambda errands, work: later.send(errands, work))
        secrets, count = SecretRedactor(map(secret, range(fixed))), fixed
        for step, number in steps:
            if step == "merge":
                later.happens()
            elif step == "again":
                secrets.add_secrets(*map(secret, range(min(number, count))))
            else:
                new = range(count, count + number)
                for several in [new] if step == "many" else [range(one, one + 1) for one in new]:
                    secrets.add_secrets(*map(secret, several))
                    assert_hidden(secrets, several)
                count += number
            assert_hidden(secrets, range(count))
            assert secret(count) in secrets.redact_text(secret(count))
        later.happens()
        assert_hidden(secrets, range(count))
        assert len(secrets._index.search_set.searches) <= 2


def test_what_comes_while_all_is_put_together_is_not_lost(monkeypatch: pytest.MonkeyPatch):
    """Also where as many come meanwhile as begin another layer, and where one is forgotten and comes again."""
    monkeypatch.setattr(redaction, "_MAX_RECENT", 3)
    later, real = Later(), redaction.create_search_texts
    monkeypatch.setattr(redaction.BackgroundThreads, "submit", lambda errands, work: later.send(errands, work))
    secrets = SecretRedactor()
    for number in range(8):
        secrets.add_secrets(secret(number), owner="one" if number == 0 else "")

    def forms_of(texts: Any) -> Any:
        found = real(texts)
        monkeypatch.setattr(redaction, "create_search_texts", real)
        secrets.add_secrets(*map(secret, range(100, 116)), owner="one")  # of whom only 16 are kept
        secrets.add_secrets(secret(0), owner="one")
        secrets.add_secrets(secret(20))
        return found

    monkeypatch.setattr(redaction, "create_search_texts", forms_of)
    later.happens()
    assert_hidden(secrets, [*range(8), 20, *range(101, 116)])


def test_nobody_who_brings_one_puts_all_of_them_together(monkeypatch: pytest.MonkeyPatch):
    made: list[tuple[int, bool]] = []
    is_merged, here = threading.Event(), threading.get_ident()

    class Search(redaction.SecretSearch):
        def __init__(self, texts: Mapping[str, bool]) -> None:
            made.append((len(texts), threading.get_ident() == here))
            super().__init__(texts)
            if not made[-1][1]:
                is_merged.set()

    secrets = SecretRedactor(map(secret, range(1_000)))
    monkeypatch.setattr(redaction, "SecretSearch", Search)
    for number in range(1_000, 1_100):
        secrets.add_secrets(secret(number))
        assert_hidden(secrets, [number])
    assert is_merged.wait(BOUND)
    a_few = len(redaction.create_search_texts(map(secret, range(40))))
    assert max(size for size, is_here in made if is_here) <= a_few
    assert max(size for size, is_here in made if not is_here) > 10 * a_few
    assert_hidden(secrets, range(1_100))
