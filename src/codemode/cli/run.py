"""``codemode run``: runs one program over a file's tools, with approvals in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from traceback import format_exception
from typing import Any

from ..data.content import split_content
from ..errors import CodeModeError, CodeModeSyntaxError
from ..execution.outcome_texts import describe_failure_without_console, failure_text
from ..interrupts.approval import ApprovalRequest
from ..interrupts.interrupt import Interrupt
from ..trace.events import ConsoleEvent, FetchRequestEvent, FetchResultEvent, NestedToolCallEvent, NestedToolResultEvent
from ..trace.trace import Trace
from ..trace.visible_text import clip_to_visible_line, escape_invisible, format_count
from .describe import create_code_mode_tool_from_file
from .exits import FAILED, PAUSED, SUCCEEDED, UsageError

_YES_ANSWERS = ("y", "yes")


class TerminalApprover:
    """Decides by ``--approve``. One question at a time, however many calls wait."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._prompt_lock = asyncio.Lock()

    async def __call__(self, request: ApprovalRequest) -> Any:
        """Return the decision about a call."""
        return await self.decide_or_ask(_describe_call(request))

    async def decide_or_ask(self, text: str) -> Any:
        """Return the decision about what is shown, a text that is visible already."""
        if self._mode == "all":
            return "approved"
        if self._mode == "deny":
            return {"approved": False, "reason": "denied by --approve deny"}
        async with self._prompt_lock:
            print(text, file=sys.stderr, flush=True)
            if not sys.stdin.isatty():
                print("denied: stdin is no terminal (use --approve all to allow)", file=sys.stderr)
                return {"approved": False, "reason": "no terminal to ask in"}
            return (
                "approved"
                if await _ask_yes_no("Allow this call? [y/N] ")
                else {"approved": False, "reason": "denied by the user"}
            )

    async def ask_confirmation(self, text: str, prompt: str) -> bool:
        """Return whether a person at the terminal says yes. ``--approve all`` answers only for calls."""
        async with self._prompt_lock:
            print(text, file=sys.stderr, flush=True)
            if self._mode == "deny" or not sys.stdin.isatty():
                print("declined: only a person at a terminal can answer this", file=sys.stderr)
                return False
            return await _ask_yes_no(prompt)


async def _ask_yes_no(prompt: str) -> bool:
    # Text typed before the question appeared cannot answer it.
    _discard_typed_input()
    print(prompt, end="", file=sys.stderr, flush=True)
    return (await _read_line()).strip().lower() in _YES_ANSWERS


def _describe_call(request: ApprovalRequest) -> str:
    input_text = escape_invisible(json.dumps(request.input, indent=2, ensure_ascii=False), keep="\n")
    return f"\nThe program wants to call {escape_invisible(request.tool_name)} with\n{input_text}"


def _discard_typed_input() -> None:
    try:
        import termios
    except ImportError:  # Windows
        _discard_typed_input_on_windows()
        return
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _discard_typed_input_on_windows() -> None:
    import msvcrt

    console: Any = msvcrt
    while console.kbhit():
        console.getwch()


async def _read_line() -> str:
    loop = asyncio.get_running_loop()
    line_future: asyncio.Future[str] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def read_available_line() -> None:
        # A thread in a blocking read could not be ended by Ctrl-C.
        if not line_future.done():
            line_future.set_result(os.read(descriptor, 4096).decode(errors="replace"))

    try:
        loop.add_reader(descriptor, read_available_line)
    except NotImplementedError:  # Windows
        return await asyncio.to_thread(sys.stdin.readline)
    try:
        return await line_future
    finally:
        loop.remove_reader(descriptor)


_MAX_LINE_CHARACTERS = 120
_PACKAGE = Path(__file__).parents[1]


def run_program(options: argparse.Namespace) -> int:
    """Run the program and print what it returns."""
    js = read_program(options.program) if options.eval is None else options.eval
    printer = _ProgressPrinter()
    settings: dict[str, object] = {
        "approval": {"on_approval_required": TerminalApprover(options.approve)},
        "lifecycle": printer.create_hooks(),
    }
    if options.timeout_ms is not None:
        settings["execution_policy"] = {"timeout_ms": options.timeout_ms}
    code_mode = create_code_mode_tool_from_file(options.tools, settings)
    try:
        result = asyncio.run(code_mode.execute({"js": js}))
    except CodeModeError as error:
        _print_failure(error, js, as_json=options.json)
        if options.tools is None and isinstance(error, CodeModeSyntaxError):
            print("codemode: no tools; name a file that defines them with --tools FILE", file=sys.stderr)
        code = FAILED
    else:
        code = _print_result_or_pause(result, as_json=options.json)
    if options.trace and printer.trace is not None:
        print(printer.trace.to_text(), file=sys.stderr)
        _print_tracebacks(printer.trace)
    return code


def _print_tracebacks(trace: Trace) -> None:
    """Print where each failed tool raised its exception, without the frames of this package that called it."""
    for request in trace.bridge_requests:
        cause = None if request.error is None else request.error.__cause__
        if cause is None:
            continue
        frame = cause.__traceback__
        while frame is not None and Path(frame.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE):
            frame = frame.tb_next
        text = "".join(format_exception(type(cause), cause, frame))
        print(escape_invisible(f"\n{request.label} raised:\n{text}", keep="\n"), end="", file=sys.stderr)


class _ProgressPrinter:
    """Says on stderr what the program does while it does it."""

    def __init__(self) -> None:
        self.trace: Trace | None = None

    def create_hooks(self) -> dict[str, Any]:
        return {
            "on_nested_tool_call": self._print_call,
            "on_nested_tool_result": self._print_call_result,
            "on_fetch_request": self._print_call,
            "on_fetch_result": self._print_call_result,
            "on_console": self._print_console_line,
            "on_trace": self._store_trace,
        }

    def _print_call(self, call: NestedToolCallEvent | FetchRequestEvent) -> None:
        value = json.dumps(call.input, ensure_ascii=False) if isinstance(call, NestedToolCallEvent) else ""
        self._print_line(f"-> {clip_to_visible_line(f'{call.label} {value}', _MAX_LINE_CHARACTERS)}")

    def _print_call_result(self, result: NestedToolResultEvent | FetchResultEvent) -> None:
        size = "" if result.output_bytes is None else f", {format_count(result.output_bytes, 'byte')}"
        label = clip_to_visible_line(result.label, _MAX_LINE_CHARACTERS)
        self._print_line(
            f"<- {label} {result.status} in {result.duration_ms:.1f} ms{size}{_format_error_suffix(result.error)}"
        )

    def _print_console_line(self, line: ConsoleEvent) -> None:
        self._print_line(f"   {line.level}: {escape_invisible(line.text)}")

    def _store_trace(self, trace: Trace) -> None:
        self.trace = trace

    @staticmethod
    def _print_line(text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _format_error_suffix(error: BaseException | None) -> str:
    """Return the class and message of a failure's cause, for the owner of the tools."""
    if error is None:
        return ""
    cause = error.__cause__ or error
    return f": {clip_to_visible_line(f'{type(cause).__name__}: {cause}', _MAX_LINE_CHARACTERS)}"


def read_program(program: str) -> str:
    """Return the text of a file, or of stdin for ``-``. Raises `UsageError`."""
    try:
        data = sys.stdin.buffer.read() if program == "-" else Path(program).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{program} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{program} is not UTF-8 text") from error


def _print_result_or_pause(result: Any, *, as_json: bool) -> int:
    if isinstance(result, Interrupt):
        print(json.dumps({"status": "interrupted", "interrupt": result.to_dict()}))
        tool_names = ", ".join(
            clip_to_visible_line(request.tool_name, _MAX_LINE_CHARACTERS) for request in result.requests
        )
        print(f"paused: waits for {tool_names}", file=sys.stderr)
        return PAUSED
    value, parts = split_content(result)
    if as_json:
        print(json.dumps({"status": "completed", "result": value}))
    else:
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        print(escape_invisible(text, keep="\n\t"))
    for number, part in enumerate(parts, 1):
        description = json.dumps({"content": number, **part.description}, ensure_ascii=False)
        print(f"note: the bytes are not printed: {escape_invisible(description)}", file=sys.stderr)
    return SUCCEEDED


def _print_failure(error: CodeModeError, js: str, *, as_json: bool) -> None:
    if as_json:
        text = failure_text(error, js)
        failure = {"name": type(error).__name__, "code": error.code, "message": error.message, "text": text}
        location = {key: error.details[key] for key in ("line", "column") if key in error.details}
        print(json.dumps({"status": "failed", "error": {**failure, **location}, "calls": error.calls}))
    print(describe_failure_without_console(error, js), file=sys.stderr)
