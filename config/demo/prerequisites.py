"""What the demo needs on this machine beside Python."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

_PROGRAMS = {
    "gpg": "GnuPG (Debian: gnupg)",
    "gpgv": "gpgv (Debian: gpgv)",
    "factor": "factor (Debian: coreutils)",
    "printf": "printf (Debian: coreutils)",
}
_MODULES = {
    "pymap": "pymap (pip install --require-hashes -r requirements/demo.txt)",
    "aiosmtpd": "aiosmtpd (pip install --require-hashes -r requirements/demo.txt)",
}


def missing() -> list[str]:
    """What is not here, each with where to get it."""
    programs = [text for name, text in _PROGRAMS.items() if shutil.which(name) is None]
    return programs + [text for name, text in _MODULES.items() if find_spec(name) is None]
