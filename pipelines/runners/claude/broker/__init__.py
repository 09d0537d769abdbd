"""The broker of the Messages API: it holds the key, a worker only has a word for one run.

It lives outside of the walls, in the thread of `egress`. Inside, the client speaks plain HTTP to a
loopback address. What it asks for is read whole, judged, written anew with the real key and sent
to CLAUDE_BASE_URL alone; the answer is passed on as it comes, and what it used is counted.

`exchange` has the broker itself; it is loaded with the first mission, since few programs have one.
`visitors` reads and answers what comes from inside, `requests` judges it, `contents` what it says;
`upstream` speaks to the real API, `usage` reads what an answer used, `meter` adds it up and says
when it is enough.
"""

from pipelines.runners.claude.broker.meter import Bounds, Meter, Tally

__all__ = ["Bounds", "Meter", "Tally"]
