"""Loaded before Django's settings: a run of tests has its own data directory and key."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_directory = tempfile.mkdtemp(prefix="cs-", dir="/tmp")
atexit.register(shutil.rmtree, _directory, ignore_errors=True)

os.environ["DATA_DIR"] = _directory
os.environ["SECRET_KEY"] = "tests-only-" + "0" * 50
for name in ("OWNER_FINGERPRINT", "OWNER_HANDLE", "OWNER_KEY_FILE", "REDIS_URL"):
    os.environ[name] = ""
