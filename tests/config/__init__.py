"""Tests of config: the commands that run the house."""
