"""The first program inside a sandbox: opens the doors, hands them out, and becomes the worker.

It listens on the loopback addresses that stand for what the worker may reach, passes the listening
sockets to the broker outside, gives up its one capability (ports below 1024) and then replaces
itself: nothing of ours stays inside, and exit code, output and signals are the worker's own.

    python -I -S inside.py CHANNEL ADDRESS:PORT,ADDRESS:PORT PROGRAM ARGUMENT…

Self-contained, and imports little: each module that is not built in costs a millisecond or more.
"""

import os
import resource
import sys
from _socket import AF_INET, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_BACKLOG = 64
#: bwrap gave the capability where a port below this one is asked for.
_PRIVILEGED_PORTS = 1024
#: Processes and threads inside, all together.
_MOST_PROCESSES = 4096


def main() -> None:
    """Hand over, drop, become."""
    channel, addresses, program = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    places = [_place(address) for address in addresses.split(",") if address]
    doors = [_door(host, port) for host, port in places]
    outside = socket(fileno=channel)
    descriptors = b"".join(door.fileno().to_bytes(4, sys.byteorder) for door in doors)
    outside.sendmsg([b"doors"], [(SOL_SOCKET, SCM_RIGHTS, descriptors)])
    outside.close()
    resource.setrlimit(resource.RLIMIT_NPROC, (_MOST_PROCESSES, _MOST_PROCESSES))
    if any(port < _PRIVILEGED_PORTS for _, port in places):
        _give_up_capabilities()
    os.execv(program[0], program)  # noqa: S606 - there is no shell to begin with


def _place(address: str) -> "tuple[str, int]":
    host, _, port = address.rpartition(":")
    return host, int(port)


def _door(host: str, port: int) -> socket:
    door = socket(AF_INET, SOCK_STREAM)
    door.bind((host, port))
    door.listen(_BACKLOG)
    return door


def _give_up_capabilities() -> None:
    """What is not ambient is lost when the next program begins: the user inside is not root."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


if __name__ == "__main__":
    main()
