"""The seats of a gateway: one for each principal who is there, a bounded number of them."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable

from ..config.values import GatewayConfig
from .connections import Connections
from .outfit import Wired
from .principals import Principal
from .scopes import Scope
from .seat import Seat

MOST_SEATS = 256


class Seats:
    """Makes seats when somebody comes, and takes those back that were idle longest when there are too many.

    A seat is one user's; it is one session's only where some server is connected for each session.
    """

    def __init__(
        self, connections: Connections, wiring: Wired, config: Callable[[], GatewayConfig], most: int = MOST_SEATS
    ) -> None:
        self._connections = connections
        self._wiring = wiring
        self._config = config
        self._most = most
        self._seats: OrderedDict[Principal, Seat] = OrderedDict()
        self._making: dict[Principal, asyncio.Task[Seat]] = {}

    def __len__(self) -> int:
        return len(self._seats)

    async def of(self, caller: Principal) -> Seat:
        """Return the seat of whoever calls."""
        principal = self._principal(caller)
        seat = self._seats.get(principal)
        if seat is not None:
            self._seats.move_to_end(principal)
            return seat
        making = self._making.get(principal)
        if making is None:
            making = self._making[principal] = asyncio.create_task(self._made(principal))
            making.add_done_callback(lambda _: self._making.pop(principal, None))
        # Who comes meanwhile waits for the same one, and nobody's leaving ends it.
        return await asyncio.shield(making)

    async def take(self, config: GatewayConfig) -> None:
        """Let every seat have another configuration."""
        await asyncio.gather(*(one.take(config) for one in [*self._seats.values()]))

    def within(self, scope: Scope) -> list[Seat]:
        """Return the seats of those who share a connection."""
        return [seat for principal, seat in self._seats.items() if scope.includes(principal)]

    async def left(self, caller: Principal) -> None:
        """Forget a session that is over, and take back its seat where it has one of its own and no program runs."""
        principal = self._principal(caller)
        seat = self._seats.get(principal)
        if seat is None:
            return
        seat.forget(caller)
        if principal == caller and not seat.runs:
            del self._seats[principal]
            await seat.aclose()

    async def aclose(self) -> None:
        """Take all back."""
        if self._making:
            await asyncio.wait([*self._making.values()])
        seats, self._seats = [*self._seats.values()], OrderedDict()
        await asyncio.gather(*(one.aclose() for one in seats))

    def _principal(self, caller: Principal) -> Principal:
        is_apart = any(one.sharing == "session" for one in self._config().servers)
        return caller if is_apart else Principal(caller.id)

    async def _made(self, principal: Principal) -> Seat:
        seat = Seat(principal, self._connections, self._wiring)
        config = self._config()
        await seat.take(config)
        while (config := self._config()) is not seat.config:  # which has changed meanwhile
            await seat.take(config)
        self._seats[principal] = seat
        while len(self._seats) > self._most and (other := self._in_the_way(principal)) is not None:
            await self._seats.pop(other).aclose()
        return seat

    def _in_the_way(self, principal: Principal) -> Principal | None:
        """Return whose seat goes for this one: idle longest, of the users with most. So nobody drives others out."""
        most = Counter(one.id for one in self._seats)
        idle = [other for other, one in self._seats.items() if not one.runs and other != principal]
        return max(idle, key=lambda one: most[one.id], default=None)
