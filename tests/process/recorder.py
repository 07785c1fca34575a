"""A tool that notes its inputs: whether it ran at all."""

from __future__ import annotations

from codemode import (
    Tool,
)


class Recorder:
    """A tool that notes its inputs and gives them back."""

    def __init__(self):
        self.inputs = []
        self.tool = Tool("hit", execute=self.hit)

    async def hit(self, value):
        self.inputs.append(value)
        return value
