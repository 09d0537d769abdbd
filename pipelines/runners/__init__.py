"""Ways to carry a stage out: `base` has what they share, one module per runner beside it."""
