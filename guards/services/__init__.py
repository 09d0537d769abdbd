"""The only code that writes guards' tables. Keyword-only; call it through the module."""
