"""The outer ring: real servers, real processes, data directories of their own."""
