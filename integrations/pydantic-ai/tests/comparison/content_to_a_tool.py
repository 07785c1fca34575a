"""A program can pass an image from one tool to another"""

from __future__ import annotations

from typing import Any

from pydantic_ai import BinaryContent
from pydantic_ai_sides import Side, main
from script_steps import yes

# Its type checker takes the class of an output and that of an input for two, so that a program has to say Any.
PYTHON = """
from typing import Any
image: Any = await shot()
await measure(image=image, unit='byte')
"""
DATA = b"\x89PNG" + b"y" * 3000


async def answer(side: Side) -> str:
    given: list[Any] = []

    def shot() -> BinaryContent:
        """Take a picture."""
        return BinaryContent(DATA, media_type="image/png")

    def measure(image: BinaryContent, unit: str) -> int:
        """Say how large a picture is."""
        given.append(image)
        return len(image.data)

    js = "return await tools.measure({ image: await tools.shot({}), unit: 'byte' })"
    conversation = await side.run(js, PYTHON, [shot, measure])
    passed = yes(bool(given) and given[0].data == DATA and conversation.told[-1] == len(DATA))
    return passed if side.is_ours else f"{passed}, typed `Any`"


if __name__ == "__main__":
    main(answer)
