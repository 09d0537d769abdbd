"""The sign-off desk in the console, a module for each noun."""

from approvals.admin import authority, effects, holds, reviews

__all__ = ["authority", "effects", "holds", "reviews"]
