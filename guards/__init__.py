"""guards: who are you, and may you.

Owns identities, contacts, pins, permissions, tokens and decisions; OpenPGP, secrets, signed
documents and child processes. Doors: services, selectors, types, signals, registry, exceptions,
models (for foreign keys), and openpgp, secrets, documents, process, trust, queue, fronts, unseen.
Knows no other app, and never reads mail.
"""
