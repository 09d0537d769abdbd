# `make run` starts everything with a demo; `make test` runs the whole suite. Both install first.

PYTHON ?= python3
PY := .venv/bin/python
STAMP := .venv/.installed

.PHONY: help setup run test check bench docs screenshots lock soak

help:
	@echo "make run     web, worker, watcher and a demo mail server in the foreground"
	@echo "make test    the whole suite, on SQLite and on PostgreSQL"
	@echo "make check   linters, types, layers, migrations, templates, documents"
	@echo "make bench   the speed figures, each against its floor"
	@echo "make soak    the long proofs"
	@echo "make docs    write the generated pages under docs/"
	@echo "make lock    compile requirements/*.in into hash-pinned locks"

$(STAMP): requirements/check.txt
	test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/check.txt
	touch $(STAMP)

setup: $(STAMP)
	@$(PY) -m config.setup

run: setup
	$(PY) manage.py up --demo

test: setup
	$(PY) -m tests.run

check: setup
	$(PY) -m tests.check

bench: setup
	$(PY) -m bench

docs: setup
	$(PY) -m tests.documents

screenshots: setup
	$(PY) -m tests.screenshots

soak: setup
	$(PY) -m pytest -m soak --timeout=3600

lock: setup
	for name in check run demo test; do \
		constraint=$$(test $$name = check || echo "-c requirements/check.txt"); \
		$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
			requirements/$$name.in -o requirements/$$name.txt $$constraint; \
	done
