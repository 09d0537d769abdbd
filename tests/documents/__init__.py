"""The generated pages of docs/: `python -m tests.documents` writes them, a test keeps them."""
