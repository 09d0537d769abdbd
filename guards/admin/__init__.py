"""The console's pages of guards: who is known here, with which keys and rights, and what was said.

Records are read-only. Everything else is written by services, behind forms and buttons.
"""

from guards.admin import contacts, identities, keys, records, tokens

__all__ = ["contacts", "identities", "keys", "records", "tokens"]
