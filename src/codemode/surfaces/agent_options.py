"""Default options for programs that agents of a framework run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..options.parts import CodeModeOptions, Listing
from ..stores.durability import DEFAULT_STORED_MAX_AGE_MS, StoreLike, open_store_and_make_options_durable
from ..workers.pool import require_open_pool

if TYPE_CHECKING:
    from ..workers.pool import WorkerPool

_MAX_MODEL_CHARACTERS = 20_000


def configure_agent_options(
    options: CodeModeOptions | Mapping[str, Any] | None,
    *,
    pool: WorkerPool | None,
    listing: Listing | None = None,
    store: StoreLike | None = None,
    has_clock: bool = True,
    max_age_ms: int = DEFAULT_STORED_MAX_AGE_MS,
) -> CodeModeOptions:
    """Return the options for programs that agents run, with defaults where the user set nothing.

    By default the program timeout excludes tool time, further tool calls queue, and a program waits for a free worker
    unless ``pool`` is given. The model sees the reason for a denied call and the beginning of a large result. Calls
    that need approval pause unless an approval callback is set. Paused programs expire after ``max_age_ms``.
    ``has_clock`` is False for a surface with its own timeout. Raises `ValueError` for invalid options or a closed pool.
    """
    require_open_pool(pool)
    code_mode_options = CodeModeOptions.of(options).with_listing(listing)
    continuation, approval = (
        code_mode_options.continuation,
        code_mode_options.approval.with_defaults(show_denial_reason=True),
    )
    if continuation.max_age_ms is None:
        continuation = replace(continuation, max_age_ms=max_age_ms)
    if approval.on_approval_required is None:
        approval = replace(approval, mode="interrupt")
    defaults: dict[str, Any] = {"timeout_includes_tools": False, "in_flight_limit": "queue"} if has_clock else {}
    policy = code_mode_options.execution_policy.with_defaults(
        **defaults, **({"on_saturation": "wait"} if pool is None else {})
    )
    output = code_mode_options.model_output.with_defaults(max_model_characters=_MAX_MODEL_CHARACTERS)
    configured = code_mode_options.with_parts(
        approval=approval, continuation=continuation, execution_policy=policy, model_output=output
    )
    return open_store_and_make_options_durable(configured, store)[0]
