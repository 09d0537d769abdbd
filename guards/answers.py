"""What guards answers to a token, the same over HTTP and MCP: who it is, and the address book."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from guards import selectors
from guards.fronts.api import USUAL_ROWS, take_page
from guards.models import ApiToken
from guards.schemas import ContactOut, ContactPage, WhoAmI

Cursor = Annotated[str | None, Field(description="`next_cursor` of the page before")]
Limit = Annotated[int, Field(description="rows of a page, at most 200")]


def whoami(token: ApiToken) -> WhoAmI:
    """Whom the caller's token belongs to, and what it may do. Needs no scope."""
    return WhoAmI.of(token)


def list_contacts(token: ApiToken, cursor: Cursor = None, limit: Limit = USUAL_ROWS) -> ContactPage:
    """Contacts with their rights for the token's identity; for all where it belongs to none."""
    rows = selectors.contacts_for(token)
    page = take_page(rows, cursor=cursor, limit=limit, newest_first=False)
    items = [ContactOut.of(row) for row in page.items]
    return ContactPage(items=items, next_cursor=page.next_cursor)
