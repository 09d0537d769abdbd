"""What pipelines announces. Sent with plain `send`, outside any transaction.

`stage_starting`  sender=Stage, stage_id=int, pipeline_id=UUID: its start is on record, its process
                  is about to run
`stage_returned`  sender=Stage, stage_id=int, pipeline_id=UUID: its process has ended, its result is
                  not yet on record
"""

from django.dispatch import Signal

stage_starting = Signal()
stage_returned = Signal()
