"""approvals: nothing leaves twice, nothing leaves unseen.

Owns holds, approvals, effects and observations: every act that leaves the house is one effect,
marked before its one contact. Doors: services, selectors, types, signals, registry, exceptions,
models. Never contacts anything itself: kinds of acts plug in.
"""
