# Everyday commands. `make up` needs Linux, python3 (3.11 or newer), git and make, and installs all else.
.DEFAULT_GOAL := help
SHELL := /bin/sh
BIN := .venv/bin
STACK ?= local
JOB ?= $(wildcard stacks/$(STACK).job.yaml)
PACKAGES := catalog engine infra local policies rehearsal release.py training/src trainyard benchmarks tests
# Clones share mypy's cache and the tests' results. Python caches bytecode, since hundreds of processes import the same modules.
CACHE = $(or $(TRAINYARD_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/trainyard)
export MYPY_CACHE_DIR ?= $(CACHE)/mypy
unexport PYTHONDONTWRITEBYTECODE
COMPILE := $(BIN)/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header \
	$(if $(UPGRADE),--upgrade)

# A tier of tests is a marker (pyproject.toml) with its target's name; its groups and budget: tests/groups.yaml, budgets.yaml.
# SAMPLE=1 also runs some tests of a tier that has passed before with the same content.
TIER = $(BIN)/python -m tests.proof $@ $(if $(SAMPLE),sample)

# Looks for what macOS lacks, in a sixth of the time of all types: packages are not read, so the codes that need theirs are off.
ON_MAC = env MYPYPATH=training/src $(BIN)/mypy --platform darwin --config-file= --python-version 3.11 --cache-dir $(MYPY_CACHE_DIR)/darwin \
	--follow-imports skip --ignore-missing-imports --disable-error-code call-arg --disable-error-code var-annotated \
	--exclude infra/platform/programs/ --no-error-summary

# Fails where a system has no wheel, with its hash in the lock, of a package. Arguments: the system, options of uv.
WHEELS = env MACOSX_DEPLOYMENT_TARGET=14.0 $(BIN)/uv pip install --dry-run --quiet --require-hashes --only-binary :all: \
	--python-version 3.11 --target .trainyard/wheels --python-platform
OF_HOST := -r pyproject.toml -c requirements/host.txt

# Installs packages in a separate folder, which tests append to sys.path. Arguments: the folder, options of uv.
define aside
test .trainyard/$(1)/.done -nt requirements/$(if $(filter peers,$(1)),peers,host).txt || { rm -rf .trainyard/$(1) && \
	$(BIN)/uv pip install --quiet --require-hashes --target .trainyard/$(1) $(2) && touch .trainyard/$(1)/.done; }
endef
KINDS = $(patsubst infra/targets/%/target.py,%,$(wildcard infra/targets/*/target.py))
# Options that leave packages of the training environment out of a lock. Argument: their names, a regular expression.
but_training = $$(grep -oE '^($(1))==' requirements/training.txt | tr -d = | sed 's/^/--no-emit-package /')

.PHONY: help up down status doctor release test sum unit clouds training e2e beside cluster engine ranks nfs soak bench peers guides clis mkdocs docs check format lock clean venv venv-dev prepared

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

test: prepared clis mkdocs nfs peers ## All checks and tests that must pass for every change (COLD=1: forget what has passed)
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

# The cluster waits most, and has a higher priority. Tiers of BESIDE run one after another, so that the long ones begin at once.
e2e: prepared guides ## The end-to-end tests, their three parts in parallel
	@$(MAKE) --no-print-directory --output-sync --jobs=4 BEHIND=tests/behind.sh cluster engine ranks $(if $(BESIDE),beside)

beside:
	@code=0; for tier in $(BESIDE); do $(MAKE) --no-print-directory $$tier || code=1; done; exit $$code

cluster: peers ## The tests on a real cluster (root)
	@$(TIER)

engine: prepared clis mkdocs ## The tests on the real engine: guides, rehearsals, templates, policies
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

mkdocs: venv
	@$(call aside,docs,--group docs -c requirements/host.txt)

docs: mkdocs ## Write the guides as a site that opens from disk, dist/site/index.html
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=.trainyard/docs $(BIN)/python -m mkdocs build --quiet

bench: peers ## Measure, and print ratios
	@$(BIN)/python -m benchmarks

release: $(if $(VERSION),prepared,venv-dev) ## Write this commit's release to dist/ (VERSION=X.Y.Z: first prepare that commit)
	@$(BIN)/python -m $(if $(VERSION),tests.e2e.release $(VERSION),release)

check: prepared ## Lint, types, imports, Dockerfiles, shell programs
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BEHIND) $(BIN)/mypy $(PACKAGES)
	@$(BEHIND) $(ON_MAC) $(filter-out benchmarks tests,$(PACKAGES))
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.arrows
	@$(BIN)/hadolint training/images/*/Dockerfile
	@$(BIN)/shellcheck --severity=warning $$(git ls-files '*.sh')

format: venv-dev ## Format the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

lock: $(BIN)/uv ## Lock the Python packages (UPGRADE=1: to their newest versions)
	@$(COMPILE) pyproject.toml --extra dev --group build --group go --group clis --group docs \
		--annotation-style line -o requirements/host.txt
	@$(COMPILE) --group plugin --no-annotate -c requirements/host.txt -o requirements/plugin.txt
	@$(COMPILE) training/pyproject.toml --extra jobs --no-annotate -o requirements/training.txt
	@$(COMPILE) training/pyproject.toml --extra jobs --no-annotate -c requirements/training.txt -o requirements/training-rocm.txt \
		$(call but_training,torch|triton|cuda-[a-z-]+|nvidia-[a-z0-9-]+)
	@$(COMPILE) training/pyproject.toml --extra jobs --extra tracking --group pyproject.toml:peers \
		--annotation-style line \
		-c requirements/training.txt -o requirements/peers.txt $(call but_training,[a-z0-9._-]+)
	@for on in aarch64-apple-darwin aarch64-unknown-linux-gnu x86_64-unknown-linux-gnu; do \
		$(WHEELS) $$on $(OF_HOST) $(foreach kind,$(filter-out onprem,$(KINDS)),--extra $(kind)) || exit; \
		$(WHEELS) $$on -r requirements/plugin.txt && $(WHEELS) $$on -r requirements/training.txt || exit; \
	done
	@$(WHEELS) x86_64-apple-darwin $(OF_HOST) # a member's commands

clean: ## Delete what was built in this folder; the cache and the clusters remain
	rm -rf .venv .trainyard build dist *.egg-info policies/build policies/*.egg-info training/build training/src/*.egg-info
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
	@$(BIN)/trainyard local prepare --package
	@echo "$(CURDIR)/.trainyard/training-env" > "$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')/training-env.pth"
