"""Secrets: the database holds references, and this is where they become text, for a moment.

`env:NAME`, `file:/path`, `cmd:program arguments`, `pass:path`, `secret-tool:service/account`,
`keyring:service/name`, or a bare name that is looked for in the usual places.
"""

from __future__ import annotations

from guards.secrets.references import validate_reference
from guards.secrets.resolution import resolve
from guards.secrets.storage import create_file, replace_file, store
from guards.secrets.values import Secret

__all__ = ["Secret", "create_file", "replace_file", "resolve", "store", "validate_reference"]
