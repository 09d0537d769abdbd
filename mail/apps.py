"""App configuration of mail: what it registers in the apps below."""

from __future__ import annotations

from django.apps import AppConfig

EVENT_KINDS = {
    "mail.received": "Mail {number} of {account} was stored: trust {trust}, rule {rule}.",
    "mail.first-pass": "{messages} older messages of {account} were stored.",
    "mail.quarantined": "Mail {number} of {account} was quarantined: {reason}.",
    "mail.trust-changed": "A message's trust changed from {old} to {new}: {reason}.",
    "mail.released": "Mail {number} of {account} was released by {actor}.",
    "mail.set-aside": "{actor} left {messages} held messages of {account} as they are.",
    "account.added": "Account {account} was added by {actor}.",
    "account.changed": "Account {account} was changed by {actor}.",
    "account.disabled": "Account {account} was switched off by {actor}.",
    "account.enabled": "Account {account} was switched on by {actor}.",
    "account.failing": "Account {account} cannot be read: {error}.",
    "account.recovered": "Account {account} works again.",
    "outbound.composed": "An outgoing message was written.",
    "outbound.held": "An outgoing message waits for a person.",
    "outbound.queued": "An outgoing message waits for its turn: the hourly cap is reached.",
    "outbound.settled": "An outgoing message is {status}.",
    "notice.written": "A notice to the owner was written: {about}, {drafts} drafts.",
    "answer.done": "The owner's mail said {verb}, {strength}: done.",
    "answer.refused": "A mail that spoke of {verb} did nothing: {reason}.",
}


class MailConfig(AppConfig):
    """Wires mail into the house."""

    name = "mail"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register transports, the act, event kinds, scopes, triggers and receivers."""
        from approvals.registry import (
            register_kind,
            register_provider,
            register_words,
            require_authority,
        )
        from guards.registry import register_scopes
        from mail import checks, protections, receivers  # noqa: F401
        from mail.adapters import SmtpKind
        from mail.gateways.google.client import GoogleClient
        from mail.gateways.google.http import HttpWire
        from mail.gateways.google.transport import GmailTransport
        from mail.gateways.imap import ImapTransport
        from mail.gmail import reasons as gmail_reasons
        from mail.gmail.kind import GmailKind
        from mail.gmail.provider import GoogleProvider
        from mail.registry import google, register_google, register_transport
        from teams.registry import register_event_kinds

        register_event_kinds("mail", EVENT_KINDS)
        register_scopes(
            "mail",
            {
                "messages:read": "Read messages this identity may read.",
                "replies:draft": "Draft replies, which wait for a person, and follow them.",
            },
        )
        protections.register()
        register_transport("imap", ImapTransport())
        register_transport("gmail", GmailTransport())
        register_google(GoogleClient(HttpWire()))
        register_kind(SmtpKind())
        register_kind(GmailKind(google))
        require_authority(GmailKind.name)
        register_provider(GoogleProvider(google))
        register_words({**gmail_reasons.MEANINGS, **gmail_reasons.GOOGLE})
