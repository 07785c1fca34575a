"""Images, audio and files of LangChain's tools: handles in programs, blocks for the model, never base64 text."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest
from codemode_langchain import CodeModeMiddleware, ExecWaitMiddleware, create_code_mode_tool
from codemode_langchain.content import from_media_content, to_media_content
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import ValidationError
from scripted_agent import CONFIG, START, agent, asking, asks, results
from suite import each_row

from codemode import MediaContent

DATA = b"\x89PNG" + b"y" * 3000
TEXT = b64encode(DATA).decode()
BLOCK = {"type": "image", "base64": TEXT, "mime_type": "image/png", "extras": {"detail": "low"}}
WAIT_SECONDS = 60.0


class Tools:
    """A tool that gives a block, one that cuts it, and one with an artifact."""

    def __init__(self) -> None:
        self.given: list[Any] = []

        @tool
        def shot() -> list[dict[str, Any]]:
            """Take a picture."""
            return [{"type": "text", "text": "taken"}, BLOCK]

        @tool
        def cut(image: dict[str, Any], to: int) -> MediaContent:
            """Cut a picture."""
            self.given.append(image)
            return MediaContent(DATA[:to], "image/png")

        @tool(response_format="content_and_artifact")
        def size(image: MediaContent) -> tuple[int, dict[str, Any]]:
            """Say how large a picture is."""
            self.given.append(image)
            return len(image.data), {"of": image.mime_type}

        self.all = [shot, cut, size]


JS = """const [, picture] = await tools.shot({});
const small = await tools.cut({ image: picture, to: 10 });
content(picture);
return { small, size: await tools.size({ image: small }) };"""


def check(message: Any, tools: Tools, told: Any) -> None:
    text, *blocks = message.content
    assert blocks == [{"type": "image", "base64": b64encode(DATA[:10]).decode(), "mime_type": "image/png"}, BLOCK]
    assert told["small"] == {"content": 1, "kind": "image", "mimeType": "image/png", "bytes": 10, "name": None}
    assert told["size"] == 10
    assert TEXT[:40] not in text["text"]
    assert tools.given == [BLOCK, MediaContent(DATA[:10], "image/png")]
    artifact = message.artifact["calls"][-1]
    assert (artifact["tool"], artifact["artifact"]) == ("size", {"of": "image/png"})


def test_a_model_is_given_blocks_and_no_base64_text():
    tools = Tools()
    graph = agent((), tools.all, CodeModeMiddleware(), model=asking(asks(("codeMode", {"js": JS}))))
    (message,) = results(asyncio.run(asyncio.wait_for(graph.ainvoke(START, CONFIG), WAIT_SECONDS)))
    check(message, tools, json.loads(message.content[0]["text"]))


def test_exec_gives_them_too():
    tools = Tools()
    graph = agent((), tools.all, ExecWaitMiddleware(), model=asking(asks(("exec", {"code": JS}))))
    (message,) = results(asyncio.run(asyncio.wait_for(graph.ainvoke(START, CONFIG), WAIT_SECONDS)))
    told = json.loads(message.content[0]["text"])
    text, first, second = message.content
    assert {first["base64"], second["base64"]} == {TEXT, b64encode(DATA[:10]).decode()}
    assert told["output"][0]["value"]["bytes"] == len(DATA)
    assert told["value"]["size"] == 10
    assert TEXT[:40] not in text["text"]


def test_a_pause_goes_on_with_them():
    tools = Tools()
    made = asking(asks(("codeMode", {"js": JS})))
    hiding = CodeModeMiddleware(approve={"cut": True})
    graph = agent((), tools.all, hiding, model=made, checkpointer=InMemorySaver())

    async def paused() -> Any:
        output = await graph.ainvoke(START, CONFIG)
        (asked,) = output["__interrupt__"]
        assert asked.value["args"]["image"]["bytes"] == len(DATA)
        assert TEXT[:40] not in json.dumps(asked.value["args"])
        return await graph.ainvoke(Command(resume={asked.id: {"type": "approve"}}), CONFIG)

    (message,) = results(asyncio.run(asyncio.wait_for(paused(), WAIT_SECONDS)))
    check(message, tools, json.loads(message.content[0]["text"]))


def test_a_tool_outside_an_agent_gives_them_in_their_places():
    tools = Tools()
    result = create_code_mode_tool(tools.all).invoke({"js": JS})
    assert result.value == {"small": MediaContent(DATA[:10], "image/png"), "size": 10}
    assert [one.data for one in result.content] == [DATA]


@each_row(
    "block",
    [
        BLOCK,
        {"type": "audio", "source_type": "base64", "data": TEXT, "mime_type": "audio/wav"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": TEXT}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{TEXT}", "detail": "high"}},
        {"type": "file", "base64": TEXT, "mime_type": "application/pdf", "filename": "bill.pdf"},
        {"type": "image", "data": TEXT, "mimeType": "image/png"},
    ],
)
def test_each_form_of_a_block_comes_back_as_it_was(block: dict[str, Any]):
    part = to_media_content(block)
    assert part is not None
    assert (part.data, from_media_content(part)) == (DATA, block)


@each_row(
    "value",
    [
        {"type": "image", "url": "https://example.org/a.png"},
        {"type": "image", "base64": "*", "mime_type": "image/png"},
        {"type": "image", "base64": TEXT, "mime_type": "png"},
        {"type": "text", "base64": TEXT, "mime_type": "text/plain"},
        {"type": "image_url", "image_url": "https://example.org"},
        {"type": ["image"], "base64": TEXT},
        "image",
        None,
    ],
)
def test_what_is_no_block_of_bytes_is_data(value: Any):
    assert to_media_content(value) is None


EDITED_JS = """const [, picture] = await tools.shot({});
return await tools.publish({ image: picture, title: 'draft' });"""


class PublishingAgent:
    """An agent whose program asks before it publishes a picture; a new graph for each request, as in a new process."""

    def __init__(self, mode: Any, saver: Any) -> None:
        self.published: list[Any] = []
        self._mode, self._saver = mode, saver

        @tool
        def publish(image: MediaContent, title: str = "untitled") -> str:
            """Publish a picture."""
            self.published.append((image.data, title))
            return "published"

        self._tools = [Tools().all[0], publish]

    def start(self) -> Any:
        (waiting,) = self._make_graph(0).invoke(START, CONFIG)["__interrupt__"]
        return waiting

    def edit(self, waiting: Any, **changed: Any) -> Any:
        (action,) = waiting.value["action_requests"]
        edited = {"name": "publish", "args": {**action["args"], **changed}}
        decision = {"type": "edit", "edited_action": edited}
        answer = {waiting.id: {"decisions": [decision]} if self._mode == "batched" else decision}
        return self._make_graph(1).invoke(Command(resume=answer), CONFIG)

    def _make_graph(self, said: int) -> Any:
        messages = [asks(("codeMode", {"js": EDITED_JS}))][said:]
        middleware = CodeModeMiddleware(approve={"publish": True}, interrupt_mode=self._mode)
        return agent((), self._tools, middleware, model=asking(*messages), checkpointer=self._saver)


@each_row("mode", ["per_call", "batched"])
def test_an_edit_keeps_the_picture_of_a_call(mode: Any):
    publishing = PublishingAgent(mode, InMemorySaver())
    (message,) = results(publishing.edit(publishing.start(), title="edited"))
    assert message.status == "success"
    assert publishing.published == [(DATA, "edited")]


@each_row("value", [{"kind": "image", "mimeType": "image/png", "bytes": 4}, "picture", {"bytes": 4}])
def test_an_edit_cannot_replace_the_picture_of_a_call(value: Any):
    publishing = PublishingAgent("per_call", InMemorySaver())
    waiting = publishing.start()
    with pytest.raises(ValidationError, match="image"):
        publishing.edit(waiting, image=value)
    assert publishing.published == []


@each_row("name", ["0" * 32, "", None, []])
def test_an_edit_cannot_name_content_that_was_not_displayed(name: Any):
    publishing = PublishingAgent("per_call", InMemorySaver())
    waiting = publishing.start()
    handle = waiting.value["args"]["image"]
    image = {key: name if key.startswith("$content:") else item for key, item in handle.items()}
    with pytest.raises(ValidationError, match="must be a handle of the displayed input"):
        publishing.edit(waiting, image=image)
    assert publishing.published == []
