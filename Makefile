# edged: `make` lists the targets. Logic of more than a few lines lives in scripts/.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
CONFIG ?= config.yaml
PYTEST_ARGS ?=

.PHONY: help setup model run serve test lint docs bench chaos fuzz system-test fleet-test wheelhouse wheelhouse-lock arm-test
.PHONY: install uninstall clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null || \
	 sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1   \2/p' $(MAKEFILE_LIST)

setup:  ## install what is missing: OS packages, .venv, Python packages (a second run takes a moment)
	@bash scripts/setup.sh

model: setup  ## fetch and verify the embedded default model (98 MB)
	@$(PY) -m edged.models.embedded

run: setup model  ## show it: start the daemon, ask it something from another process, stop it
	@$(PY) scripts/run.py

serve: setup model  ## run the daemon in the foreground with $(CONFIG); Ctrl-C stops it
	@exec .venv/bin/edged --config $(CONFIG)

# pure, real sockets with a scripted worker, real weights, parsers under mutated input
FLOORS = $(wildcard tests/unit tests/wire tests/engine tests/fuzz)

# the files of the wire floor that inject faults, beside tests/chaos
FAULTS = faults life levels reload journal hostile storm peers

test: setup model lint  ## lint, then all tests; the last line is pytest's summary
	@$(PY) -m pytest -n 3 --dist loadgroup $(FLOORS) $(PYTEST_ARGS)

lint: setup  ## ruff, mypy, yamllint, codespell, ansible-lint
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/mypy scripts
	@.venv/bin/yamllint --strict .
	@.venv/bin/codespell
	@bash scripts/lint_ansible.sh

docs: setup  ## renew what is made of the programs: the blocks of docs/edgectl.md, the manual pages in docs/man
	@$(PY) scripts/edgectl_help.py && $(PY) scripts/manpages.py

bench: setup model  ## every script of bench/, in order of name
	@bash scripts/bench.sh

chaos: setup model  ## the long tests with faults (tests/chaos)
	@$(PY) -m pytest tests/chaos $(FAULTS:%=tests/wire/test_%.py) $(PYTEST_ARGS)

SYSTEM ?= tests/system

system-test: setup model  ## the units, install and uninstall, in real systemd boxes (root; tests/system)
	@$(PY) -m pytest $(SYSTEM) $(PYTEST_ARGS)

fleet-test: setup model  ## three boxes, SSH, Ansible: install, upgrade, roll back, and what goes wrong (root; tests/deploy)
	@$(PY) -m pytest -x -o faulthandler_timeout=1200 tests/deploy $(PYTEST_ARGS)

install:  ## as root: edged as a service of this box (WHEELS=DIR offline, MODEL=FILE); again: upgrade
	@bash scripts/install.sh

uninstall:  ## as root: the service and the program go, data stay (PURGE=1: these too)
	@bash scripts/uninstall.sh

FUZZ_S ?= 600

fuzz: setup  ## every parser under mutated input, FUZZ_S (600) seconds each (tests/fuzz/README.md)
	@$(PY) -c 'import atheris' 2>/dev/null || $(PY) -m pip install -q -e '.[fuzz]' || echo 'fuzz: no atheris here, the plain loop is used'
	@$(PY) -m tests.fuzz.run --list | xargs -P $$(nproc) -I TARGET $(PY) -m tests.fuzz.run TARGET --seconds $(FUZZ_S)

ARCH ?= aarch64
BUILDER ?= $(shell for p in python3 python3.13 python3.12 python3.11; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

wheelhouse:  ## all that a box needs to install edged offline: dist/edged-VERSION-ARCH (ARCH=aarch64|x86_64)
	@PYTHONPATH=scripts $(or $(BUILDER),python3) -m wheelhouse $(ARCH)

wheelhouse-lock:  ## choose the packages' versions anew: scripts/wheelhouse/packages.txt
	@PYTHONPATH=scripts $(or $(BUILDER),python3) -m wheelhouse lock

arm-test: setup model  ## the wheelhouse on emulated 64-bit ARM boards (root, qemu-user-static; tests/arm)
	@$(MAKE) --no-print-directory wheelhouse ARCH=aarch64
	@$(PY) -m pytest tests/arm -s $(PYTEST_ARGS)

clean:  ## remove .venv, caches and build leftovers (not the models)
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
