"""A worker that is killed before it has a program costs nothing but time."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import pytest
from pool_driver import PoolMaker, one
from suite import rounds

from codemode.errors import CodeModeWorkerError
from codemode.workers.image import GUEST_RUNTIME, WorkerImage
from codemode.workers.zygote import Zygote

pytestmark = [
    pytest.mark.usefixtures("leaves_nothing"),
    pytest.mark.skipif(sys.platform != "linux", reason="zygotes need Linux"),
]


class KilledWorkers(Zygote):
    """A zygote of which the next ``kills`` workers, and with ``whole`` the zygote too, die as soon as they start."""

    kills = 0
    whole = False
    made = 0

    def __init__(self) -> None:
        super().__init__(WorkerImage.from_installed(GUEST_RUNTIME, ()))
        type(self).made += 1

    def spawn(self, *, warm_up: bool = True) -> Any:
        worker = super().spawn(warm_up=warm_up)
        if type(self).kills:
            type(self).kills -= 1
            self.kill() if self.whole else worker.kill()
            assert worker.wait_until_dead(60_000)
            # It may have said hello before it was killed: what the pool reads is its end.
            with contextlib.suppress(OSError):
                while worker.channel.recv(65536):
                    pass
        return worker


def killing(*, kills: int, whole: bool = False) -> type[KilledWorkers]:
    return type("Killing", (KilledWorkers,), {"kills": kills, "whole": whole, "made": 0})


def test_killed_workers_are_replaced_by_the_same_zygote(make_pool: PoolMaker) -> None:
    source = killing(kills=2)
    assert one(make_pool(source=source, spare_workers=0)) == 2
    assert (source.kills, source.made) == (0, 1)


def test_a_zygote_whose_workers_keep_dying_is_replaced(make_pool: PoolMaker) -> None:
    source = killing(kills=3)
    assert one(make_pool(source=source, spare_workers=0)) == 2
    assert source.made == 2


def test_killed_zygotes_are_replaced_while_the_invocation_waits(make_pool: PoolMaker) -> None:
    source = killing(kills=3, whole=True)
    pool = make_pool(source=source, spare_workers=0)
    assert one(pool) == 2
    assert source.made == 4
    source.kills = rounds(5, 40)  # 40 are more than the time of a first start would allow
    assert one(pool) == 2
    assert source.kills == 0


def test_a_machine_that_cannot_start_workers_says_so_after_a_few_attempts(make_pool: PoolMaker) -> None:
    source = killing(kills=1_000_000, whole=True)
    pool = make_pool(source=source, spare_workers=0)
    with pytest.raises(CodeModeWorkerError, match="no worker started"):
        one(pool)
    assert source.made <= 10
