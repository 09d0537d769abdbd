"""What runs by the clock: one list, which the worker keeps in the queue's schedule.

Each entry is a sweep: it looks for rows that are due and claims them. Running one too often, or
twice at a time, changes nothing.
"""

from __future__ import annotations

from guards.queue.schedules import Entry

TIMETABLE: tuple[Entry, ...] = (
    Entry("approvals: expire, settle what a dead worker left", "approvals.tasks.sweep"),
    Entry("pipelines: take due messages, recover", "pipelines.tasks.sweep"),
    Entry("pipelines: remove directories", "pipelines.tasks.sweep_files", minutes=15),
    Entry("mail: poll accounts that nobody watches", "mail.tasks.poll_due"),
    Entry("teams: sign the head of the log", "teams.tasks.sign_head"),
)
