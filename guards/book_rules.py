"""What must hold across the tables of the address book, as SQL that both databases read alike.

`broken` is a condition over `NEW`, the row to be written. The services say the same with better
sentences; these hold for imports, shells and the admin too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BookRule:
    """One rule on writes to one table. The message has no quotes and no percent sign."""

    name: str
    model_label: str
    broken: str
    message: str


def _is_pattern(contact: str) -> str:
    return f"EXISTS (SELECT 1 FROM guards_contact AS c WHERE c.id = {contact} AND c.is_pattern)"  # noqa: S608


BOOK_RULES: tuple[BookRule, ...] = (
    BookRule(
        "book_permission_of_pattern",
        "guards.Permission",
        f'(NEW."write" OR NEW."execute") AND {_is_pattern("NEW.contact_id")}',
        "pattern contacts may only grant read permission (r--)",
    ),
    BookRule(
        "book_pattern_with_rights",
        "guards.Contact",
        "NEW.is_pattern AND EXISTS (SELECT 1 FROM guards_permission AS p "
        'WHERE p.contact_id = NEW.id AND (p."write" OR p."execute"))',
        "a contact with write or execute cannot become a pattern",
    ),
    BookRule(
        "book_pattern_with_alias",
        "guards.Contact",
        "NEW.is_pattern AND EXISTS (SELECT 1 FROM guards_contactalias AS a "
        "WHERE a.contact_id = NEW.id)",
        "a contact with aliases cannot become a pattern",
    ),
    BookRule(
        "book_pattern_with_pin",
        "guards.Contact",
        "NEW.is_pattern AND EXISTS (SELECT 1 FROM guards_pinnedkey AS k "
        "WHERE k.contact_id = NEW.id AND k.removed_at IS NULL)",
        "a contact with a pinned key cannot become a pattern",
    ),
    BookRule(
        "book_address_is_an_alias",
        "guards.Contact",
        "EXISTS (SELECT 1 FROM guards_contactalias AS a WHERE a.address = NEW.address)",
        "this address is an alias in the address book already",
    ),
    BookRule(
        "book_alias_of_pattern",
        "guards.ContactAlias",
        _is_pattern("NEW.contact_id"),
        "a pattern contact has no aliases",
    ),
    BookRule(
        "book_alias_is_an_address",
        "guards.ContactAlias",
        "EXISTS (SELECT 1 FROM guards_contact AS c WHERE c.address = NEW.address)",
        "this address is in the address book already",
    ),
    BookRule(
        "book_pin_of_pattern",
        "guards.PinnedKey",
        f"NEW.removed_at IS NULL AND {_is_pattern('NEW.contact_id')}",
        "a pattern contact has no pinned key",
    ),
)
