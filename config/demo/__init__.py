"""The demo: a small world with its own mail server, told once (`demo`) or lived in (`up --demo`).

`cast` says who plays, `letters` what they write, `scene` builds the world through the services,
`performance` plays the story, `report` counts what came out. `unknown` is a story of its own, with
a small `google`: an answer that gets lost.
"""
