"""What must hold across the tables of the address book, as SQL that both databases read alike.

The services say the same with better sentences; these hold for imports, shells and the admin too.
"""

from __future__ import annotations

from guards import registry


def _is_pattern(contact: str) -> str:
    return f"EXISTS (SELECT 1 FROM guards_contact AS c WHERE c.id = {contact} AND c.is_pattern)"  # noqa: S608


_RULES: tuple[tuple[str, str, str, str], ...] = (
    (
        "guards.Permission",
        "book_permission_of_pattern",
        f'(NEW."write" OR NEW."execute") AND {_is_pattern("NEW.contact_id")}',
        "pattern contacts may only grant read permission (r--)",
    ),
    (
        "guards.Contact",
        "book_pattern_with_rights",
        "NEW.is_pattern AND EXISTS (SELECT 1 FROM guards_permission AS p "
        'WHERE p.contact_id = NEW.id AND (p."write" OR p."execute"))',
        "a contact with write or execute cannot become a pattern",
    ),
    (
        "guards.Contact",
        "book_pattern_with_alias",
        "NEW.is_pattern AND EXISTS (SELECT 1 FROM guards_contactalias AS a "
        "WHERE a.contact_id = NEW.id)",
        "a contact with aliases cannot become a pattern",
    ),
    (
        "guards.Contact",
        "book_pattern_with_pin",
        "NEW.is_pattern AND EXISTS (SELECT 1 FROM guards_pinnedkey AS k "
        "WHERE k.contact_id = NEW.id AND k.removed_at IS NULL)",
        "a contact with a pinned key cannot become a pattern",
    ),
    (
        "guards.Contact",
        "book_address_is_an_alias",
        "EXISTS (SELECT 1 FROM guards_contactalias AS a WHERE a.address = NEW.address)",
        "this address is an alias in the address book already",
    ),
    (
        "guards.ContactAlias",
        "book_alias_of_pattern",
        _is_pattern("NEW.contact_id"),
        "a pattern contact has no aliases",
    ),
    (
        "guards.ContactAlias",
        "book_alias_is_an_address",
        "EXISTS (SELECT 1 FROM guards_contact AS c WHERE c.address = NEW.address)",
        "this address is in the address book already",
    ),
    (
        "guards.PinnedKey",
        "book_pin_of_pattern",
        f"NEW.removed_at IS NULL AND {_is_pattern('NEW.contact_id')}",
        "a pattern contact has no pinned key",
    ),
)


def register() -> None:
    """Called once by guards' `ready()`."""
    for model_label, name, broken, message in _RULES:
        registry.refuse_rows(registry.RowRule(model_label, name, broken, message, serialised=True))
