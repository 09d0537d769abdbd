"""The kinds of events that pipelines write: sentences whose `{fact}` teams fills in."""

from __future__ import annotations

PIPELINES = {
    "pipeline.planned": "A pipeline was planned by {planner}: {plan}.",
    "pipeline.queued": "A pipeline waits for its turn: {reason}.",
    "pipeline.running": "A worker took the pipeline.",
    "pipeline.waiting_approval": "The pipeline's reply waits for a person.",
    "pipeline.completed": "The pipeline ended well.",
    "pipeline.failed": "The pipeline failed: {reason}.",
    "pipeline.cancelled": "The pipeline was cancelled: {reason}.",
    "pipeline.interrupted": "The pipeline was interrupted, and nothing runs again: {reason}.",
    "stage.pending": "A stage is due.",
    "stage.claimed": "A worker claimed {command}.",
    "stage.running": "{command} started.",
    "stage.waiting_approval": "{command} waits for a person.",
    "stage.succeeded": "{command} succeeded.",
    "stage.failed": "{command} failed: {reason}.",
    "stage.incomplete": "{command} ended without a whole result.",
    "stage.cancelled": "{command} did not run: {reason}.",
    "stage.interrupted": "{command} was interrupted: {reason}.",
    "command.loaded": "{actor} loaded the signed command {name}, serial {serial}.",
    "command.refused": "A command file was refused ({cause}): {reason}.",
    "rule.saved": "{actor} saved the planning rule {name}.",
    "rule.removed": "{actor} removed the planning rule {name}.",
}
