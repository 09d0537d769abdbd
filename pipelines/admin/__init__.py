"""Signed commands, planning rules, and work as it went, in the console."""

from pipelines.admin import commands, missions, rules, work

__all__ = ["commands", "missions", "rules", "work"]
