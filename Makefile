# The project's commands. Each one first installs its dependencies in $(VENV).

VENV ?= .venv
WORLD ?= 3DBall
RUN ?= first-$(WORLD)
# A configuration file; without one, the world's own.
CONFIG ?=
# The mean reward at which training ends, which a trained policy reaches.
STOP_AT_3DBall = 95
STOP_AT_Basic = 0.9
STOP_AT ?= $(STOP_AT_$(WORLD))
STOP := $(if $(STOP_AT),--stop-at-reward $(STOP_AT))
FILM ?= results/$(RUN)/$(WORLD).mp4
export VENV

# Without RUN=... each run starts from scratch; a run named by RUN=... is never overwritten.
FORCE := $(if $(filter file,$(origin RUN)),--force)

.DEFAULT_GOAL := help
.PHONY: help train watch tensorboard test test-fast nightly check format reference site audit compatibility install clean

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

train: $(VENV)/.installed-train ## Train 3DBall (WORLD=Basic: another world; RUN=mine: another name)
	@$(VENV)/bin/mlagents-learn $(CONFIG) --env $(WORLD) --run-id $(RUN) $(FORCE) $(STOP)

watch: $(VENV)/.installed-play ## Show the rewards of that run's policy, and film it
	@$(VENV)/bin/mlagents-play --env $(WORLD) --model $(RUN) --episodes 3 \
	    --render $(FILM) --film-seconds 20
	@echo "The film is $(FILM)."

tensorboard: $(VENV)/.installed-train ## Show the curves of all runs in results/
	@$(VENV)/bin/tensorboard --logdir results

test: $(VENV)/.installed-dev ## Run all tests
	@scripts/test

test-fast: $(VENV)/.installed-dev ## Run the fast tests only
	@scripts/test fast

nightly: $(VENV)/.installed-dev ## Run the checks that take hours: all seeds, faults, fuzzing, mutants, other torches
	@$(VENV)/bin/python scripts/nightly

check: $(VENV)/.installed-dev ## Check formatting, lint, types, wordings and the generated pages
	@scripts/check

format: $(VENV)/.installed-dev ## Format the code and apply the linter's fixes
	@$(VENV)/bin/ruff check --fix --quiet .
	@$(VENV)/bin/ruff format .

reference: $(VENV)/.installed-dev ## Write the generated pages and notebooks
	@$(VENV)/bin/python scripts/build_reference
	@$(VENV)/bin/python scripts/build_gallery
	@$(VENV)/bin/python scripts/build_notebooks

site: $(VENV)/.installed-dev ## Build the documentation as a site: build/site/index.html
	@$(VENV)/bin/python -m sphinx -b html --quiet --fail-on-warning --keep-going docs build/site
	@echo "The site is build/site/index.html."

audit: ## List locked versions with known vulnerabilities
	@scripts/audit

compatibility: ## Test the oldest and newest dependencies and every Python found
	@scripts/compatibility

install: $(VENV)/.installed-dev ## Install everything for work on the project
	@echo "The project is ready in $(VENV)."

clean: ## Remove the virtual environment and every cache; results/ stays
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

NATIVE := setup.py $(wildcard src/mlagents_native/source/*)

$(VENV)/.installed-%: requirements/lock.txt requirements/hashed-%.txt pyproject.toml $(NATIVE)
	@scripts/install $*
