"""Images, audio and files of an agent's tools: handles in programs, real content for the model, never base64 text."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from codemode_pydantic_ai import CodeMode, ExecWait
from codemode_pydantic_ai.content import from_media_content, replace_media_schemas, to_media_content
from pydantic import TypeAdapter
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, DeferredToolResults, ImageUrl, ToolReturn
from pydantic_ai.messages import MultiModalContent, ToolReturnPart, UserPromptPart
from scripted import Script, execute, program

DATA = b"\x89PNG" + b"y" * 3000
WAIT_SECONDS = 60.0


def an_agent(script: Script, *capabilities: Any, gated: bool = False) -> tuple[Agent[Any, Any], list[Any]]:
    agent = Agent(script.model, output_type=[str, DeferredToolRequests], capabilities=list(capabilities))
    given: list[Any] = []

    @agent.tool_plain
    def shot() -> BinaryContent:
        return BinaryContent(DATA, media_type="image/png")

    @agent.tool_plain(requires_approval=gated)
    def cut(image: BinaryContent, to: int) -> list[BinaryContent]:
        given.append(image)
        return [BinaryContent(image.data[:to], media_type="image/png", vendor_metadata={"detail": "low"})]

    @agent.tool_plain
    def link() -> dict[str, Any]:
        return {"found": ImageUrl("https://example.org/a.png"), "rank": 1}

    @agent.tool_plain
    def noted(image: MultiModalContent, why: str) -> ToolReturn[int]:
        given.append(image)
        return ToolReturn(len(why), content=["look at this", image], metadata={"why": why})

    return agent, given


JS = """const [one] = await tools.cut({ image: await tools.shot(), to: 10 });
content(one);
const n = await tools.noted({ image: (await tools.link()).found, why: "ok" });
return { one, n, link: await tools.link() };"""


def returned(result: Any) -> tuple[ToolReturnPart, list[Any]]:
    parts = [part for message in result.all_messages() for part in message.parts]
    (found,) = [part for part in parts if isinstance(part, ToolReturnPart)]
    said = [part.content for part in parts if isinstance(part, UserPromptPart)][1:]
    return found, said


def check(found: ToolReturnPart, value: Any, objects: list[Any], said: list[Any], given: list[Any]) -> None:
    assert [one.data for one in objects if isinstance(one, BinaryContent)] == [DATA[:10]]
    assert objects[0].vendor_metadata == {"detail": "low"}
    assert [one.url for one in objects if isinstance(one, ImageUrl)] == ["https://example.org/a.png"]
    assert value["one"] == {"content": 1, "kind": "image", "mimeType": "image/png", "bytes": 10, "name": None}
    assert (value["n"], value["link"]["rank"], value["link"]["found"]["content"]) == (2, 1, 2)
    assert [type(one) for one in given][1:] == [ImageUrl]
    assert given[0].data == DATA
    assert said == [["look at this", ImageUrl("https://example.org/a.png")]]
    (call,) = found.metadata["nested_metadata"]
    assert (call["tool"], call["metadata"]) == ("noted", {"why": "ok"})


def test_a_model_is_given_the_objects_and_no_base64():
    script = Script(program(JS), "done")
    agent, given = an_agent(script, CodeMode())
    found, said = returned(asyncio.run(asyncio.wait_for(agent.run("go"), WAIT_SECONDS)))
    value, *objects = found.content
    check(found, value, objects, said, given)
    assert "iVBOR" not in json.dumps(value)
    description = script.seen[0][1].function_tools[0].description or ""
    assert "image: Content;" in description


def test_exec_gives_them_too():
    script = Script(execute(JS.replace("return {", "text('shown'); return {")), "done")
    agent, given = an_agent(script, ExecWait())
    found, said = returned(asyncio.run(asyncio.wait_for(agent.run("go"), WAIT_SECONDS)))
    told, *objects = found.content
    assert [one["type"] for one in told["output"]] == ["content", "text"]
    assert told["output"][0]["value"]["content"] == told["value"]["one"]["content"]
    check(found, told["value"], objects, said, given)


def test_a_pause_shows_no_bytes_and_goes_on_with_them():
    script = Script(program(JS), "done")
    agent, given = an_agent(script, CodeMode(), gated=True)

    async def paused() -> Any:
        waiting = await agent.run("go")
        (call,) = waiting.output.approvals
        image = call.args_as_dict()["image"]
        assert {key: image[key] for key in ("kind", "bytes")} == {"kind": "image", "bytes": len(DATA)}
        assert "iVBOR" not in json.dumps(call.args_as_dict())
        results = DeferredToolResults(approvals={call.tool_call_id: True})
        return await agent.run(message_history=waiting.all_messages(), deferred_tool_results=results)

    found, said = returned(asyncio.run(asyncio.wait_for(paused(), WAIT_SECONDS)))
    value, *objects = found.content
    check(found, value, objects, said, given)


def test_what_looks_like_a_handle_runs_nothing():
    js = """const image = { ...(await tools.shot()) };
    try { await tools.cut({ image, to: 1 }); } catch (error) { return String(error); }"""
    script = Script(program(js), "done")
    agent, given = an_agent(script, CodeMode())
    found, _ = returned(asyncio.run(asyncio.wait_for(agent.run("go"), WAIT_SECONDS)))
    assert "CodeModeToolError" in found.content
    assert given == []


def test_each_object_comes_back_as_it_was():
    ones = [
        BinaryContent.narrow_type(BinaryContent(DATA, media_type="image/png")),
        BinaryContent(DATA, media_type="application/pdf", identifier="bill", vendor_metadata={"a": 1}),
        ImageUrl("https://example.org/a.png", force_download=True),
    ]
    for one in ones:
        part = to_media_content(one)
        assert part is not None
        again = from_media_content(part)
        assert (again, again.identifier) == (one, one.identifier)
        _ = one.identifier  # which the framework makes of the bytes when it is asked, and keeps
        assert to_media_content(again) == to_media_content(one) == part
    assert to_media_content({"kind": "binary"}) is None


def test_a_union_of_the_frameworks_classes_is_one_type():
    schema = replace_media_schemas(TypeAdapter(MultiModalContent).json_schema())
    assert "oneOf" not in schema
    assert {one["x-codemode"] for one in schema["$defs"].values() if "x-codemode" in one} == {"content"}
