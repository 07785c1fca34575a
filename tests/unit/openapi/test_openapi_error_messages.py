"""The reason of an API's error, in the formats of common servers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openapi_world import World, operation, spec_of
from suite import each_row

from codemode.errors import CodeModeHttpError

DOCUMENT = spec_of({"/a": {"post": operation("post")}})
PREFIX = "POST /a failed: 422 Unprocessable Entity"


def get_message(body: Any) -> str:
    with pytest.raises(CodeModeHttpError) as caught:
        World(DOCUMENT, httpx.Response(422, json=body)).call("post")
    return caught.value.message


@each_row(
    "body, reason",
    [
        (
            {"detail": [{"loc": ["body", "age"], "msg": "Input should be >= 18", "type": "ge"}]},
            "body.age: Input should be >= 18",
        ),
        (
            {"detail": [{"loc": ["body", "a", 0], "msg": "bad"}, {"loc": ["query", "b"], "msg": "worse"}]},
            "body.a.0: bad; query.b: worse",
        ),
        ({"email": ["Enter a valid email address."]}, "email: Enter a valid email address."),
        ({"title": ["Required."], "tags": ["Too many.", "Bad."]}, "title: Required.; tags: Too many.; tags: Bad."),
        ({"errors": [{"detail": "name is taken"}]}, "name is taken"),
        ({"errors": [{"detail": "is taken", "source": {"pointer": "/data/name"}}]}, "/data/name: is taken"),
        (
            {
                "title": "One or more validation errors occurred.",
                "status": 400,
                "errors": {"Name": ["The Name field is required."]},
            },
            "One or more validation errors occurred: Name: The Name field is required.",
        ),
        (
            {"message": "Validation Failed", "errors": [{"field": "title", "code": "missing_field"}]},
            "Validation Failed: title: missing_field",
        ),
        ({"message": ["age must be an integer"], "error": "Bad Request"}, "Bad Request: age must be an integer"),
        ({"message": "bad", "errors": [{"message": "bad"}]}, "bad"),
        ({"errors": {"message": "bad"}}, "bad"),
        ({"errors": ["bad", "worse"]}, "bad; worse"),
        ({"detail": {"code": 7, "why": "closed"}}, '{"detail":{"code":7,"why":"closed"}}'),
        ([{"x": 1}, 2], '[{"x":1},2]'),
        ({"errors": [None, 1, [], {}]}, '{"errors":[null,1,[],{}]}'),
    ],
)
def test_the_reason_of_an_error_is_in_its_message(body: Any, reason: str):
    assert get_message(body) == f"{PREFIX}: {reason}"


@each_row("body", [{}, [], None, 0, False])
def test_an_empty_body_gives_no_reason(body: Any):
    assert get_message(body) == PREFIX


@each_row(
    "body",
    [
        {"detail": [{"loc": ["l" * 500] * 50, "msg": "m" * 5_000}] * 50},
        {f"f{index}": ["m" * 100] * 100 for index in range(100)},
        {"title": "t" * 5_000, "errors": {"e" * 5_000: ["m" * 5_000]}},
        {"x" * 10_000: ["y\n\x1b[31m\u202e", *range(10_000)]},
        {"a": "\x1b[31m\u202e\n" * 2_000, "b": 1},
        {"errors": [{"detail": "\x1b[31m\u202e\n", "loc": ["\x1b\n"]}]},
    ],
)
def test_the_reason_is_a_short_visible_line(body: Any):
    message = get_message(body)
    assert len(PREFIX) < len(message) <= len(PREFIX) + 510
    assert message.isprintable()
