"""Who a credential is: the refresh, UserInfo, and the mailbox that its token opens."""

from __future__ import annotations

from urllib.parse import urlencode

from guards.exceptions import InvalidInput
from guards.secrets import Secret
from mail.gateways.google import answers
from mail.gateways.google.base import Credential, Profile, TokenAnswer, UserInfo
from mail.gateways.google.http import Host, Request, Response

#: Bounds of what these small answers may weigh, in bytes. A refresh may bring an ID token along.
TOKEN_BYTES = 32 * 1024
SMALL_BYTES = 16 * 1024


def refresh_request(credential: Credential) -> Request:
    """One POST of a form. InvalidInput where a part of the credential is empty."""
    form = {
        "client_id": credential.client_id,
        "client_secret": credential.client_secret.reveal(),
        "refresh_token": credential.refresh_token.reveal(),
    }
    for name, value in form.items():
        if not value or len(value) > 4096 or not value.isascii() or not value.isprintable():
            raise InvalidInput(f"{name} must be 1 to 4096 printable ASCII characters", field=name)
    return Request(
        "POST",
        Host.OAUTH,
        "/token",
        body=urlencode({"grant_type": "refresh_token", **form}).encode("ascii"),
        content_type="application/x-www-form-urlencoded",
    )


def read_token(response: Response) -> TokenAnswer:
    """The new access token, and the scope just as it stands there."""
    fields = answers.opened_token(response)
    token_type = fields.text("token_type", longest=32)
    if token_type.lower() != "bearer":
        fields.refuse("token_type", "must be Bearer")
    return TokenAnswer(
        access_token=Secret(fields.token("access_token", longest=4096)),
        scope=fields.value("scope"),
        expires_in=fields.whole("expires_in", least=1, most=7 * 86400),
        token_type=token_type,
    )


def userinfo_request(token: Secret) -> Request:
    """A GET with the token."""
    return Request("GET", Host.OPENID, "/v1/userinfo", token=token.reveal())


def read_userinfo(response: Response) -> UserInfo:
    """Subject, address and whether Google verified it: all of them, or BadAnswer."""
    fields = answers.opened(response)
    return UserInfo(
        subject=fields.token("sub", longest=255),
        email=fields.text("email", longest=254),
        email_verified=fields.flag("email_verified"),
        issuer=fields.value("iss"),
    )


def profile_request(token: Secret) -> Request:
    """A GET with the token."""
    return Request("GET", Host.GMAIL, "/gmail/v1/users/me/profile", token=token.reveal())


def read_profile(response: Response) -> Profile:
    """The mailbox's address as Gmail writes it, and its history id."""
    fields = answers.opened(response)
    return Profile(
        email=fields.text("emailAddress", longest=254), history_id=fields.decimal("historyId")
    )
