# Everyday commands. `make up` needs Linux, python3 (3.11 or newer), git and make, and installs all else.
.DEFAULT_GOAL := help
SHELL := /bin/sh
BIN := .venv/bin
STACK ?= local
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

# Installs a lock's packages in a separate folder, which tests append to sys.path. Arguments: the lock, options of uv.
define aside
test .trainyard/$(1)/.done -nt requirements/$(1).txt || { rm -rf .trainyard/$(1) && $(BIN)/uv pip install --quiet \
	$(2) --require-hashes --no-deps --target .trainyard/$(1) -r requirements/$(1).txt && touch .trainyard/$(1)/.done; }
endef

.PHONY: help up down status doctor release test sum unit clouds training e2e cluster engine ranks nfs soak bench peers tracking deepspeed foreign guides clis check format lock clean venv venv-dev prepared

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

up: venv ## Bring up the stack (STACK=local) and run its training job
	@$(BIN)/trainyard up --stack $(STACK)

down: venv ## Delete the cluster, retain its data (PURGE=1: delete the data too)
	@$(BIN)/trainyard down --stack $(STACK) $(if $(PURGE),--purge)

status: venv ## Show what runs
	@$(BIN)/trainyard status --stack $(STACK)

doctor: venv ## Show what this host has and lacks, and what `up` would install
	@$(BIN)/trainyard doctor

test: prepared foreign clis nfs tracking deepspeed ## All checks and tests that must pass for every change (COLD=1: forget what has passed)
	@$(if $(COLD),rm -rf "$(CACHE)/results";) : > .trainyard/proof.jsonl
	@$(MAKE) --no-print-directory --keep-going e2e BESIDE="check unit clouds training"; \
		$(MAKE) --no-print-directory sum CODE=$$?

sum: # of a run
	@$(BIN)/python -m tests.proof end $(CODE)

unit: prepared ## The fast tests, in under a minute: no root, no network, no cluster
	@$(BEHIND) $(TIER)

clouds: prepared ## Tests of the clouds' plans, against their SDKs and moto
	@$(BEHIND) $(TIER)

training: tracking ## Tests of the training package
	@$(BEHIND) $(TIER)

# The cluster waits most, so it begins first. The others have a lower priority.
e2e: prepared ## The end-to-end tests, their three parts in parallel
	@$(MAKE) --no-print-directory --output-sync --jobs=4 BEHIND=tests/behind.sh cluster engine ranks $(BESIDE)

cluster: prepared foreign ## The tests on a real cluster (root)
	@$(TIER)

engine: prepared guides ## The tests on the real engine: guides, rehearsals, templates, policies
	@$(BEHIND) $(TIER)

ranks: tracking deepspeed foreign nfs ## The tests of training jobs of several processes, and of checkpoints on NFS (root)
	@$(BEHIND) $(TIER)

soak: prepared deepspeed foreign nfs ## The long tests, by seeds; continues after an interruption (SOAK=FILE: only those)
	@$(BIN)/python -m pytest -p tests.proof -m soak -v --durations=5 $(SOAK)

peers: prepared ## The packages that benchmarks compare with
	@$(call aside,peers)

nfs: prepared ## An NFS server and client, and an image builder, for the tests (Debian packages; root)
	@$(BIN)/trainyard prepare --tests

tracking: prepared ## The packages of experiment trackers, for their tests
	@$(call aside,tracking)

# DeepSpeed is published only as source, and is built with the locked packages.
deepspeed: prepared ## DeepSpeed, for its tests
	@$(call aside,deepspeed,--no-build-isolation)

foreign: prepared ## Third-party programs for the tests of the library
	@$(call aside,foreign)

guides: prepared clis ## The AWS command line, for the tests of the guides
	@$(BIN)/python -m tests.e2e.guide README.md $(foreach kind,aws azure coreweave gcp onprem,docs/$(kind).md) templates/*/README.md

clis: venv # for pipelines, too: templates/pipelines/bin
	@$(call aside,guides)

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

lock: venv-dev ## Lock the Python packages (UPGRADE=1: to their newest versions)
	@$(COMPILE) pyproject.toml requirements/build.in --extra dev -o requirements/dev.txt
	@$(COMPILE) pyproject.toml requirements/build.in -c requirements/dev.txt -o requirements/local.txt
	@for extra in aws coreweave gcp azure; do \
		$(COMPILE) pyproject.toml requirements/build.in --extra $$extra -c requirements/dev.txt \
			-o requirements/$$extra.txt || exit 1; done
	@$(COMPILE) requirements/plugin.in -c requirements/dev.txt -o requirements/plugin.txt
	@for extra in aws coreweave gcp azure; do \
		$(COMPILE) requirements/plugin-$$extra.in -c requirements/dev.txt -o requirements/plugin-$$extra.txt \
			$$(grep -oE '^[a-z0-9._-]+==' requirements/plugin.txt | tr -d = | sed 's/^/--no-emit-package /') \
			|| exit 1; done
	@$(COMPILE) requirements/uv.in -c requirements/dev.txt -o requirements/uv.txt
	@$(COMPILE) requirements/go.in -o requirements/go.txt
	@$(COMPILE) requirements/member.in -o requirements/member.txt
	@$(COMPILE) requirements/training.in -o requirements/training.txt
	@$(COMPILE) requirements/training.in -c requirements/training.txt -o requirements/training-rocm.txt \
		$$(grep -oE '^(torch|triton|cuda-[a-z-]+|nvidia-[a-z0-9-]+)=' requirements/training.txt | tr -d = | \
			sed 's/^/--no-emit-package /')
	@$(COMPILE) requirements/cuda-headers.in -c requirements/training.txt -o requirements/cuda-headers.txt
	@$(COMPILE) requirements/peers.in -c requirements/training.txt -o requirements/peers.txt \
		$$(grep -oE '^[a-z0-9._-]+==' requirements/training.txt | tr -d = | sed 's/^/--no-emit-package /')
	@$(COMPILE) requirements/deepspeed.in -c requirements/training.txt -o requirements/deepspeed.txt \
		$$(grep -oE '^[a-z0-9._-]+==' requirements/training.txt | tr -d = | sed 's/^/--no-emit-package /')
	@$(COMPILE) requirements/foreign.in -c requirements/training.txt -o requirements/foreign.txt \
		$$(grep -oE '^[a-z0-9._-]+==' requirements/training.txt | tr -d = | sed 's/^/--no-emit-package /')
	@$(COMPILE) requirements/guides.in -o requirements/guides.txt
	@$(COMPILE) requirements/tracking.in -c requirements/training.txt -o requirements/tracking.txt

clean: ## Delete what was built in this folder; the cache and the clusters remain
	rm -rf .venv .trainyard build *.egg-info training/src/*.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

venv:
	@local/bootstrap.sh local

venv-dev:
	@local/bootstrap.sh dev

# The tests need what `up` needs, and import PyTorch from the jobs' training environment.
prepared: venv-dev
	@$(BIN)/trainyard prepare
	@echo "$(CURDIR)/.trainyard/training-env" > "$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')/training-env.pth"
