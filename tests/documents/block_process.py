"""Runs texts of pages, each in a forked process of its own: what they import is imported once, and costs most.

Argument: the import statements of all texts. A line of JSON with a text, its folder, its environment and the file for
its stderr is answered with a line that has its exit status.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import logging
import os
import sys
import threading
from types import ModuleType
from typing import Any, NoReturn


def import_once(statements: list[str]) -> None:
    for statement in statements:
        with contextlib.suppress(ImportError):  # the text that needs it will say so
            exec(statement, {})
    assert threading.active_count() == 1, "an import started a thread, which no fork has"
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy all of it


def become(asked: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    told = os.open(asked["stderr"], os.O_WRONLY | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDWR)
    for old, new in ((nothing, 0), (nothing, 1), (told, 2)):
        os.dup2(old, new)
    os.close(told)
    os.close(nothing)


def text_of_this_process() -> str | None:
    """Return what a forked process has to run; in the first process, nothing once nobody asks any more."""
    for line in sys.stdin:
        asked = json.loads(line)
        if (child := os.fork()) == 0:
            become(asked)
            return str(asked["text"])
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


def run(text: str) -> None:
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    # What a tool raises is logged, and some of these do: all else on stderr is a mistake.
    logging.getLogger("codemode").addHandler(logging.NullHandler())
    exec(compile(text, "<page>", "exec"), vars(main))
    vars(main).clear()
    gc.collect()  # whatever was not closed or awaited says so


def end() -> NoReturn:
    """End as Python does, but for taking apart all that was imported, which would take longer than most texts."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


import_once(json.loads(sys.argv[1]))
if (own := text_of_this_process()) is not None:
    run(own)
    end()
