"""An image that a program returns reaches the model as an image, not as text"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from langchain_core.tools import tool
from langchain_sides import Side, main
from script_steps import yes

TEXT = b64encode(b"\x89PNG" + b"y" * 3000).decode()
BLOCK = {"type": "image", "base64": TEXT, "mime_type": "image/png"}


@tool
def shot() -> list[dict[str, Any]]:
    """Take a picture."""
    return [BLOCK]


async def answer(side: Side) -> str:
    conversation = await side.run("return await tools.shot({})", [shot])
    content = conversation.told[-1].content
    blocks = content if isinstance(content, list) else []
    texts = [one["text"] for one in blocks if one["type"] == "text"] if blocks else [str(content)]
    return yes(BLOCK in blocks and not any(TEXT[:40] in text for text in texts))


if __name__ == "__main__":
    main(answer)
