# Everyday commands. `make up` needs Linux, python3 (3.11 or newer), git and make, and installs all else.
.DEFAULT_GOAL := help
SHELL := /bin/sh
BIN := .venv/bin
STACK ?= local
JOB ?= $(wildcard stacks/$(STACK).job.yaml)
PACKAGES := catalog engine infra local policies rehearsal training/src trainyard benchmarks tests
# Clones share mypy's cache and the tests' results. Python caches bytecode, since hundreds of processes import the same modules.
CACHE = $(or $(TRAINYARD_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/trainyard)
export MYPY_CACHE_DIR ?= $(CACHE)/mypy
unexport PYTHONDONTWRITEBYTECODE
COMPILE := $(BIN)/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header \
	$(if $(UPGRADE),--upgrade)

# A tier of tests is a marker (pyproject.toml) with its target's name; its groups and budget: tests/groups.yaml, budgets.yaml.
# SAMPLE=1 also runs some tests of a tier that has passed before with the same content.
TIER = $(BIN)/python -m tests.proof $@ $(if $(SAMPLE),sample)

# Installs packages in a separate folder, which tests append to sys.path. Arguments: the folder, options of uv.
define aside
test .trainyard/$(1)/.done -nt requirements/$(if $(filter peers,$(1)),peers,host).txt || { rm -rf .trainyard/$(1) && \
	$(BIN)/uv pip install --quiet --require-hashes --target .trainyard/$(1) $(2) && touch .trainyard/$(1)/.done; }
endef
# Options that leave packages of the training environment out of a lock. Argument: their names, a regular expression.
but_training = $$(grep -oE '^($(1))==' requirements/training.txt | tr -d = | sed 's/^/--no-emit-package /')

.PHONY: help up down status doctor release test sum unit clouds training e2e cluster engine ranks nfs soak bench peers guides clis check format lock clean venv venv-dev prepared

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

up: venv ## Bring up the stack (STACK=local) and run a job on it (JOB=stacks/local.job.yaml)
	@$(BIN)/trainyard up --stack $(STACK) $(if $(JOB),--job $(JOB))

down: venv ## Delete the cluster, retain its data (PURGE=1: delete the data too)
	@$(BIN)/trainyard down --stack $(STACK) $(if $(PURGE),--purge)

status: venv ## Show what runs
	@$(BIN)/trainyard status --stack $(STACK)

doctor: venv ## Show what this host has and lacks, and what `up` would install
	@$(BIN)/trainyard doctor

test: prepared clis nfs peers ## All checks and tests that must pass for every change (COLD=1: forget what has passed)
	@$(if $(COLD),rm -rf "$(CACHE)/results";) : > .trainyard/proof.jsonl
	@$(MAKE) --no-print-directory --keep-going e2e BESIDE="check unit clouds training"; \
		$(MAKE) --no-print-directory sum CODE=$$?

sum: # of a run
	@$(BIN)/python -m tests.proof end $(CODE)

unit: prepared ## The fast tests, in under a minute: no root, no network, no cluster
	@$(BEHIND) $(TIER)

clouds: prepared ## Tests of the clouds' plans, against their SDKs and moto
	@$(BEHIND) $(TIER)

training: peers ## Tests of the training package
	@$(BEHIND) $(TIER)

# The cluster waits most, so it begins first. The others have a lower priority.
e2e: prepared ## The end-to-end tests, their three parts in parallel
	@$(MAKE) --no-print-directory --output-sync --jobs=4 BEHIND=tests/behind.sh cluster engine ranks $(BESIDE)

cluster: peers ## The tests on a real cluster (root)
	@$(TIER)

engine: prepared guides ## The tests on the real engine: guides, rehearsals, templates, policies
	@$(BEHIND) $(TIER)

ranks: peers nfs ## The tests of training jobs of several processes, and of checkpoints on NFS (root)
	@$(BEHIND) $(TIER)

soak: peers nfs ## The long tests, by seeds; continues after an interruption (SOAK=FILE: only those)
	@$(BIN)/python -m pytest -p tests.proof -m soak -v --durations=5 $(SOAK)

# DeepSpeed is published only as source, and is built with the training environment's packages.
peers: prepared ## Others' programs, for tests and benchmarks
	@$(call aside,peers,--no-build-isolation --no-deps -r requirements/peers.txt)

nfs: prepared ## An NFS server and client, and an image builder, for the tests (Debian packages; root)
	@$(BIN)/trainyard local prepare --tests

guides: prepared clis ## The AWS command line, for the tests of the guides
	@$(BIN)/python -m tests.e2e.guide README.md $(wildcard $(patsubst infra/targets/%/target.py,docs/%.md,$(wildcard infra/targets/*/target.py))) templates/*/README.md

clis: venv # for pipelines, too: templates/pipelines/bin
	@$(call aside,clis,--group clis -c requirements/host.txt)

bench: peers ## Measure, and print ratios
	@$(BIN)/python -m benchmarks

release: prepared ## Write VERSION=X.Y.Z and this release's state, for the commit to tag
	@$(BIN)/python -m tests.e2e.release $(VERSION)

check: prepared ## Lint, types, imports, Dockerfiles, shell programs
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BEHIND) $(BIN)/mypy $(PACKAGES)
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.arrows
	@$(BIN)/hadolint training/images/*/Dockerfile
	@$(BIN)/shellcheck --severity=warning $$(git ls-files '*.sh')

format: venv-dev ## Format the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

lock: $(BIN)/uv ## Lock the Python packages (UPGRADE=1: to their newest versions)
	@$(COMPILE) pyproject.toml --extra dev --group build --group go --group clis \
		--annotation-style line -o requirements/host.txt
	@$(COMPILE) --group plugin --no-annotate -c requirements/host.txt -o requirements/plugin.txt
	@$(COMPILE) training/pyproject.toml --extra jobs --no-annotate -o requirements/training.txt
	@$(COMPILE) training/pyproject.toml --extra jobs --no-annotate -c requirements/training.txt -o requirements/training-rocm.txt \
		$(call but_training,torch|triton|cuda-[a-z-]+|nvidia-[a-z0-9-]+)
	@$(COMPILE) training/pyproject.toml --extra jobs --extra deepspeed --extra tracking --group pyproject.toml:peers \
		--annotation-style line \
		-c requirements/training.txt -o requirements/peers.txt $(call but_training,[a-z0-9._-]+)

clean: ## Delete what was built in this folder; the cache and the clusters remain
	rm -rf .venv .trainyard build *.egg-info policies/build policies/*.egg-info training/build training/src/*.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/uv: # also where the lock lacks a package that pyproject.toml has
	@local/bootstrap.sh dev

venv:
	@local/bootstrap.sh local

venv-dev:
	@local/bootstrap.sh dev

# The tests need what `up` needs, and import PyTorch from the jobs' training environment.
prepared: venv-dev
	@$(BIN)/trainyard local prepare
	@echo "$(CURDIR)/.trainyard/training-env" > "$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')/training-env.pth"
