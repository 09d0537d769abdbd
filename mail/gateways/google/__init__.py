"""Google's side of a Gmail account: tokens, identity, reading, one way to send.

`base` has the contract, `client` the one request of each kind, `http` the wire to the real hosts,
`memory` a Google inside the process. Every request is counted with a grant before it is made.
"""
