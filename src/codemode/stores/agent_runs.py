"""Going on with the paused run of an agent: by one host at a time, and never a second time. Knows no framework.

The programs of a run have guards of their own, so what they have done is not done again. What the agent does after
them, nobody could tell once its host is dead: before that it says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..continuations.guard import RENEW_SECONDS, Claim, ResumeGuard
from ..data.json_values import canonical_json, decode_json, encode_json
from ..errors import CodeModeProtocolError

_log = logging.getLogger("codemode.stores")


class AgentRun:
    """One going on with a paused run. ``known`` is what this came to before; then nothing is to run.

    ``is_beyond``: the agent has done, or may have done, what no guard knows of.
    """

    def __init__(self, guard: ResumeGuard, claim: Claim, *, is_kept_elsewhere: bool) -> None:
        self.known: Mapping[str, Any] | None = None
        self.is_beyond = False
        self._guard = guard
        self._claim = claim
        self._beyond = Claim(f"{claim.key}:beyond", "beyond", claim.expires_at_ms)
        self._handed = Claim(f"{claim.key}:handed", "handed", claim.expires_at_ms)
        self._is_kept_elsewhere = is_kept_elsewhere
        self._held: set[str] = set()

    async def take(self) -> None:
        """Become the one that goes on. Raises `CodeModeProtocolError` where somebody died over more than programs."""
        standing = await self._guard.claim(self._claim)
        if isinstance(standing, str):
            self.known = decode_json(standing)
            return
        self._held.add(self._claim.key)
        if self._is_kept_elsewhere:
            return
        if standing is None:
            # Of a run that was lost, and is run again because somebody said so.
            await self._guard.release(self._beyond.key)
        elif await self._guard.claim(self._beyond) is None:
            self._held.add(self._beyond.key)
        else:
            self._held.clear()
            raise self._cannot_say()

    async def goes_beyond(self) -> None:
        """Say that the agent does what no guard knows of. Raises `CodeModeProtocolError` where somebody else has."""
        if self._beyond.key not in self._held:
            if await self._guard.claim(self._beyond) is not None:
                raise self._cannot_say()
            self._held.add(self._beyond.key)
        self.is_beyond = True

    async def was_handed_over(self) -> bool:
        """Tell whether a framework that keeps all it does was given these answers before."""
        if isinstance(await self._guard.claim(self._handed), str):
            return True
        self._held.add(self._handed.key)
        return False

    async def hands_over(self) -> None:
        """Say that the framework is given them, for good."""
        await self._guard.record(self._handed.key, '"handed"')

    async def came_to(self, end: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep what it came to, a JSON object, and return what stands."""
        text = encode_json(dict(end), what="what the agent came to")
        standing = await self._guard.record(self._claim.key, text)
        return end if not isinstance(standing, str) or standing == text else decode_json(standing)

    async def gives_up(self) -> None:
        """Say that nothing was done that another one would do again."""
        for key in self._held:
            await self._guard.release(key)
        self._held.clear()

    async def renew(self) -> None:
        """Keep it until cancelled."""
        renew: Any = getattr(self._guard, "renew", None)
        while renew is not None:
            await asyncio.sleep(RENEW_SECONDS)
            for key in tuple(self._held):
                try:
                    await renew(key)
                except Exception:  # noqa: BLE001 - a guard is host code, and may work again the next time
                    _log.warning("the claim of an agent's run could not be renewed", exc_info=True)

    def _cannot_say(self) -> CodeModeProtocolError:
        said = "nobody can say how far the agent has come: its host died, or stood still, once its programs had ended"
        return CodeModeProtocolError(said, details={"origin": "continuation"})


@asynccontextmanager
async def agent_run(
    guard: ResumeGuard, key: str, answers: Mapping[str, Any], expires_at_ms: int, *, is_kept_elsewhere: bool = False
) -> AsyncGenerator[AgentRun]:
    """Hold the run of an agent while the block runs. ``key`` names its pause, which was answered so.

    Where the block fails before it `AgentRun.goes_beyond`, the same may be tried again. ``is_kept_elsewhere``: the
    framework itself knows what was done, whoever dies. Raises `CodeModeProtocolError` for other answers than those that
    were given already.
    """
    digest = hashlib.sha256(canonical_json(dict(answers)).encode()).hexdigest()
    run = AgentRun(guard, Claim(key, digest, expires_at_ms), is_kept_elsewhere=is_kept_elsewhere)
    await run.take()
    renewing = asyncio.get_running_loop().create_task(run.renew())
    try:
        yield run
    except BaseException:
        if not run.is_beyond:
            await run.gives_up()
        raise
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
