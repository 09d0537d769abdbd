"""Who looks after what a task has in hand: renews its claims, and ends what was cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import structlog
from django.db import DatabaseError, connections

from pipelines.runners import base
from pipelines.services import claims
from pipelines.services.claims import Claim

log = structlog.get_logger(__name__)

#: How often a worker looks whether a pipeline was taken from it while a stage runs.
LOOK_EVERY = timedelta(seconds=1)


class Watch:
    """Who looks after the claims of one task, from a thread of its own."""

    def __init__(self) -> None:
        self._held: dict[Claim, float] = {}
        self._changing = threading.Lock()
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="claims", daemon=True)

    def hold(self, claim: Claim) -> None:
        """Renew this claim from now on, and look whether it was taken away."""
        with self._changing:
            self._held[claim] = _renewal()

    def let_go(self, claim: Claim) -> None:
        """Its work is done, or it is gone."""
        with self._changing:
            self._held.pop(claim, None)

    def _keep(self) -> None:
        while not self._finished.wait(min(LOOK_EVERY, claims.RENEW_EVERY).total_seconds()):
            with self._changing:
                held = list(self._held.items())
            for claim, renew_at in held:
                self._look_after(claim, renew_at)
        connections.close_all()

    def _look_after(self, claim: Claim, renew_at: float) -> None:
        """Never raises: whatever happens once, the claim is looked after again."""
        try:
            if claims.is_taken_away(claim):
                _end_children(claim)
            elif time.monotonic() >= renew_at:
                renewed = claims.renew(claim)
                if self._still_holds(claim, renew_at) and not renewed:
                    log.error("claim lost", pipeline=str(claim.pipeline_id), fence=claim.fence)
        except DatabaseError as error:
            log.warning("lease not renewed", pipeline=str(claim.pipeline_id), error=str(error))
            connections.close_all()
        except Exception:
            log.exception("a claim cannot be looked after", pipeline=str(claim.pipeline_id))
            connections.close_all()

    def _still_holds(self, claim: Claim, renew_at: float) -> bool:
        """Whether it is held as it was, to be renewed later; never what was let go meanwhile."""
        with self._changing:
            if self._held.get(claim) != renew_at:
                return False
            self._held[claim] = _renewal()
            return True

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def end(self) -> None:
        """Look no more; nothing of it goes on once this returns."""
        self._finished.set()
        self._thread.join()


@contextmanager
def watched() -> Iterator[Watch]:
    """Renew what is held from a thread of its own until the task is done.

    The same thread ends what a stage has started on this host once its pipeline was taken away:
    whoever cancelled it may be on another host.
    """
    watch = Watch()
    watch.start()
    try:
        yield watch
    finally:
        watch.end()


def _renewal() -> float:
    return time.monotonic() + claims.RENEW_EVERY.total_seconds()


def _end_children(claim: Claim) -> None:
    """Again and again until the worker is through: it may just be starting another one."""
    ended = base.end_children(str(claim.pipeline_id))
    if ended:
        log.warning(
            "ended what a cancelled pipeline ran", pipeline=str(claim.pipeline_id), ended=ended
        )
