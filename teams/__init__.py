"""teams: common room and notice board.

Owns projects and the one tamper-evident event log with its feed. Doors: services, selectors, types,
signals, registry, exceptions, models. Never decides, never sends.
"""
