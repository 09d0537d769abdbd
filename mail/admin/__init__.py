"""Mail in the console: messages, threads, what is written to leave, and the accounts."""

from mail.admin import accounts, lists, messages

__all__ = ["accounts", "lists", "messages"]
