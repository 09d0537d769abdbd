"""The only code that writes teams' tables, by use case."""
