#!/usr/bin/env python
"""Django's command line for Countersign."""

import gc
import os
import sys


def main() -> None:
    """Run one management command with Countersign's settings."""
    gc.disable()  # what a start makes stays; `config` switches it on again when all is loaded
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
