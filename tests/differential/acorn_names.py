"""The names, loops and uses of modules that acorn finds in programs, from one Node process."""

import json
import select
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from required import node_path

SCRIPT = Path(__file__).with_suffix(".js")
ANSWER_SECONDS = 60


class Acorn:
    """Answers programs: ``{"names": [[name, place]], "loops": [[kind, place]], "modules": ...}``.

    None for what is no program. Places count UTF-16 units from 0.
    """

    def __init__(self) -> None:
        command = [node_path(), "--expose-internals", "--no-warnings", str(SCRIPT)]
        self._node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._node.kill()
        self._node.communicate(timeout=ANSWER_SECONDS)

    def __call__(self, js: str) -> dict[str, Any] | None:
        assert self._node.stdin is not None
        self._node.stdin.write(json.dumps(js).encode() + b"\n")
        self._node.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> bytes:
        output = self._node.stdout
        assert output is not None
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([output], [], [], ANSWER_SECONDS)
            assert ready, "acorn does not answer"
            piece = output.read1()  # type: ignore[attr-defined]
            assert piece, "acorn has ended"
            line += piece
        return line
