"""Settings of an installation of a test whose Google is on loopback; nothing else differs."""

from config.settings import *  # noqa: F403
from config.settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [*_APPS, "tests.acceptance.towards_google.TowardsGoogle"]
