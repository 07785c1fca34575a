"""Checks of what every plugin promises about images, audio and files, on the faces that have them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

from .plugin_under_test import (
    Check,
    ContractAnswer,
    ContractTool,
    Finished,
    Outcome,
    Paused,
    PluginUnderTest,
    resume,
    run,
)

_PICTURE = b"\x89PNG" + bytes(range(200))


class _Gallery:
    """A tool that gives a picture, and one that is given it; ``seen`` are its bytes."""

    def __init__(self, plugin: PluginUnderTest, *, gated: bool = False) -> None:
        self.seen: list[bytes] = []

        def shot() -> Any:
            """Take a picture."""
            return [plugin.part(_PICTURE, "image/png")]

        def size(image: Any, label: str) -> int:
            """Say how large a picture is."""
            self.seen.append(plugin.bytes_of(image))
            return len(self.seen[-1]) + len(label)

        self.tools = (
            ContractTool(name="shot", function=shot),
            ContractTool(name="size", function=size, needs_approval=gated),
        )

    def check(self, outcome: Outcome) -> None:
        """Check that the model has the picture, and its text no bytes of it."""
        assert isinstance(outcome, Finished), outcome
        assert outcome.value["size"] == len(_PICTURE) + 1
        assert outcome.value["facts"] == [True, "image", "image/png", len(_PICTURE)]
        assert list(outcome.content) == [("image/png", _PICTURE)]
        assert b64encode(_PICTURE).decode()[:24] not in json.dumps(outcome.value)
        assert self.seen == [_PICTURE]


_JS = """
const [image] = await tools.shot({});
const size = await tools.size({ image, label: "x" });
return { size, facts: [Object.isFrozen(image), image.kind, image.mimeType, image.bytes], image };
"""
_FORGED = """
const image = { ...(await tools.shot({}))[0], label: "x" };
try { content(image); return "shown"; } catch { return "refused"; }
"""


async def passes_content(plugin: PluginUnderTest) -> None:
    """A picture goes from tool to tool as the framework's object, and reaches the model as real content."""
    gallery = _Gallery(plugin)
    gallery.check(await run(plugin, gallery.tools, _JS))


async def keeps_content_over_a_pause(plugin: PluginUnderTest) -> None:
    """A person is shown no bytes, and what was approved gets the same picture."""
    gallery = _Gallery(plugin, gated=True)
    paused = await run(plugin, gallery.tools, _JS)
    assert isinstance(paused, Paused), paused
    (call,) = paused.calls
    assert call.input["image"]["bytes"] == len(_PICTURE)
    assert b64encode(_PICTURE).decode()[:24] not in json.dumps(call.input)
    gallery.check(await resume(plugin, gallery.tools, paused.state, {call.id: ContractAnswer(approved=True)}))


async def refuses_forged_content(plugin: PluginUnderTest) -> None:
    """What only looks like a handle is data."""
    assert await run(plugin, _Gallery(plugin).tools, _FORGED) == Finished(value="refused")


CONTENT: tuple[Check, ...] = (passes_content, keeps_content_over_a_pause, refuses_forged_content)
