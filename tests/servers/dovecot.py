"""A Dovecot of our own, 2.3 or 2.4, from a generated configuration.

STARTTLS is on a free port. Implicit TLS is on 993, since accounts choose TLS by the port, at a
loopback address of this process alone. Without the right to bind 993, `imaps_port` is None.
"""

from __future__ import annotations

import getpass
import imaplib
import os
import shutil
import ssl
import subprocess
import tempfile
import uuid
from pathlib import Path

from config.embedded_mail import make_certificate
from tests.servers.presence import find_binary, free_port, is_listening, may_bind, own_host
from tests.servers.presence import wait_until as _wait_until

PASSWORD = "a-mailbox-password"


class DovecotServer:
    """Runs while its block is open. `host` is a loopback address."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="cs-dc-", dir="/tmp"))
        self.host = own_host()
        self.imap_port = free_port(self.host)
        self.imaps_port = 993 if may_bind(self.host, 993) else None
        self.certificate, self.key = make_certificate(self.directory, (self.host, "127.0.0.1"))

    def __enter__(self) -> DovecotServer:
        self._prepare()
        self._process = subprocess.Popen(
            [find_binary("dovecot"), "-F", "-c", self.directory / "dovecot.conf"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _wait_until(lambda: is_listening(self.host, self.imap_port), "Dovecot")
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _prepare(self) -> None:
        (self.directory / "mail").mkdir()
        self.directory.chmod(0o755)
        if os.getuid() == 0:
            shutil.chown(self.directory / "mail", "nobody", "nogroup")
        version = subprocess.run(
            [find_binary("dovecot"), "--version"], check=True, capture_output=True, text=True
        ).stdout
        made = _configuration_2_4 if version.startswith("2.4") else _configuration_2_3
        (self.directory / "dovecot.conf").write_text(made(self))

    def new_user(self) -> str:
        """A mailbox nobody used before; its password is `PASSWORD`."""
        return f"u{uuid.uuid4().hex[:10]}"

    def connect(self, user: str) -> imaplib.IMAP4:
        """A logged-in client over STARTTLS that checks no certificate."""
        client = imaplib.IMAP4(self.host, self.imap_port, timeout=20)
        client.starttls(ssl._create_unverified_context())  # noqa: S323
        client.login(user, PASSWORD)
        return client

    def append(self, user: str, raw: bytes, folder: str = "INBOX") -> None:
        """Put a message into a mailbox, as a delivery would."""
        client = self.connect(user)
        try:
            status, answer = client.append(folder, "", "", raw)
            assert status == "OK", answer
        finally:
            client.logout()

    def messages(self, user: str, folder: str = "INBOX") -> list[bytes]:
        """The raw messages of a folder, in order; fetching marks nothing."""
        client = self.connect(user)
        try:
            if client.select(folder, readonly=True)[0] != "OK":
                return []
            numbers = client.uid("SEARCH", "ALL")[1][0].split()
            return [client.uid("FETCH", n, "(BODY.PEEK[])")[1][0][1] for n in numbers]
        finally:
            client.logout()


def _users(server: DovecotServer) -> tuple[str, str, str, str]:
    """The accounts Dovecot runs under: (internal, login, mail user, mail group)."""
    if os.getuid() == 0:
        return "dovecot", "dovenull", "nobody", "nogroup"
    me = getpass.getuser()
    return me, me, str(os.getuid()), str(os.getgid())


def _listeners(server: DovecotServer) -> str:
    text = f"  inet_listener imap {{\n    port = {server.imap_port}\n  }}\n"
    port = server.imaps_port or 0
    return text + f"  inet_listener imaps {{\n    port = {port}\n    ssl = yes\n  }}\n"


def _services(server: DovecotServer) -> str:
    return (
        f"service imap-login {{\n  chroot =\n{_listeners(server)}}}\n"
        # A wrong password costs the next login no seconds.
        "service anvil {\n  chroot =\n  unix_listener anvil-auth-penalty {\n    mode = 0\n  }\n}\n"
    )


def _configuration_2_3(server: DovecotServer) -> str:
    internal, login, mail_user, mail_group = _users(server)
    directory = server.directory
    return f"""\
base_dir = {directory}/run
state_dir = {directory}/state
log_path = {directory}/dovecot.log
protocols = imap
listen = {server.host}
ssl = required
ssl_cert = <{server.certificate}
ssl_key = <{server.key}
default_internal_user = {internal}
default_internal_group = {internal}
default_login_user = {login}
first_valid_uid = 1
first_valid_gid = 1
mail_max_userip_connections = 200
auth_failure_delay = 0
mail_location = maildir:{directory}/mail/%u
passdb {{
  driver = static
  args = password={PASSWORD}
}}
userdb {{
  driver = static
  args = uid={mail_user} gid={mail_group} home={directory}/mail/%u
}}
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    auto = create
    special_use = \\Sent
  }}
}}
{_services(server)}"""


def _configuration_2_4(server: DovecotServer) -> str:
    internal, login, mail_user, mail_group = _users(server)
    directory = server.directory
    return f"""\
dovecot_config_version = 2.4.0
dovecot_storage_version = 2.4.0
base_dir = {directory}/run
state_dir = {directory}/state
log_path = {directory}/dovecot.log
protocols = imap
listen = {server.host}
ssl = required
ssl_server_cert_file = {server.certificate}
ssl_server_key_file = {server.key}
default_internal_user = {internal}
default_internal_group = {internal}
default_login_user = {login}
first_valid_uid = 1
first_valid_gid = 1
mail_max_userip_connections = 200
auth_failure_delay = 0
mail_driver = maildir
mail_home = {directory}/mail/%{{user}}
mail_path = {directory}/mail/%{{user}}
passdb static {{
  password = {PASSWORD}
}}
userdb static {{
  fields {{
    uid = {mail_user}
    gid = {mail_group}
    home = {directory}/mail/%{{user}}
  }}
}}
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    auto = create
    special_use = \\Sent
  }}
}}
{_services(server)}"""
