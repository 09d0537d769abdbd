"""What approvals announces. Sent with plain `send`; inside the transaction unless said otherwise.

`held`              sender=Hold, hold=Hold
`hold_closed`       sender=Hold, hold=Hold (sent, rejected, changes asked for, or withdrawn)
`approval_changed`  sender=Approval, approval=Approval, old=str
`effect_changed`    sender=Effect, effect=Effect, old=str: every move of a phase, the first included
`contact_claimed`   sender=Effect, effect=Effect: after the mark has committed, before the contact
                    (outside any transaction)
`effect_acknowledged`  sender=Effect, effect=Effect, by=str: a person has seen the unknown outcome
`contact_returned`  sender=Effect, effect=Effect, result=ContactResult: after the contact, before
                    its result is recorded (outside any transaction)
`look_changed`      sender=Job, job=Job, effect=Effect, change=str (asked, ended), by=str: somebody
                    looks again at an unknown outcome
`root_changed`      sender=Root, root=Root, change=str (minted, ended, revoked), by=str
`goal_changed`      sender=Goal, goal=Goal, change=str (begun, closed, deleted), by=str
`consent_changed`   sender=Consent, consent=Consent, change=str (granted, revoked), by=str
`connection_changed`  sender=Connection, connection=Connection, change=str (imported, replaced,
                    verified, unverified, needs_reconnect, revoked), by=str
"""

from django.dispatch import Signal

held = Signal()
hold_closed = Signal()
approval_changed = Signal()
effect_changed = Signal()
effect_acknowledged = Signal()
contact_claimed = Signal()
contact_returned = Signal()
look_changed = Signal()
root_changed = Signal()
goal_changed = Signal()
consent_changed = Signal()
connection_changed = Signal()
