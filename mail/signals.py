"""What mail announces. Sent with plain `send`, inside the transaction.

`messages_stored`    sender=Message, messages=list[Message]: after their rows were written
`message_admitted`   sender=Message, message=Message: its execution became due
`outbound_changed`   sender=Outbound, outbound=Outbound, old=str
`account_changed`    sender=Account, account=Account, old=str: its state moved
"""

from django.dispatch import Signal

messages_stored = Signal()
message_admitted = Signal()
outbound_changed = Signal()
account_changed = Signal()
