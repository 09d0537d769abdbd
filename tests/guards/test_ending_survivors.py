"""What a killed worker's children left running is found by an inherited variable, and ended."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from guards import process


def test_it_ends_every_process_with_that_variable_and_no_other():
    marked = [sleeper(RUN="one") for _ in range(3)]
    others = [sleeper(RUN="one-more"), sleeper(OTHER="one"), sleeper()]
    wait_for_all(marked + others)
    try:
        assert process.end_marked("RUN", "one") == 3

        assert [child.wait(timeout=10) for child in marked] == [-9, -9, -9]
        assert [child.poll() for child in others] == [None, None, None]
        assert process.end_marked("RUN", "one") == 0
    finally:
        for child in marked + others:
            child.kill()
            child.wait()


def test_a_script_does_not_go_on_when_its_child_is_killed(tmp_path):
    script = subprocess.Popen(
        ["sh", "-c", "sleep 60; touch went-on"],
        env={"PATH": os.environ["PATH"], "RUN": "script"},
        cwd=tmp_path,
    )
    while not children_of(script.pid):
        time.sleep(0.01)

    assert process.end_marked("RUN", "script") == 2
    assert script.wait(timeout=10) == -9
    assert not (tmp_path / "went-on").exists()


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def sleeper(**variables: str) -> subprocess.Popen:
    return subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"], **variables})


def wait_for_all(children: list[subprocess.Popen]) -> None:
    """Until each has become `sleep`: before its exec a child still shows our own environment."""
    for child in children:
        while not Path(f"/proc/{child.pid}/comm").read_text().startswith("sleep"):
            time.sleep(0.01)
