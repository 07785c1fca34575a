"""Goes on with kept runs once people have decided about them, of all principals, while the gateway runs."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, cast

from codemode.data.json_values import canonical_json
from codemode.errors import CodeModeError, CodeModeProtocolError
from codemode.interrupts.interrupt import Interrupt
from codemode.observe.request_telemetry import in_no_trace
from codemode.run.call_context import CallContext
from codemode.stores.interrupt_store import InterruptStore
from codemode.stores.records import ALL_TENANTS, Lease, StoredPause, Tenant
from codemode.stores.resumer import Resumer, end_of
from codemode.surfaces.modules.response import RunResponse
from codemode.surfaces.modules.run_tool import RunTool

from ..gateway.kept_store import APP
from ..gateway.principals import Principal
from ..upstreams.origins import CallOrigin
from .responses import OTHER_KEYS


class RunsOf:
    """The runs of one principal: how each goes on, and what forms for its questions are made of."""

    def __init__(self, run_tool: RunTool, principal: Principal) -> None:
        self._run_tool = run_tool
        self._principal = principal
        self.name = run_tool.name

    @property
    def catalog(self) -> Any:
        """The tools as they were last listed: a store takes the forms of what is asked from here."""
        return self._run_tool.catalog

    def program(self, code: str) -> str:
        """Return what tells programs apart: by their text, and by the servers that they name."""
        said = canonical_json([code, self._run_tool.homes.named_in(code)])
        return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()

    async def go_on(
        self, interrupt: Interrupt, resolutions: Mapping[str, Any], origin: CallOrigin | None = None
    ) -> RunResponse | Interrupt:
        """Go on with answers. Raises `CodeModeProtocolError` for what cannot go on, in words for who has a gateway."""
        served = origin or CallOrigin(principal=self._principal, outer_id=interrupt.outer_tool_call_id)
        call = CallContext(context=served, conversation_id=self._principal.id)
        try:
            return await self._run_tool.resume(interrupt, call=call, resolutions=resolutions)
        except CodeModeProtocolError as error:
            if not error.details.get("unknown_key"):
                raise
            # The record, the log and the model have it from here: none of them knows options of Python.
            raise CodeModeProtocolError(OTHER_KEYS, details=error.details) from None

    async def resume(self, interrupt: Interrupt, resolutions: Mapping[str, Any]) -> Any:
        """Do so for a `Resumer`: what was cut off in doubt asks anew, and what could not begin is tried again."""
        result = await self.go_on(interrupt, resolutions)
        if isinstance(result, RunResponse) and result.recovery is not None and result.recovery.requests:
            result = cast("Interrupt", result.recovery)
        if isinstance(result, Interrupt):
            return StoredPause(
                requests=result.requests,
                outer_tool_call_id=result.outer_tool_call_id,
                continuation=result.continuation,
                tool=self,
            )
        if isinstance(result.exception, CodeModeError) and end_of(result.exception) is None:
            raise result.exception
        return result


class Resuming:
    """Goes on with what people decide in the store, from `start` to `aclose`.

    ``runs_of`` gives the runs of a principal, for as long as one of them goes on. ``store`` is opened by
    `start`. ``tenant`` is whose runs go on.
    """

    def __init__(
        self,
        store: Callable[[], InterruptStore],
        runs_of: Callable[[Principal], AbstractAsyncContextManager[RunsOf]],
        app: str = APP,
        *,
        tenant: Tenant = ALL_TENANTS,
    ) -> None:
        self._store = store
        self._tenant: Tenant = tenant
        self._runs_of = runs_of
        self._app = app
        self._resumer: Resumer | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Begin, unless that was done; once it is closed nothing begins any more."""
        if self._resumer is None and not self._is_closed:
            self._resumer = Resumer(self._store(), tenant=self._tenant, app=self._app, resume=self.resume)
            with in_no_trace():  # whoever comes first has one, and what goes on later belongs to no request
                await self._resumer.__aenter__()

    async def aclose(self, grace_seconds: float = 5.0) -> None:
        """Claim nothing more, and wait a while for what runs; the rest is cut off, and goes on at the next host."""
        self._is_closed = True
        resumer, self._resumer = self._resumer, None
        if resumer is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(resumer.__aexit__(), grace_seconds)

    async def resume(self, lease: Lease, *, resolutions: Mapping[str, Any]) -> Any:
        """Go on with one run, as a `Resumer` wants it."""
        async with self._runs_of(Principal(lease.record.tenant)) as runs:
            return await runs.resume(lease.interrupt, resolutions)


Resuming.resume.takes_lease = True  # pyright: ignore[reportFunctionMemberAccess] - for a `Resumer`
