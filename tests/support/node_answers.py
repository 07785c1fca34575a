"""One Node process that answers lines of JSON."""

import json
import select
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from required import node_path

ANSWER_SECONDS = 240


class NodeAnswers:
    """A script of the tests under Node; called with what is JSON it returns the answer."""

    def __init__(self, script: Path, *flags: str, arguments: tuple[str, ...] = ()) -> None:
        self._script = script
        command = [node_path(), "--no-warnings", *flags, str(script), *arguments]
        self._node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._node.kill()
        self._node.communicate(timeout=ANSWER_SECONDS)

    def __call__(self, question: Any) -> Any:
        assert self._node.stdin is not None
        self._node.stdin.write(json.dumps(question).encode() + b"\n")
        self._node.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> bytes:
        output = self._node.stdout
        assert output is not None
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([output], [], [], ANSWER_SECONDS)
            assert ready, f"{self._script.name} does not answer"
            piece = output.read1()  # type: ignore[attr-defined]
            assert piece, f"{self._script.name} has ended"
            line += piece
        return line
