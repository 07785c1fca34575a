"""What a person is shown of secrets whose list a validator has changed."""

from __future__ import annotations

from typing import Any

from codemode_langchain.content import to_displayed_value
from pydantic import BaseModel, SecretStr, model_validator
from suite import each_row


class Part(BaseModel):
    keys: list[SecretStr] = []
    by_name: dict[str, SecretStr] = {}


class Whole(BaseModel):
    lists: list[list[SecretStr]] = []
    parts: list[Part] = []

    @model_validator(mode="after")
    def _moved(self) -> Whole:
        self.lists.reverse()
        self.parts.reverse()
        return self


@each_row(
    "given",
    [
        {"lists": [[], [""]]},
        {"lists": [["a"], [], ["b", "c"]]},
        {"parts": [{"keys": ["a"]}, {}]},
        {"parts": [{"by_name": {"k": "a"}}, {"keys": []}]},
        {"parts": [{"keys": []}, {"keys": ["a", "b"]}]},
    ],
)
def test_what_was_given_is_shown_wherever_it_was_moved_to(given: dict[str, Any]) -> None:
    seen = to_displayed_value(Whole.model_validate(given), given)
    for name, items in given.items():
        for item, moved in zip(items, reversed(seen[name]), strict=True):
            assert item == moved if isinstance(item, list) else {**item, **moved} == moved


def test_a_secret_of_the_host_is_not_shown_beside_what_was_given() -> None:
    given = {"lists": [["a"], []]}
    whole = Whole.model_validate(given)
    whole.lists[1].append(SecretStr("of the host"))
    assert to_displayed_value(whole, given)["lists"] == [[], ["a", None]]
