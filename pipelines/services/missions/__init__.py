"""Missions: bounded work for a `claude` worker, from admission to its end (DES-027, DES-028).

admit       open the mission of a claimed stage, in one transaction with its checks
dispatch    hand out a token for one run of its worker
show        what the worker reads: contract, round, looks back, answers to its tool calls
submit_result, record_cost, counted_tokens, next_round
            what a run brings in
close       the gate: nothing closes without a result that passes, and nobody can override it
fail, escalate, abandon, release, end_for_stage
            every other end
"""

from pipelines.services.missions.admission import admit, contract_preview
from pipelines.services.missions.dispatching import dispatch, end_run, show
from pipelines.services.missions.ending import (
    abandon,
    end_for_stage,
    escalate,
    fail,
    release,
)
from pipelines.services.missions.gate import close
from pipelines.services.missions.results import (
    counted_tokens,
    next_round,
    record_cost,
    submit_result,
)

__all__ = [
    "abandon",
    "admit",
    "close",
    "contract_preview",
    "counted_tokens",
    "dispatch",
    "end_for_stage",
    "end_run",
    "escalate",
    "fail",
    "next_round",
    "record_cost",
    "release",
    "show",
    "submit_result",
]
