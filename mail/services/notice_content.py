"""From a notice's rows to its subject and text: made anew when it is frozen, stored nowhere else.

Opens encrypted previews, so it happens outside any transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from approvals import registry, selectors
from approvals.exceptions import UnknownKind
from approvals.models import Approval, Hold
from guards import openpgp
from guards.exceptions import EncryptionRefused
from guards.openpgp import EncryptionRefusal
from mail import notice_text, owner
from mail.models import NoticeItem, OwnerNotice
from mail.notice_text import Snapshot, Waiting
from mail.sentences import answer_sentence


def of(outbound_id: UUID) -> OwnerNotice:
    """The notice that an outgoing message of that origin carries."""
    return OwnerNotice.objects.select_related("answer__message").get(outbound_id=outbound_id)


def read(notice: OwnerNotice) -> tuple[str, str]:
    """Its subject and its whole text, as they would leave now."""
    if not notice.encrypted_to:
        return notice_text.subject_of(notice.waiting), notice_text.bare(
            notice.waiting, url=console_url()
        )
    if notice.answer is not None:
        return _refusal(notice)
    items = notice.items.select_related("hold", "approval__preview").order_by("position")
    waiting = [_waiting(item) for item in items]
    text = notice_text.of_holds(
        waiting,
        more=max(0, notice.waiting - len(waiting)),
        url=console_url(),
        key=notice.encrypted_to,
    )
    return notice_text.subject_of(notice.waiting), text


def encrypt_to(notice: OwnerNotice) -> Callable[[bytes], bytes] | None:
    """Encrypts to the key that the notice was written for; None for one that shows nothing.

    EncryptionRefused where the owner has another key by now: another notice is written then.
    """
    if not notice.encrypted_to:
        return None
    pin = owner.pin()
    if pin.fingerprint != notice.encrypted_to:
        raise EncryptionRefused(
            EncryptionRefusal.WRONG_KEY, "the owner's key is another one than when this was written"
        )
    return lambda payload: openpgp.encrypter().encrypt(payload=payload, recipients=[pin])


def bound(notice: OwnerNotice) -> dict[str, object]:
    """What must not move between its freezing and its leaving. Database only, JSON."""
    digests = notice.items.order_by("position").values_list("approval__digest", flat=True)
    return {"encrypted_to": notice.encrypted_to, "snapshots": list(digests)}


def length(approval: Approval) -> int:
    """How many characters showing it takes."""
    return len(notice_text.exact(selectors.preview(approval)))


def hold_url(hold: Hold) -> str:
    """Where a person looks at a draft; looking changes nothing."""
    return _absolute(reverse("admin:approvals_hold_change", args=[hold.pk]))


def console_url() -> str:
    """Where everything stands that waits."""
    return _absolute(reverse("admin:index"))


def _absolute(path: str) -> str:
    return f"{settings.BASE_URL.rstrip('/')}{path}"


def _waiting(item: NoticeItem) -> Waiting:
    hold, approval = item.hold, item.approval
    snapshot = None
    if approval is not None:
        snapshot = Snapshot(selectors.preview(approval), approval.digest, approval.expires_at)
    return Waiting(
        label=_label(hold.kind),
        requested_by=hold.requested_by,
        since=hold.since,
        url=hold_url(hold),
        snapshot=snapshot,
        why_not=item.why,
    )


def _label(kind: str) -> str:
    try:
        return registry.kind(kind).label
    except UnknownKind:
        return kind


def _refusal(notice: OwnerNotice) -> tuple[str, str]:
    answer = notice.answer
    assert answer is not None  # noqa: S101 (the database holds it for this kind)
    url = _absolute(reverse("admin:mail_message_change", args=[answer.message_id]))
    text = notice_text.of_refusal(
        said=f"{answer.verb} {answer.digest}".strip(),
        sentence=answer_sentence(answer.reason),
        received_at=answer.created_at,
        url=url,
    )
    return "Your answer did nothing", text
