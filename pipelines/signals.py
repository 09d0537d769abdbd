"""What pipelines announces.

Sent with plain `send`, outside any transaction:

`stage_starting`  sender=Stage, stage_id=int, pipeline_id=UUID: its start is on record, its process
                  is about to run
`stage_returned`  sender=Stage, stage_id=int, pipeline_id=UUID: its process has ended, its result is
                  not yet on record

Sent with plain `send` inside the transaction of the move, so that a receiver that fails rolls it
back:

`stage_given_up`  sender=Stage, stage_id=int, pipeline_id=UUID, reason=str, actor=str: a stage that
                  was claimed, ran or waited was cancelled or interrupted. Its mission ends, and
                  what it was waiting for is taken back. Database only
`pipeline_ended`  sender=Pipeline, pipeline_id=UUID, status=str: it completed, failed, was cancelled
                  or interrupted. Its directory goes once that is committed. The head of the log may
                  be locked already: a receiver asks for rows after the commit
`mission_ended`   sender=Mission, mission_id=UUID, stage_id=int, pipeline_id=UUID, status=str,
                  reason=str: it is closed, failed, escalated or abandoned, and never opens again.
                  Database only
"""

from django.dispatch import Signal

stage_starting = Signal()
stage_returned = Signal()
stage_given_up = Signal()
pipeline_ended = Signal()
mission_ended = Signal()
