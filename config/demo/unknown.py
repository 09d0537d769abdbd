"""The story of a lost answer: one exact reply through Gmail, an honest unknown, and a look again.

Everything that an operator does goes through the services of the console, in his own session;
what the worker does is done here, so that the small Google is one of this process alone.
"""

from __future__ import annotations

import secrets as random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

from django.contrib.auth import authenticate, get_user_model, login
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest

from approvals import selectors
from approvals.models import Connection, Effect, Job, Observation, Root
from approvals.services import approvals, artifacts, connections, effects, holds, recovery, roots
from config.demo import cast
from config.demo.google import MemoryGoogle, Person, small_google
from guards import secrets
from guards.models import Identity
from guards.services import contacts, identities
from guards.types import Asker, Rwx, Subject
from mail.models import Account, Message
from mail.services import accounts, drafting, polling
from teams.services import checkpoints, verification

SCHEMA = "demo-unknown/1"
OPERATOR = Asker("operator", "demo")
FOUND = "verified_sent_observation"


@dataclass(slots=True)
class Told:
    """What came of it: `posts` as the small Google counted, `wrong` what is not as told."""

    posts: int = 0
    effect: dict[str, str] = field(default_factory=dict)
    observation: str = ""
    effect_after: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The object that `demo --unknown --json` prints."""
        return {
            "schema": SCHEMA,
            "ok": not self.wrong,
            "posts": self.posts,
            "effect": self.effect,
            "observation": {"outcome": self.observation},
            "effect_after": self.effect_after,
        }


def play(say: Callable[[str], None]) -> Told:
    """Tell it once, in the empty database of this process."""
    artifacts.ensure_key()
    checkpoints.ensure_key()
    with small_google() as google:
        return Story(google, say).told()


class Story:
    """One operator, one agent with a Gmail mailbox, one letter, one reply."""

    def __init__(self, google: MemoryGoogle, say: Callable[[str], None]) -> None:
        self._google = google
        self._say = say
        self._root = _log_in()
        self._account = _account()
        self._connect(google.add_person(cast.ADA.address))

    def told(self) -> Told:
        """From the letter to the look again."""
        told = Told()
        effect = self._send(self._draft())
        told.effect, before = _phase(effect), _picture(effect)
        self._say(f"the answer to the one POST is lost: {effect.phase} ({effect.reason})")
        look = self._look_again(effect)
        self._say(f"looked again, read-only: {look.outcome} ({look.reason})")
        effect.refresh_from_db()
        told.posts = self._google.posts
        told.observation = Observation.objects.get(effect=effect, job=look).outcome
        told.effect_after = _phase(effect)
        told.wrong = self._wrong(told, before, _picture(effect))
        return told

    def _wrong(self, told: Told, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
        """One sentence for each thing that is not as told."""
        moved = [name for name in before if before[name] != after[name]]
        wanted = {
            "POSTs": (told.posts, 1),
            "phase": (told.effect.get("phase"), Effect.Phase.UNKNOWN.value),
            "what the look found": (told.observation, FOUND),
            "what the look changed": (moved, ["revision"]),
            "log verified": (verification.verify().ok, True),
        }
        return [f"{name}: {got}, not {want}" for name, (got, want) in wanted.items() if got != want]

    def _connect(self, person: Person) -> None:
        """Three credentials by secret reference, each for one use, proved by the provider."""
        account = Subject("mail.account", str(self._account.pk))
        for use in Connection.Use.values:
            credential = self._google.issue(person, use).credential
            connections.import_connection(
                account=account,
                use=use,
                client_id=credential.client_id,
                client_secret_ref=secrets.store(f"{use}-client", credential.client_secret.reveal()),
                refresh_token_ref=secrets.store(f"{use}-token", credential.refresh_token.reveal()),
                by=OPERATOR,
                root=self._root,
            )
        for group in connections.GROUPS:
            connections.verify(account=account, group=group, by=OPERATOR, root=self._root)
        person.mailbox.add(_letter())
        polling.poll(account_id=self._account.pk)

    def _draft(self) -> uuid.UUID:
        """What the agent wrote; it waits for a person."""
        draft = drafting.draft_reply(
            message=Message.objects.get(),
            text="The number and its prime factors are 1001: 7 11 13\n",
            origin=Subject("guards.identity", str(self._account.identity_id)),
            asker=Asker("identity", cast.ADA.handle),
        )
        if draft.hold_id is None:
            raise RuntimeError(f"the draft does not wait: {draft.status} {draft.reason}")
        return draft.hold_id

    def _send(self, hold_id: uuid.UUID) -> Effect:
        """Opened, read, approved in one session; then the one contact, whose answer is lost."""
        approval = holds.open_for_review(hold_id=hold_id, by=OPERATOR, root=self._root)
        selectors.preview(approval)
        effect = approvals.approve(
            approval_id=approval.pk,
            by=OPERATOR,
            via="console",
            digest=approval.digest,
            root=self._root,
        )
        self._google.lose("send")
        effects.dispatch(effect_id=effect.pk)
        # As the queue may: a duplicate of the task, and the sweep after a restart.
        effects.dispatch(effect_id=effect.pk)
        effects.reconcile()
        return Effect.objects.get(pk=effect.pk)

    def _look_again(self, effect: Effect) -> Job:
        look = recovery.look_again(
            effect_id=effect.pk, by=OPERATOR, root=self._root, request_id=uuid.uuid4()
        )
        return recovery.run(job_id=look.pk)


def _log_in() -> Root:
    """As the console does: a password, a session, and the session's Root."""
    password = random.token_urlsafe(24)
    get_user_model().objects.create_superuser(OPERATOR.name, password=password)
    request = HttpRequest()
    request.session = SessionStore()
    login(request, authenticate(request, username=OPERATOR.name, password=password))
    root = roots.of_session(request.session)
    if root is None:
        raise RuntimeError("the login brought no session of its own")
    return root


def _account() -> Account:
    """The agent, somebody it may answer, and its Gmail mailbox."""
    identity = identities.create_identity(
        handle=cast.ADA.handle,
        name=cast.ADA.name,
        email=cast.ADA.address,
        reply_policy=Identity.ReplyPolicy.APPROVE,
        is_default=True,
        by=OPERATOR,
    )
    olga = cast.OLGA
    contacts.add_contact(
        address=olga.address, name=olga.name, grants={identity: Rwx.parse("rw-")}, by=OPERATOR
    )
    return accounts.create_account(
        identity=identity,
        name="ada-gmail",
        protocol=Account.Protocol.GMAIL.value,
        username=cast.ADA.address,
        by=OPERATOR,
    )


def _letter() -> bytes:
    message = EmailMessage(policy=SMTP)
    message["From"] = f'"{cast.OLGA.name}" <{cast.OLGA.address}>'
    message["To"] = cast.ADA.address
    message["Subject"] = "A number for you"
    message["Date"] = "Tue, 01 Dec 2026 07:00:00 +0000"
    message["Message-ID"] = f"<{uuid.uuid4()}@{cast.DOMAIN}>"
    message.set_content("Which prime factors has 1001?\n")
    return message.as_bytes()


def _phase(effect: Effect) -> dict[str, str]:
    return {"phase": str(effect.phase), "reason": effect.reason}


def _picture(effect: Effect) -> dict[str, Any]:
    """Every column of the act and of its approval and job, to see that a look left them alone."""
    fresh = Effect.objects.select_related("approval", "job").get(pk=effect.pk)
    columns = {one.attname: getattr(fresh, one.attname) for one in fresh._meta.concrete_fields}
    for name in ("approval", "job"):
        row = getattr(fresh, name)
        columns |= {
            f"{name}.{f.attname}": getattr(row, f.attname) for f in row._meta.concrete_fields
        }
    return columns
