"""Kills a process at named points, each time one is armed. Tests put this folder on PYTHONPATH.

`GOOGLE_ORIGINS` (JSON: a host's name, its address on loopback) leads the wire to Google there.

`CRASH_POINTS` is a list of `module:function:before` or `…:after`, with commas between them (the
function may be a method, `Class.method`). The file `CRASH_ARMED` holds the one that is deadly now:
the first process to reach it renames that file to `….struck` and is gone, with its session.
"""

import collections
import functools
import importlib.abc
import importlib.machinery
import json
import os
import pathlib
import signal
import sys


def _die_if_armed(point):
    armed = pathlib.Path(os.environ["CRASH_ARMED"])
    try:
        if armed.read_text() != point:
            return
        armed.rename(f"{armed}.struck")
    except FileNotFoundError:
        return
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _wrap(function, point):
    moment = point.rsplit(":", 1)[1]

    @functools.wraps(function)
    def deadly(*args, **kwargs):
        if moment == "before":
            _die_if_armed(point)
        answer = function(*args, **kwargs)
        if moment == "after":
            _die_if_armed(point)
        return answer

    return deadly


class _Loader(importlib.abc.Loader):
    def __init__(self, real, points):
        self._real, self._points = real, points

    def create_module(self, spec):
        return self._real.create_module(spec)

    def exec_module(self, module):
        self._real.exec_module(module)
        for point in self._points:
            *owners, last = point.split(":")[1].split(".")
            owner = functools.reduce(getattr, owners, module)
            setattr(owner, last, _wrap(getattr(owner, last), point))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, points):
        self._points = collections.defaultdict(list)
        for point in points:
            self._points[point.split(":")[0]].append(point)

    def find_spec(self, fullname, path, target=None):
        if fullname not in self._points:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        spec.loader = _Loader(spec.loader, self._points[fullname])
        return spec


if os.environ.get("CRASH_POINTS"):
    sys.meta_path.insert(0, _Finder(os.environ["CRASH_POINTS"].split(",")))


class _Elsewhere(importlib.abc.Loader):
    """Gives the wire to Google the test's own origins where it was given none."""

    def __init__(self, real, origins):
        self._real, self._origins = real, origins

    def create_module(self, spec):
        return self._real.create_module(spec)

    def exec_module(self, module):
        self._real.exec_module(module)
        begin = module.HttpWire.__init__
        named = {module.Host[name]: address for name, address in self._origins.items()}
        module.HttpWire.__init__ = lambda wire, origins=None: begin(wire, origins or named)


class _GoogleFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        if fullname != "mail.gateways.google.http":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        spec.loader = _Elsewhere(spec.loader, json.loads(os.environ["GOOGLE_ORIGINS"]))
        return spec


if os.environ.get("GOOGLE_ORIGINS"):
    sys.meta_path.insert(0, _GoogleFinder())
