"""A program can pass an image from one tool to another"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from langchain_core.tools import tool
from langchain_sides import Side, main
from script_steps import yes

BLOCK = {"type": "image", "base64": b64encode(b"\x89PNG" + b"y" * 3000).decode(), "mime_type": "image/png"}


async def answer(side: Side) -> str:
    given: list[Any] = []

    @tool
    def shot() -> list[dict[str, Any]]:
        """Take a picture."""
        return [BLOCK]

    @tool
    def measure(image: dict[str, Any]) -> int:
        """Say how large a picture is."""
        given.append(image)
        return len(image["base64"])

    js = "const [image] = await tools.shot({}); return await tools.measure({ image })"
    await side.run(js, [shot, measure])
    return yes(given == [BLOCK])


if __name__ == "__main__":
    main(answer)
