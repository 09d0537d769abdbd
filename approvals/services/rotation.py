"""Another artifact key: first in the file, then over every artifact, and the old ones last.

At every moment, also after a crash, each artifact opens with a key of the file: a key is added
before anything is encrypted with it, and taken out after nothing needs it. Outside any transaction
but for each batch's own.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from approvals import sealing
from approvals.exceptions import ArtifactUnreadable, KeyStillNeeded
from approvals.models import Artifact
from guards import secrets
from guards.exceptions import Conflict
from guards.services.units import unit_of_work

#: Artifacts that are read, encrypted and written at a time.
BATCH = 100
#: Seconds for which a process may still seal with a key that it read before the newest was added.
SETTLING = 600.0

Progress = Callable[[int], None]


@dataclass(slots=True)
class Rotation:
    """What a rotation found and did. `unreadable` are artifacts that no key opens: left alone."""

    artifacts: int = 0
    already: int = 0
    encrypted: int = 0
    unreadable: list[str] = field(default_factory=list)
    added_key: bool = False
    forgotten_keys: int = 0
    dry_run: bool = False


def rotate(*, dry_run: bool = False, progress: Progress = lambda _: None) -> Rotation:
    """Encrypt every artifact with the newest key; where all are already, with another new one.

    Run again after a crash, it goes on with the key that it had begun with. A key that lies
    elsewhere than in a file is the operator's own: then only what the newest key of that place
    does not open is encrypted. Conflict while another rotation runs. `dry_run` writes nothing.
    """
    with _alone():
        done = Rotation(dry_run=dry_run)
        if _is_complete() and _path() is not None:
            done.added_key = True
            if dry_run:
                done.artifacts = done.encrypted = Artifact.objects.count()
                return done
            _write([Fernet.generate_key().decode(), *sealing.key_lines()])
        newest = Fernet(sealing.key_lines()[0])
        for batch in _batches():
            _encrypt_batch(batch, newest, done)
            progress(done.artifacts)
    return done


def forget_old(*, dry_run: bool = False) -> Rotation:
    """Take all keys but the newest out of the file, once every artifact opens with the newest.

    KeyStillNeeded where one does not, or where the newest is so new that a process may still seal
    with the one before. Refused (Conflict) for keys that do not lie in a file.
    """
    path = _path()
    if path is None:
        raise Conflict("the artifact key lies in no file: take its old lines out where it lies")
    with _alone():
        done = Rotation(artifacts=Artifact.objects.count(), dry_run=dry_run)
        lines = sealing.key_lines()
        if len(lines) == 1:
            return done
        settled = time.time() - path.stat().st_mtime
        if settled < SETTLING:
            raise KeyStillNeeded(
                f"the newest key is {settled:.0f} s old: a process may still seal with the one "
                f"before it until it is {SETTLING:.0f} s old"
            )
        if not _is_complete():
            raise KeyStillNeeded("artifacts need an older key: rotate again first")
        done.forgotten_keys = len(lines) - 1
        if not dry_run:
            _write(lines[:1])
    return done


def _encrypt_batch(batch: Sequence[Artifact], newest: Fernet, done: Rotation) -> None:
    """Everything is opened and encrypted first; the transaction only writes."""
    renewed: list[tuple[Artifact, bytes]] = []
    for artifact in batch:
        done.artifacts += 1
        if _opens(newest, artifact):
            done.already += 1
            continue
        try:
            renewed.append((artifact, newest.encrypt(sealing.unseal(artifact))))
        except ArtifactUnreadable:
            done.unreadable.append(str(artifact.pk))
    done.encrypted += len(renewed)
    if done.dry_run:
        return
    with unit_of_work(durable=True):
        for artifact, ciphertext in renewed:
            Artifact.objects.filter(pk=artifact.pk).update(ciphertext=ciphertext)


def _is_complete() -> bool:
    """Whether nothing needs an older key. What no key opens needs none."""
    newest, *older = (Fernet(line) for line in sealing.key_lines())
    if not older:
        return True
    before = MultiFernet(older)
    return all(
        _opens(newest, artifact) or not _opens(before, artifact)
        for batch in _batches()
        for artifact in batch
    )


def _opens(key: Fernet | MultiFernet, artifact: Artifact) -> bool:
    try:
        key.decrypt(bytes(artifact.ciphertext))
    except InvalidToken:
        return False
    return True


def _batches() -> Iterator[list[Artifact]]:
    """Every artifact once, in the order of their ids: what is added meanwhile has the newest key.

    An id that sorts before the cursor may be missed; forgetting looks at all of them again.
    """
    after = None
    while True:
        rows = Artifact.objects.order_by("pk")
        batch = list((rows.filter(pk__gt=after) if after else rows)[:BATCH])
        if not batch:
            return
        yield batch
        after = batch[-1].pk


def _path() -> Path | None:
    """The file of the keys; None where they lie elsewhere."""
    scheme, _, rest = settings.ARTIFACT_KEY_REF.partition(":")
    return Path(rest) if scheme == "file" else None


def _write(lines: Sequence[str]) -> None:
    secrets.replace_file(settings.ARTIFACT_KEY_REF, "".join(f"{line}\n" for line in lines))


@contextmanager
def _alone() -> Iterator[None]:
    """Two rotations at once could each add a key, and the later file would lack the first's."""
    path = _path()
    if path is None:
        yield
        return
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path.with_name(f".{path.name}.rotating"), flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Conflict("another rotation of the artifact key is under way") from None
    finally:
        os.close(descriptor)
