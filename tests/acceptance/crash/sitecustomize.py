"""Kills a process at one named point, once. Tests put this folder on PYTHONPATH; nothing else does.

`CRASH_POINT` is `module:function:before` or `…:after` (the function may be a method,
`Class.method`). The first process to reach it creates `CRASH_MARK` and is gone, with its session.
"""

import functools
import importlib.abc
import importlib.machinery
import os
import signal
import sys


def _die_once():
    try:
        os.close(os.open(os.environ["CRASH_MARK"], os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _wrap(function, moment):
    @functools.wraps(function)
    def deadly(*args, **kwargs):
        if moment == "before":
            _die_once()
        answer = function(*args, **kwargs)
        if moment == "after":
            _die_once()
        return answer

    return deadly


class _Loader(importlib.abc.Loader):
    def __init__(self, real, name, moment):
        self._real, self._name, self._moment = real, name, moment

    def create_module(self, spec):
        return self._real.create_module(spec)

    def exec_module(self, module):
        self._real.exec_module(module)
        *owners, last = self._name.split(".")
        owner = functools.reduce(getattr, owners, module)
        setattr(owner, last, _wrap(getattr(owner, last), self._moment))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module, name, moment):
        self._module, self._name, self._moment = module, name, moment

    def find_spec(self, fullname, path, target=None):
        if fullname != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        spec.loader = _Loader(spec.loader, self._name, self._moment)
        return spec


if os.environ.get("CRASH_POINT"):
    sys.meta_path.insert(0, _Finder(*os.environ["CRASH_POINT"].split(":")))
