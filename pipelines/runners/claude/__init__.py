"""The `claude` runner: signed commands that a Claude Code worker carries out, in a sandbox.

runner        ClaudeRunner: what the executor calls
preflight     what must hold before a worker starts
rounds        a mission from its first round to its last
running       one run of the program, from its files to its end
command_line  its words and its two texts; `tools` and `servers` read what a command declares
lodging       a mission's own directory and HOME; `surroundings` its environment
workplace     what it sees of the file system
sandbox       the walls (bubblewrap); `seccomp` a filter of system calls; `inside` what starts there
destinations  where it may connect to; `egress` the broker outside, `one_path` its narrowest door
reception     whether our MCP server is there for it, asked before it can reach anything
stream        reading what it prints; `outcome` what that comes to
"""
