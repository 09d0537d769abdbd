"""mail: front door and outgoing post.

Owns accounts, what arrived with its trust, and what was composed to leave. Doors: services,
selectors, types, signals, registry, exceptions, models. Never starts work, and never sends without
an effect.
"""
