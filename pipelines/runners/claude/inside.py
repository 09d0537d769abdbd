"""The first program inside a sandbox: opens the doors, hands them out, and becomes the worker.

It listens on the loopback addresses that stand for what the worker may reach, passes the listening
sockets to the broker outside, gives up its one capability (ports below 1024) and then replaces
itself: nothing of ours stays inside, and exit code, output and signals are the worker's own.

    python -I -S inside.py CHANNEL ADDRESS:PORT,ADDRESS:PORT PROGRAM ARGUMENT…

Self-contained, for any Python from 3.9 on: it is read by the interpreter that the sandbox has.
"""

import ctypes
import os
import resource
import sys
from _socket import AF_INET, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
from array import array

_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_BACKLOG = 64
#: Processes and threads inside, all together.
_MOST_PROCESSES = 4096


def main() -> None:
    """Hand over, drop, become."""
    channel, addresses, program = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    doors = [_door(address) for address in addresses.split(",") if address]
    outside = socket(fileno=channel)
    descriptors = array("i", [door.fileno() for door in doors])
    outside.sendmsg([b"doors"], [(SOL_SOCKET, SCM_RIGHTS, descriptors.tobytes())])
    outside.close()
    resource.setrlimit(resource.RLIMIT_NPROC, (_MOST_PROCESSES, _MOST_PROCESSES))
    ctypes.CDLL(None).prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    os.execv(program[0], program)  # noqa: S606 - there is no shell to begin with


def _door(address: str) -> socket:
    host, _, port = address.rpartition(":")
    door = socket(AF_INET, SOCK_STREAM)
    door.bind((host, int(port)))
    door.listen(_BACKLOG)
    return door


if __name__ == "__main__":
    main()
