"""Benchmarks: each measures against its floor in the same run. `python -m bench` runs all."""
