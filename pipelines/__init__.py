"""pipelines: signed commands, bounded stages.

Owns commands, rules, pipelines and stages. Doors: services, selectors, types, signals, registry,
exceptions, models. Never runs what the owner has not signed, and nothing twice by itself.
"""
