"""The sign-off desk in the console, a module for each noun."""

from approvals.admin import effects, holds, reviews

__all__ = ["effects", "holds", "reviews"]
