"""Validate, measure and encode inputs and outputs of calls, and answers to a pause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..data.json_shape import estimate_json_length, run_off_loop_if_large
from ..data.json_values import (
    decode_json,
    encode_canonical_json,
    encode_json,
    require_json_text_within_limits,
    require_max_bytes,
    require_max_values_in_host_value,
    require_max_values_in_json_text,
)
from ..data.narrowing import is_array, is_object, mapping_or_empty
from ..data.plain_json import can_encode_with_orjson, read_encodable_part
from ..data.rich_values import is_rich, to_tagged_json
from ..errors import CodeModeError, CodeModeProtocolError, CodeModeSerializationError, CodeModeToolError
from ..host.cancellation import FAILURES
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ..interrupts.interrupt import Interrupt
from ..interrupts.resolutions import Answer, ApprovalAnswer, allows_tool_to_run
from ..options.parts import ExecutionPolicy
from ..protocol.continuation import Continuation
from ..protocol.ledger import Fulfilled, LedgerEntry, get_displayed_input_json
from ..protocol.references import LargeStringRegistry
from ..records import record
from ..schemas.compiled import (
    MAX_PROBLEMS,
    SchemaProblem,
    ValidatedInput,
    add_displayed_defaults_that_change,
    merge_defaults,
)
from ..tools.catalog import MAX_NAME_CHARACTERS, ToolCatalog
from ..tools.prepared import MISSING, ConvertedOutput, PreparedTool
from ..tools.running import require_no_iterators
from .call_content import replace_part_names_in_json, restore_handle_descriptions

if TYPE_CHECKING:
    from ..fetch.fetcher import FetchRequest


_MAX_EDITED_PARTS = 64


@record
class CheckedInput:
    """A validated input and its JSON text for display; None if the text is not needed."""

    validated: ValidatedInput
    displayed_input_json: str | None


def choose_and_validate_input(tool: PreparedTool, entry: LedgerEntry, edited_json: str | None = None) -> ValidatedInput:
    """Return the validated input of a call: the edited, allowed, displayed or issued one.

    Raises `CodeModeToolError` for wrong input; `CodeModeProtocolError` if a displayed input would validate to
    another value, or an edited input is wrong.
    """
    if edited_json is not None:
        return _validate_edited_input(tool, edited_json)
    if entry.executed_input_json is None and entry.outcome is None:
        return tool.validate_input(_decode_issued_input(entry))
    displayed_input_json = get_displayed_input_json(entry)
    if displayed_input_json is None:
        return tool.validate_input(_decode_issued_input(entry))
    return _validate_displayed_input(tool, entry, displayed_input_json)


def _validate_displayed_input(tool: PreparedTool, entry: LedgerEntry, displayed_input_json: str) -> ValidatedInput:
    """Validate the displayed input again: from the issued input, with displayed defaults, or as it was displayed.

    Defaults may differ per validation, and validators may not be idempotent.
    """
    previous = displayed = decode_json(displayed_input_json)
    issued, displayed_json, reason = _decode_issued_input(entry), encode_canonical_json(displayed), ""
    issued_value: Any = {} if issued is MISSING else issued
    candidates: tuple[Callable[[Any], Any], ...] = (
        lambda _: issued,
        lambda previous: add_displayed_defaults_that_change(issued_value, displayed, previous),
        lambda _: merge_defaults(issued_value, displayed),
        lambda _: displayed,
    )
    for candidate in candidates:
        try:
            validated = tool.validate_input(candidate(previous))
        except CodeModeToolError as error:
            # Quote only the displayed input: the issued one may contain data that the host removed.
            reason = f" ({error.message})" if candidate is candidates[-1] else ""
            continue
        if to_displayed_json(validated) == displayed_json:
            return validated
        previous = validated.json_value
    raise CodeModeProtocolError(
        f"the input of tool {tool.name!r} differs from what was displayed: its schema has changed, or returns another"
        f" value each time{reason}"
    )


def _decode_issued_input(entry: LedgerEntry) -> Any:
    text = entry.input_json
    if text is None:
        return MISSING
    return restore_handle_descriptions(decode_json(text) if entry.sidecar is None else entry.decode_full_input(), text)


def _validate_edited_input(tool: PreparedTool, edited_json: str) -> ValidatedInput:
    edited = restore_handle_descriptions(decode_json(edited_json), edited_json)
    try:
        validated = tool.validate_input(edited)
    except CodeModeToolError as error:
        raise CodeModeProtocolError(
            f"the edited input of tool {tool.name!r} is wrong: {error.message}", details={"is_edit_invalid": True}
        ) from error
    if _is_edit_ambiguous(tool, edited, validated):
        raise CodeModeProtocolError(
            f"the edited input of tool {tool.name!r} is refused: its schema changes a value each time it is applied,"
            " so that the tool's input would be ambiguous; allow the call as displayed, or deny it",
            details={"is_edit_invalid": True},
        )
    return validated


def _is_edit_ambiguous(tool: PreparedTool, edited: Any, validated: ValidatedInput) -> bool:
    """Return whether validating the result again would change it."""
    result: Any = validated.json_value
    if not is_object(result) or not is_object(edited) or len(keys := edited.keys() & result.keys()) > _MAX_EDITED_PARTS:
        return _changes_when_revalidated(tool, result, lambda again: again, result)
    # Part by part: the result for another part may not be a valid input.
    return any(
        _changes_when_revalidated(
            tool, {**edited, key: result[key]}, lambda again, key=key: again.get(key), result[key]
        )
        for key in keys
    )


def _changes_when_revalidated(tool: PreparedTool, value: Any, get_part: Callable[[Any], Any], expected: Any) -> bool:
    try:
        again = tool.validate_input(value).json_value
    except CodeModeToolError:
        return False
    return encode_canonical_json(get_part(again)) != encode_canonical_json(expected)


def to_displayed_json(validated: ValidatedInput) -> str:
    """Return the text of an input for display: an answer to it is bound to the bytes of its content."""
    return replace_part_names_in_json(encode_canonical_json(validated.json_value))


def validate_answered_call_inputs(
    catalog: ToolCatalog[PreparedTool], entries: list[LedgerEntry], answers: Mapping[int, Answer]
) -> dict[int, CheckedInput]:
    """Return the inputs that answered calls run with, by request id. Raises `CodeModeProtocolError`.

    Denials and known outcomes run nothing. If a tool is gone, the guest gets the error for an unknown tool.
    """
    inputs: dict[int, CheckedInput] = {}
    for entry in entries:
        answer, tool = answers.get(entry.id), catalog.get(entry.name)
        if entry.kind != "tool" or answer is None or tool is None or not allows_tool_to_run(answer):
            continue
        try:
            validated = choose_and_validate_input(
                tool, entry, answer.input_json if isinstance(answer, ApprovalAnswer) else None
            )
            inputs[entry.id] = CheckedInput(validated, to_displayed_json(validated))
        except ValueError as error:
            raise CodeModeProtocolError(f"the input of tool {entry.name!r} cannot be read: {error}") from error
        except CodeModeToolError as error:
            raise CodeModeProtocolError(
                f"the input of tool {entry.name!r} is no longer valid: its schema has changed ({error.message})"
            ) from error
    return inputs


@record
class AnsweredPause:
    """A pause and its answers. ``inputs`` are those that answered calls run with; both are by request id."""

    interrupt: Interrupt
    continuation: Continuation
    answers: Mapping[int, Answer]
    inputs: Mapping[int, CheckedInput]

    def require_approved_tools_if_stored(self, catalog: ToolCatalog[PreparedTool]) -> None:
        """Raise `CodeModeProtocolError` if an answer allows a tool that this host lacks and the pause is in a store.

        Another host may have it, and the answer must not be used up. Without a store there is no other host:
        the program gets the error for an unknown tool.
        """
        if not self.interrupt.is_stored:
            return
        saved = mapping_or_empty(mapping_or_empty(self.continuation.invocation_data).get("saved")).get("programs")
        for name in mapping_or_empty(saved):
            if catalog.get(f"saved.{name}") is None:
                raise CodeModeProtocolError(
                    f"this host has no library of saved programs (library=), and this program uses saved.{name}: a host"
                    " that has one can resume it",
                    details={"not_resumable": True, "tool_name": f"saved.{name}"},
                )
            break  # a library has all of them or none
        for request_id, answer in self.answers.items():
            entry = self.continuation.ledger[request_id]
            if entry.kind != "tool" or not allows_tool_to_run(answer):
                continue
            tool = catalog.get(entry.name)
            if tool is None or tool.execute is None:
                name = entry.name[:MAX_NAME_CHARACTERS]
                raise CodeModeProtocolError(
                    f"this host cannot run the tool {name!r}, whose call was allowed: a host that has it can resume it",
                    details={"not_resumable": True, "tool_name": name},
                )


_LIMIT_DETAILS = frozenset({"max_bytes", "max_values"})


def check_size_and_validate_input(
    tool: PreparedTool, entry: LedgerEntry, policy: ExecutionPolicy, *, is_displayed: bool
) -> CheckedInput:
    """Validate the input of a call and encode it for display if asked.

    Raises `CodeModeToolError` for a wrong input, `CodeModeSerializationError` for one that is too large.
    """
    label, text = tool.input_what, entry.input_json
    try:
        if entry.input_bytes is not None:
            require_max_bytes(entry.input_bytes, policy.max_tool_input_bytes, label)
            raise CodeModeProtocolError("the worker withheld an input that is small enough")
        # A shorter text is neither too large nor holds too many values.
        if text is not None and len(text) > min(policy.max_values, policy.max_tool_input_bytes // 6):
            require_json_text_within_limits(text, policy.max_tool_input_bytes, policy.max_values, label)
        try:
            validated = choose_and_validate_input(tool, entry)
            return CheckedInput(validated, to_displayed_json(validated) if is_displayed else None)
        except ValueError as error:
            raise CodeModeSerializationError(f"{label} cannot be read: {error}") from None
    except CodeModeSerializationError as error:
        _set_reason_if_default_code(error, "validation")
        raise


def _set_reason_if_default_code(error: CodeModeSerializationError, reason: str) -> None:
    """Set the reason of an error about a value that is too large or not JSON."""
    if error.code == error.default_code:
        error.reason = reason


class EncodedOutput(NamedTuple):
    """The JSON of an output; ``text`` None is undefined.

    ``problems``: violations of its schema and parts that JSON cannot express. ``failure``: an exception of the code
    of its type.
    """

    text: str | None
    problems: Sequence[SchemaProblem] = ()
    failure: BaseException | None = None


async def validate_output_and_encode(tool: PreparedTool, output: Any, policy: ExecutionPolicy) -> EncodedOutput:
    """Validate the output of a tool and encode it as JSON.

    Raises `CodeModeToolError` for an output that violates its schema under strict validation,
    `CodeModeSerializationError` for an output that is too large or unreadable, and `UnreadIteratorError` for
    iterators.
    """
    if output is None and not tool.has_output_schema:
        return EncodedOutput(None)
    size = estimate_json_length(output, LARGE_CHARACTERS)
    try:
        # Not closures: a closure keeps the value alive as long as an error refers to it.
        if size < LARGE_CHARACTERS:
            return await run_in_thread_if_large_or_slow(
                size, partial(_validate_and_encode_output, tool, output, policy, weight=size)
            )
        return await run_in_thread_if_large_or_slow(size, partial(_encode_large_output, tool, output, policy))
    except CodeModeSerializationError as error:
        _set_reason_if_default_code(error, "output")
        raise


def _encode_large_output(tool: PreparedTool, output: Any, policy: ExecutionPolicy) -> EncodedOutput:
    plain, is_declared = can_encode_with_orjson(output, policy.max_values), tool.output_json_schema is not None
    if not plain:
        # Counted first: a validator would copy the value, and a value that is too large is not read further.
        try:
            require_max_values_in_host_value(output, policy.max_values, tool.output_what)
        except CodeModeSerializationError as error:
            if (
                _LIMIT_DETAILS & error.details.keys()
                or (tool.output_validation or policy.output_validation) == "strict"
            ):
                raise
            return _encode_without_circular_parts(tool, output, policy, error)
        # Small values and plain JSON hold no iterators.
        require_no_iterators(output, is_declared=is_declared)
    return _validate_and_encode_output(tool, output, policy, plain=plain)


def _encode_without_circular_parts(
    tool: PreparedTool, output: Any, policy: ExecutionPolicy, error: Exception
) -> EncodedOutput:
    """Encode an output that contains itself, without the circular parts."""
    require_no_iterators(output, is_declared=tool.output_json_schema is not None)
    try:
        part, left_out = read_encodable_part(output, policy.max_values)
    except ValueError:
        raise error from None
    text = _validate_and_encode_output(tool, part, policy)
    return text._replace(problems=[*text.problems, *_make_omission_problems(left_out)])


def _validate_and_encode_output(
    tool: PreparedTool, output: Any, policy: ExecutionPolicy, **known: Any
) -> EncodedOutput:
    """Encode an output; ``known`` is its weight, or whether it is plain."""
    what = tool.output_what
    limits: dict[str, Any] = {"max_bytes": policy.max_tool_output_bytes, "max_values": policy.max_values, "what": what}
    if tool.has_output_schema:
        if policy.max_values < LARGE_CHARACTERS:
            require_max_values_in_host_value(output, policy.max_values, what)
        known = {}
    if (tool.output_validation or policy.output_validation) == "strict":
        validated = tool.validate_output(output)
        return EncodedOutput(
            _encode_as_tagged_json(validated, limits) if is_rich.get() else encode_json(validated, **limits, **known)
        )
    read = tool.convert_output_leniently(output)
    if read.problems and tool.has_container_output and isinstance(output, str):
        read = _parse_json_output(tool, output, policy) or read
    try:
        text = (
            _encode_as_tagged_json(read.value, limits) if is_rich.get() else encode_json(read.value, **limits, **known)
        )
        return EncodedOutput(text, read.problems, read.failure)
    except FAILURES as error:  # serialisers are code of the tool's author
        is_ours = isinstance(error, CodeModeError)
        if is_ours and (_LIMIT_DETAILS & error.details.keys() or not isinstance(error, CodeModeSerializationError)):
            raise
        try:
            value, left_out = read_encodable_part(read.value, policy.max_values)
        except ValueError:
            if is_ours:
                raise error from read.failure or error.__cause__
            raise CodeModeSerializationError(f"{what} is not JSON: encoding it failed") from error
    problems = read.problems or tool.convert_output_leniently(value).problems
    text = _encode_as_tagged_json(value, limits) if is_rich.get() else encode_json(value, **limits)
    return EncodedOutput(text, [*problems, *_make_omission_problems(left_out)], read.failure)


def _encode_as_tagged_json(value: Any, limits: Mapping[str, Any]) -> str:
    return encode_json(to_tagged_json(value, max_values=limits["max_values"], what=limits["what"]), **limits)


def _make_omission_problems(left_out: list[tuple[str, str]]) -> list[SchemaProblem]:
    return [{"path": path, "message": reason} for path, reason in left_out[:MAX_PROBLEMS]]


def _parse_json_output(tool: PreparedTool, output: str, policy: ExecutionPolicy) -> ConvertedOutput | None:
    """Parse a text output as the declared object or array; None for any other text."""
    if len(output) > policy.max_tool_output_bytes:
        return None
    try:
        require_max_values_in_json_text(output, policy.max_values, tool.output_what)
        parsed = decode_json(output)
    except (ValueError, CodeModeSerializationError):
        return None
    return tool.convert_output_leniently(parsed) if is_object(parsed) or is_array(parsed) else None


async def extract_strings_and_make_outcome(text: str | None, sidecar: LargeStringRegistry) -> Fulfilled:
    """Return the outcome of a call with this text. Raises `CodeModeSerializationError` for too large a string."""
    if text is None:
        return Fulfilled(text)
    return Fulfilled(text, await run_in_thread_if_large_or_slow(len(text), lambda: sidecar.extract_strings(text)))


async def encode_interrupt_payload(tool_name: str, payload: Mapping[str, Any], policy: ExecutionPolicy) -> str:
    """Encode the interrupt payload of a paused call as JSON. Raises `CodeModeSerializationError`."""
    what = f"the interrupt payload of tool {tool_name!r}"
    limits: dict[str, Any] = {"max_bytes": policy.max_tool_output_bytes, "max_values": policy.max_values}
    return await run_off_loop_if_large(payload, partial(encode_json, payload, **limits, what=what))


async def decode_json_async(text: str) -> Any:
    """Decode JSON text of this host."""
    return await run_in_thread_if_large_or_slow(len(text), lambda: decode_json(text))


async def decode_fetch_request(entry: LedgerEntry, policy: ExecutionPolicy) -> FetchRequest:
    """Decode a fetch request. Raises `CodeModeFetchError`, `CodeModeSerializationError` or `CodeModeProtocolError`."""
    from ..fetch.fetcher import parse_fetch_request

    what = "the request of fetch"
    text = entry.input_json
    if entry.input_bytes is not None:
        require_max_bytes(entry.input_bytes, policy.max_tool_input_bytes, what)
    if text is None:
        raise CodeModeProtocolError("the worker sent a fetch without a request")

    def read_checked_request() -> FetchRequest:
        require_json_text_within_limits(text, policy.max_tool_input_bytes, policy.max_values, what)
        return parse_fetch_request(text)

    return await run_in_thread_if_large_or_slow(len(text), read_checked_request)


def decode_catalog_argument(entry: LedgerEntry, policy: ExecutionPolicy) -> Any:
    """Return the argument of a catalog request, or None.

    Raises `CodeModeSerializationError` for an argument that is too large or not JSON.
    """
    what, text = f"the argument of {entry.name}", entry.input_json
    try:
        if entry.input_bytes is not None:
            require_max_bytes(entry.input_bytes, policy.max_tool_input_bytes, what)
        if text is None:
            return None
        require_max_values_in_json_text(text, policy.max_values, what)
        return decode_json(text)
    except CodeModeSerializationError as error:
        _set_reason_if_default_code(error, "validation")
        raise
    except ValueError as error:
        raise CodeModeSerializationError(f"{what} cannot be read: {error}") from None
