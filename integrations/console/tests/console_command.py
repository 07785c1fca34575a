"""`codemode console` as a process of its own, for the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from select import select

KEY = "9c1f0a7e93d24b68a1e7c05d9b3f8462"


@contextmanager
def command(folder: Path, *arguments: str, key: str = KEY) -> Generator[tuple[subprocess.Popen[str], str]]:
    """Run it on a free port until the block ends; give the process and the first line that it prints."""
    asked = [sys.executable, "-W", "error", "-m", "codemode", "console", "--port", "0", *arguments]
    environment = {**os.environ, "CODEMODE_SIGNING_KEY": key}
    with subprocess.Popen(
        asked, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            ready, _, _ = select([process.stdout], [], [], 120)
            assert ready, "nothing was printed"
            yield process, process.stdout.readline()
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            finally:
                process.kill()
