"""A filter of system calls for sandboxes, as classic BPF: what namespaces do not hold back.

Sockets of families other than Unix, IPv4, IPv6 and netlink are refused (a virtual machine's
AF_VSOCK knows no network namespaces), and so are kernel keyrings, new namespaces, mounts, tracing
of other processes, io_uring (which opens sockets past such filters), BPF and module loading. So are
the set-user-ID and set-group-ID bits: a file that has them outlives its sandbox, and whoever else
is on the host becomes by it the account that workers run as.
Refused calls fail with an error. Only a program built for another architecture is killed.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from functools import cache

_LOAD, _JUMP_EQUAL, _JUMP_BITS, _JUMP_ABOVE, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _TO_NEXT = 0, 4, 16, 8

_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 0x00050001, 0x00050026, 0x00050061

#: CLONE_NEW*: namespaces of mounts, control groups, names, IPC, users, processes and networks.
_NEW_NAMESPACES = 0x7E020000
#: S_ISUID and S_ISGID, and the flags of an open that takes a mode: O_CREAT and __O_TMPFILE.
_OTHERS_RIGHTS, _WITH_MODE = 0o6000, 0x400040
#: AF_UNIX, AF_INET, AF_INET6, AF_NETLINK.
_FAMILIES = (1, 2, 10, 16)

#: The kernel's name for an architecture, and its numbers for our calls.
_X86_64 = 0xC000003E, {
    "socket": 41, "socketpair": 53, "clone": 56, "ptrace": 101, "pivot_root": 155, "chroot": 161,
    "mount": 165, "umount2": 166, "init_module": 175, "kexec_load": 246, "add_key": 248,
    "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298, "setns": 308,
    "open_by_handle_at": 304, "process_vm_readv": 310, "process_vm_writev": 311,
    "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsmount": 432, "clone3": 435, "pidfd_getfd": 438,
    "mount_setattr": 442,
    "open": 2, "creat": 85, "chmod": 90, "fchmod": 91, "mknod": 133, "openat": 257, "mknodat": 259,
    "fchmodat": 268, "openat2": 437, "fchmodat2": 452,
}  # fmt: skip
_AARCH64 = 0xC00000B7, {
    "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "unshare": 97, "kexec_load": 104,
    "init_module": 105, "ptrace": 117, "socket": 198, "socketpair": 199, "add_key": 217,
    "request_key": 218, "keyctl": 219, "clone": 220, "perf_event_open": 241,
    "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271,
    "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsmount": 432, "clone3": 435, "pidfd_getfd": 438,
    "mount_setattr": 442,
    "mknodat": 33, "fchmod": 52, "fchmodat": 53, "openat": 56, "openat2": 437, "fchmodat2": 452,
}  # fmt: skip

#: Which argument of a call is a mode, and of the opening ones, which are the flags.
_MODES = {
    "creat": 1, "chmod": 1, "fchmod": 1, "mknod": 1, "mknodat": 2, "fchmodat": 2, "fchmodat2": 2,
}  # fmt: skip
_OPENING = {"open": (1, 2), "openat": (2, 3)}

_MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}
#: x86_64 programs may also use numbers of its x32 form, from here on.
_X32 = 0x40000000


@cache
def program() -> bytes | None:
    """The filter for this machine as bubblewrap takes it; None for an architecture not listed."""
    known = _MACHINES.get(platform.machine())
    if known is None:
        return None
    architecture, numbers = known
    return b"".join(struct.pack("=HBBI", *step) for step in _steps(architecture, dict(numbers)))


def _steps(architecture: int, numbers: dict[str, int]) -> Iterator[tuple[int, int, int, int]]:
    """Instructions as (code, if true skip, if false skip, value)."""
    yield _LOAD, 0, 0, _ARCHITECTURE
    yield _JUMP_EQUAL, 1, 0, architecture
    yield _RETURN, 0, 0, _KILL
    yield _LOAD, 0, 0, _NUMBER
    yield _JUMP_ABOVE, 0, 1, _X32
    yield _RETURN, 0, 0, _ENOSYS
    yield from _only_families(numbers.pop("socket"))
    yield from _only_families(numbers.pop("socketpair"))
    yield from _without_bits(numbers.pop("clone"), 0, _NEW_NAMESPACES)
    for name in sorted(numbers.keys() & _MODES.keys()):
        yield from _without_bits(numbers.pop(name), _MODES[name], _OTHERS_RIGHTS)
    for name in sorted(numbers.keys() & _OPENING.keys()):
        yield from _opens_without_bits(numbers.pop(name), *_OPENING[name])
    for name in ("clone3", "openat2"):  # their flags are out of reach: use the older ones
        yield _JUMP_EQUAL, 0, 1, numbers.pop(name)
        yield _RETURN, 0, 0, _ENOSYS
    for number in sorted(numbers.values()):
        yield _JUMP_EQUAL, 0, 1, number
        yield _RETURN, 0, 0, _EPERM
    yield _RETURN, 0, 0, _ALLOW


def _only_families(number: int) -> Iterator[tuple[int, int, int, int]]:
    yield _JUMP_EQUAL, 0, len(_FAMILIES) + 3, number
    yield _LOAD, 0, 0, _FIRST_ARGUMENT
    for index, family in enumerate(_FAMILIES):
        yield _JUMP_EQUAL, len(_FAMILIES) - index, 0, family
    yield _RETURN, 0, 0, _EAFNOSUPPORT
    yield _RETURN, 0, 0, _ALLOW


def _without_bits(number: int, argument: int, bits: int) -> Iterator[tuple[int, int, int, int]]:
    yield _JUMP_EQUAL, 0, 4, number
    yield _LOAD, 0, 0, _FIRST_ARGUMENT + argument * _TO_NEXT
    yield _JUMP_BITS, 0, 1, bits
    yield _RETURN, 0, 0, _EPERM
    yield _RETURN, 0, 0, _ALLOW


def _opens_without_bits(number: int, flags: int, mode: int) -> Iterator[tuple[int, int, int, int]]:
    """What stands in place of a mode where nothing is made means nothing."""
    yield _JUMP_EQUAL, 0, 6, number
    yield _LOAD, 0, 0, _FIRST_ARGUMENT + flags * _TO_NEXT
    yield _JUMP_BITS, 0, 3, _WITH_MODE
    yield _LOAD, 0, 0, _FIRST_ARGUMENT + mode * _TO_NEXT
    yield _JUMP_BITS, 0, 1, _OTHERS_RIGHTS
    yield _RETURN, 0, 0, _EPERM
    yield _RETURN, 0, 0, _ALLOW
