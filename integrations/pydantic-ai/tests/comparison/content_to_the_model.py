"""An image that a program returns reaches the model as an image, not as text"""

from __future__ import annotations

from base64 import b64encode

from pydantic_ai import BinaryContent
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai_sides import Side, main
from script_steps import yes

DATA = b"\x89PNG" + b"y" * 3000


def shot() -> BinaryContent:
    """Take a picture."""
    return BinaryContent(DATA, media_type="image/png")


async def answer(side: Side) -> str:
    conversation = await side.run("return await tools.shot({})", "await shot()", [shot])
    parts = [part.content for message in conversation.messages for part in message.parts if hasattr(part, "content")]
    flat = [one for part in parts for one in (part if isinstance(part, list | tuple) else [part])]
    texts = "".join(one for one in flat if isinstance(one, str))
    assert ModelMessagesTypeAdapter.dump_json(conversation.messages)
    is_one = any(isinstance(one, BinaryContent) and one.data == DATA for one in flat)
    return yes(is_one and b64encode(DATA).decode()[:40] not in texts)


if __name__ == "__main__":
    main(answer)
