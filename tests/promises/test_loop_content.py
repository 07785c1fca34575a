"""Images, audio and files of tools: counted first, decoded and compared off the loop, and no more than may be."""

from __future__ import annotations

import base64
import binascii
import threading
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from waiting import within

from codemode import MediaContent, Tool, ToolResult, run_code_mode
from codemode.data import content as contents_of_data
from codemode.errors import CodeModeSerializationError
from codemode.execution.call_content import InvocationContent, using_content_registry
from codemode.options.parts import ContinuationOptions, ExecutionPolicy
from codemode.protocol.references import CONTENT_LIMIT, ContentRegistry
from codemode.tools import tool_result
from codemode.tools.tool_result import to_program_value

MOST = ExecutionPolicy().max_content_parts


def image(data: str, mime_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "mimeType": mime_type, "data": data}


def text_of(number: int) -> str:
    return base64.b64encode(str(number).encode()).decode()


def run_contents(**limits: Any) -> ContentRegistry:
    return ContentRegistry().assign_to_invocation(ExecutionPolicy(**limits), "salt")


@pytest.fixture
def decoded(monkeypatch):
    """Return the lengths of what is decoded at once."""
    lengths: list[int] = []

    def noting(text: str, **how: Any) -> bytes:
        lengths.append(len(text))
        return binascii.a2b_base64(text, **how)

    monkeypatch.setattr(tool_result, "binascii", type("Noting", (), {"a2b_base64": staticmethod(noting)}))
    return lengths


# --- how it is decoded ---


@example("0000=")
@example("0000===")
@given(st.text("AQz0+/=-! ", max_size=24) | st.binary(max_size=20).map(lambda one: base64.b64encode(one).decode()))
def test_loop_base64_is_decoded_in_pieces_as_it_is_at_once(text):
    try:
        whole = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        whole = None
    for size in (4, 8, 12):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tool_result, "_BASE64_CHUNK_CHARACTERS", size)
            made = tool_result._decode_media(text, "image/png")
        assert (made and made.data) == whole


@pytest.mark.parametrize("blocks", [1, 4])
def test_loop_what_is_large_is_decoded_a_piece_at_a_time(blocks, decoded):
    result = ToolResult([image(base64.b64encode(bytes(8 << 20) + bytes([n])).decode()) for n in range(blocks)])
    with using_content_registry(run_contents()):
        assert len(to_program_value(result)["content"][-1].data) == (8 << 20) + 1
    assert max(decoded) <= tool_result._BASE64_CHUNK_CHARACTERS


# --- how much ---


def test_loop_what_is_there_many_times_over_is_decoded_once(decoded):
    texts = ["eA==" for _ in range(5)] + [base64.b64encode(b"x" * 5000).decode() for _ in range(5)]
    with using_content_registry(run_contents()):
        made = to_program_value(ToolResult([image(texts[number % 10]) for number in range(10_000)]))["content"]
        assert len({id(one) for one in made}) == 2
        assert len(decoded) == 2
        other = to_program_value(ToolResult([image("eA=="), image("eA==", "image/gif"), image("eQ==")]))["content"]
    assert [(one.data, one.mime_type) for one in other] == [
        (b"x", "image/png"),
        (b"x", "image/gif"),
        (b"y", "image/png"),
    ]


@pytest.mark.parametrize("count", [MOST + 1, 30_000])
def test_loop_more_parts_than_there_may_be_are_not_decoded(count, decoded):
    result = ToolResult([image(text_of(number)) for number in range(count)])
    made = run_contents()
    with (
        using_content_registry(made),
        pytest.raises(CodeModeSerializationError, match="max_content_parts is") as caught,
    ):
        to_program_value(result, made.require_within_limits)
    assert caught.value.code == CONTENT_LIMIT
    assert len(decoded) == MOST + 1


@pytest.mark.parametrize(
    ("limits", "said", "count"),
    [({"max_content_bytes": 10_000}, "all content", 4), ({"max_content_part_bytes": 2000}, "one part", 1)],
)
def test_loop_more_bytes_than_there_may_be_are_not_decoded(limits, said, count, decoded):
    result = ToolResult([image(base64.b64encode(bytes([n]) * 3000).decode()) for n in range(200)])
    made = run_contents(**limits)
    with using_content_registry(made), pytest.raises(CodeModeSerializationError, match=said):
        to_program_value(result, made.require_within_limits)
    assert len(decoded) == count


def test_loop_what_is_no_image_counts_as_none(decoded):
    blocks = [*(image(f"no base64 {number}") for number in range(1000)), image("eA==")]
    with using_content_registry(run_contents()):
        made = to_program_value(ToolResult(blocks))["content"]
    assert made[:-1] == blocks[:-1]
    assert made[-1] == MediaContent(b"x", "image/png")
    assert to_program_value(ToolResult(blocks))["content"] == blocks  # in a face without content


# --- content that a tool makes itself ---


class Noted(ContentRegistry):
    """Counts what is done with parts on the thread of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0
        self._loop = threading.get_ident()

    def register(self, part: MediaContent) -> dict[str, Any]:
        self.taken += threading.get_ident() == self._loop
        return super().register(part)


def same(count: int) -> list[MediaContent]:
    return [MediaContent(b"x", "image/png")] * count


def alike(count: int) -> list[MediaContent]:
    return [MediaContent(b"x", "image/png") for _ in range(count)]


def different(count: int) -> list[MediaContent]:
    return [MediaContent(str(number).encode(), "image/png") for number in range(count)]


@pytest.mark.parametrize("by_digest", [True, False])
@pytest.mark.parametrize(("parts", "kept"), [(same, 1), (alike, 1), (different, None)])
def test_loop_the_loop_takes_each_part_once_and_works_out_no_digest(parts, kept, by_digest, monkeypatch):
    made, output, loop, digests = (
        Noted().assign_to_invocation(ExecutionPolicy(), "salt"),
        parts(20_000),
        threading.get_ident(),
        [],
    )
    real = contents_of_data._sha256

    def noting(*data: bytes) -> Any:
        digests.append(threading.get_ident())
        return real(*data)

    content = InvocationContent(made, ContinuationOptions())
    made.uses_ids = by_digest
    monkeypatch.setattr(contents_of_data, "_sha256", noting)
    if kept is None:
        with pytest.raises(CodeModeSerializationError, match="max_content_parts is"):
            within(content.save_and_replace_parts(output))
    else:
        assert within(content.save_and_replace_parts(output)) == [made.register(output[0])] * 20_000
        assert len(made) == kept
    assert made.taken <= MOST + 2
    assert digests.count(loop) == 0


def test_loop_a_program_is_told_of_too_much_content_and_goes_on():
    async def many(_: Any) -> ToolResult:
        return ToolResult([image(text_of(number)) for number in range(1000)])

    js = "try { await tools.many({}); } catch (error) { return [error.code, error.message]; }"
    code, message = within(run_code_mode(js, [Tool("many", execute=many)]))
    assert code == CONTENT_LIMIT
    assert f"execution_policy.max_content_parts is {MOST}" in message


def test_loop_as_much_content_as_there_may_be_goes_through():
    async def many(_: Any) -> ToolResult:
        return ToolResult([image(text_of(number % MOST)) for number in range(1000)])

    assert len(within(run_code_mode("return (await tools.many({})).content", [Tool("many", execute=many)]))) == 1000
