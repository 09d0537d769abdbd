"""The tables of the sign-off desk, by what they are about.

`acts`: what waits, what was approved, what was done once, what was seen later. `authority`: under
whose session, for which goal, with which finite grant, by which process.
"""

from approvals.models.acts import (
    ActRow,
    Approval,
    Artifact,
    Effect,
    EffectQuerySet,
    Hold,
    Observation,
)
from approvals.models.authority import (
    Connection,
    Consent,
    ContactBudget,
    Goal,
    Job,
    Root,
)

__all__ = [
    "ActRow",
    "Approval",
    "Artifact",
    "Connection",
    "Consent",
    "ContactBudget",
    "Effect",
    "EffectQuerySet",
    "Goal",
    "Hold",
    "Job",
    "Observation",
    "Root",
]
