"""What teams announces.

`events_appended`  sender=Event, first=int, last=int: after the transaction that appended committed.
"""

from django.dispatch import Signal

events_appended = Signal()
