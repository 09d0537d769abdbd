"""What the database refuses on mail's tables: verdicts, notices and answers stay as written."""

from __future__ import annotations

from guards import registry


def register() -> None:
    """Register them all. Called once, in `ready()`."""
    registry.append_only("mail.TrustRecord")
    registry.append_only("mail.OwnerNotice")
    registry.frozen_columns("mail.NoticeItem", ("notice", "position", "hold"))
    registry.refuse_update(
        "mail.NoticeItem",
        "notice_item_shown_once",
        "OLD.approval_id IS NOT NULL"
        " AND (NEW.approval_id IS NULL OR NEW.approval_id <> OLD.approval_id)",
        "what a notice showed stays what it showed",
    )
    registry.frozen_columns("mail.MailedAnswer", ("message", "first_pass", "created_at"))
    registry.refuse_update(
        "mail.MailedAnswer",
        "mailed_answer_settled_once",
        "OLD.state <> 'due'",
        "an answer is settled once",
    )
