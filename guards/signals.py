"""What guards announces. All are sent inside the transaction, with plain `send`: a receiver that
fails rolls the act back.

`decided`             sender=Decision, decision=Decision
`key_changed`         sender=PinnedKey, contact=Contact, key=PinnedKey,
                      change="pinned"|"removed"|"revoked"
`permission_changed`  sender=Permission, permission=Permission, by=str
`token_changed`       sender=ApiToken, token=ApiToken, change="minted"|"revoked"
`unit_closing`        sender=Unit, unit=Unit: the last thing inside the outermost unit of work
`task_refused`        sender=None, path=str, where="queue"|"schedule"|"hook": a queue row that
                      nobody may run
"""

from django.dispatch import Signal

decided = Signal()
key_changed = Signal()
permission_changed = Signal()
token_changed = Signal()
unit_closing = Signal()
task_refused = Signal()
