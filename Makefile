# Each target sets up what it needs in a virtual environment of this checkout.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests run in one process more than there are processors, for many of them wait: make WORKERS=2 test. Beyond eight the longest group of
# tests is all that is left.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(min(8, (os.cpu_count() or 1) + 1))")
PARALLEL := -n $(WORKERS) --maxprocesses 8 --dist loadgroup

INSTALL := install --quiet --disable-pip-version-check
LOCKED := $(INSTALL) --require-hashes
COMPILE := build/tools/bin/uv pip compile --quiet --universal --generate-hashes --upgrade --no-config --custom-compile-command 'make lock'

# Versions of Spark that make test-long tries besides the one that is locked, each in an environment below build/. What they take of other
# packages is what was there in their days: 3.5 knows no NumPy 2, which newer Arrow wants, and no Python 3.12.
SPARK_VERSIONS ?= $(shell $(PYTHON) -c "import sys; print('3.5' * (sys.version_info < (3, 12)))") 4.0
SPARK_READY = $(SPARK_VERSIONS:%=build/spark-%/.ready)
SPARK_NEEDS_3.5 := 'numpy<2' 'pyarrow<20'
# What does not depend on the data source, whose programming interface is newer.
SPARK_TESTS := test_dispatch test_dispatch_errors test_timestamps test_notify test_executors_local test_executors test_sessions

.PHONY: demo docs docs-links simulate test check types collection unit test-long test-spark-versions test-network test-prometheus test-browser test-web test-nats nats-packages test-pythons release-check format reference bench bench-federation bench-web bench-nats bench-spark bench-streams evidence-spark evidence-streams soak soak-streams schedules fuzz fuzz-properties mutants mutants-streams lock audit clean help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

# What is installed is what the locks name, with their hashes; only the project itself, built with what is locked, has none.
$(READY): pyproject.toml locks/build.lock locks/dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Iris needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python3 -m venv failed: install your system's python3-venv package"; exit 1; }
	@echo "setting up $(VENV)"
	@$(BIN)/python -m pip $(LOCKED) -r locks/build.lock
	@$(BIN)/python -m pip $(LOCKED) --no-build-isolation -r locks/dev.lock
	@$(BIN)/python -m pip $(INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

build/tools/.ready: locks/tools.lock
	@echo "setting up build/tools"
	@mkdir -p build
	@test -x build/tools/bin/python || $(PYTHON) -m venv build/tools
	@build/tools/bin/python -m pip $(LOCKED) --only-binary :all: -r locks/tools.lock
	@touch $@

demo: $(READY) ## the main job: a cluster counts a source tree while members are killed, for a process, for another cloud and for Spark
	@$(BIN)/iris demo
	@$(BIN)/iris demo --federation
	@$(BIN)/iris demo --spark

simulate: $(READY) ## networks of up to 10,000 nodes under a virtual clock, with everything checked; figures and plots in build/simulation
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[plots]'
	@mkdir -p build/simulation
	@$(BIN)/iris simulate --suite $(or $(SUITE),standard) --json --output build/simulation/report.json --plots build/simulation

test: check unit ## everything that has to hold

check: $(READY) ## format, lint with the import layers, strict types; the programs of the documents, by mypy and pyright
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=line types collection

# Only as parts of `make check`, side by side: each keeps one processor busy.
types: $(READY)
	$(BIN)/mypy
	$(BIN)/mypy tests examples benchmarks docs
	$(BIN)/python -m tests.typed_programs

# Writes the bytecode of all tests, too, so that the processes of `make unit` do not each compile all of them.
collection: $(READY)
	@mkdir -p build
	$(BIN)/pytest --collect-only -q > build/collection.txt || { tail -n 60 build/collection.txt; exit 1; }

unit: $(READY) ## all tests that need no root
	$(BIN)/pytest $(PARALLEL)

# Anew each time: what was read before gives no warnings again.
SPHINX = $(BIN)/sphinx-build -E -a -q -j auto -W -n --keep-going

docs: $(READY) ## these pages as a site in build/docs: links and anchors inside, references and toctrees checked; search needs no server
	@$(SPHINX) -b html docs build/docs
	@echo "open build/docs/index.html"

docs-links: $(READY) ## whether the links of the pages to elsewhere lead there; needs the internet
	@$(SPHINX) -b linkcheck docs build/docs-links

test-long: $(READY) ## the long tests: Spark standalone and under Connect, other versions of Spark, more faults, seeds and processes (tests/long.txt)
	-@$(BIN)/python -m tests.spark.java # an archive of Spark's classes saves time, and nothing depends on it
	$(BIN)/pytest $(PARALLEL) -m long
	$(BIN)/pytest $(PARALLEL) -m hypothesis --hypothesis-profile=thorough
	@$(MAKE) --no-print-directory test-spark-versions

build/spark-%/.ready: pyproject.toml
	@echo "setting up build/spark-$*"
	@mkdir -p build
	@test -x build/spark-$*/bin/python || $(PYTHON) -m venv build/spark-$*
	@build/spark-$*/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[spark]' 'pyspark[sql]==$*.*' $(SPARK_NEEDS_$*) \
		hypothesis 'pytest>=8,<9.2' pytest-timeout pytest-xdist
	@touch $@

test-spark-versions: $(SPARK_READY) ## the Spark connector with Spark 3.5 and 4.0: SPARK_VERSIONS=3.5 for one, SPARK_VERSIONS=4 for the newest
	@for version in $(SPARK_VERSIONS); do \
		build/spark-$$version/bin/python -c 'import pyspark; print("Spark", pyspark.__version__)' && \
		build/spark-$$version/bin/python -m pytest -p no:cacheprovider -W default $(SPARK_TESTS:%=tests/spark/%.py) tests/unit/spark_connector/local || exit 1; \
	done

test-network: $(READY) ## sites and clouds of network namespaces with long and lossy lines: partitions, cuts, firewalls (needs root)
	@test "$$(id -u)" = 0 || { echo "make test-network needs root, for it makes network namespaces of its own: run sudo make test-network"; exit 1; }
	@PATH="$$PATH:/usr/sbin:/sbin"; { command -v ip && command -v nft; } >/dev/null || { echo "make test-network needs ip and nft: install the Debian packages iproute2 and nftables"; exit 1; }
	$(BIN)/python -m pytest tests/network

# The package is unpacked and not installed, so no root is needed, and no daemon is started.
build/prometheus/usr/bin/promtool:
	@command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "make test-prometheus takes Prometheus from Debian's packages: run it on Debian or a system made from it"; exit 1; }
	@mkdir -p build/prometheus
	@cd build/prometheus && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; }
	@dpkg-deb -x build/prometheus/prometheus_*.deb build/prometheus

test-prometheus: $(READY) build/prometheus/usr/bin/promtool ## a real Prometheus scrapes a node, and judges the metrics, the alerts and the dashboard of examples/monitoring
	@PATH="$(CURDIR)/build/prometheus/usr/bin:$$PATH" $(BIN)/python -m pytest tests/prometheus

CHROMIUM ?= /usr/bin/chromium
test-browser: $(READY) ## the dashboard of the web door in Chromium; pictures of all pages in build/screenshots
	@test -x $(CHROMIUM) || { echo "make test-browser needs Chromium: install Debian's package chromium, or name it: CHROMIUM=/path"; exit 1; }
	@$(BIN)/python -m pip $(INSTALL) --editable '.[browser]'
	CHROMIUM=$(CHROMIUM) $(BIN)/python -m pytest tests/browser

test-web: $(READY) ## all that the description of the web door allows, asked of a running door by Schemathesis: EXAMPLES=1000 for more
	@$(BIN)/python -m pip $(INSTALL) --editable '.[interface]'
	$(if $(EXAMPLES),EXAMPLES=$(EXAMPLES)) $(BIN)/python -m pytest tests/web

# nats-server and nats-py, for the tests and the benchmark.
nats-packages: $(READY)
	@$(BIN)/python -m pip $(INSTALL) --editable '.[nats]'

# A checkout of nats-py has files that its tests need and its package lacks. Without it, and without a client in some language, the
# rest runs, and the first lines say what is left out.
test-nats: nats-packages ## a door in place of nats-server: byte by byte, by clients in C, Go and JavaScript, and by the tests of nats-py: NATS_PY=/checkout
	@command -v npm >/dev/null && npm install --silent --no-audit --no-fund --prefix build/nats/clients @nats-io/transport-node@3 || true
	$(if $(NATS_PY),NATS_PY="$(abspath $(NATS_PY))") $(BIN)/python -m pytest tests/nats

format: $(READY) ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What the options of `python -m benchmarks.peers` are called here.
BENCH_OPTIONS = $(if $(QUICK),--scale quick --rounds 1) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS),--seconds $(SECONDS)) \
	$(if $(MESSAGES),--messages $(MESSAGES)) $(if $(PEERS),--peers '$(PEERS)') $(if $(WORKLOADS),--workloads '$(WORKLOADS)') \
	$(if $(DOCS),--docs docs)

reference: $(READY) ## what the documentation says of the code, anew: commands, their schemas, settings, errors, figures, pictures
	$(BIN)/python -m tests.cli_reference
	$(BIN)/python docs/generate.py
	@set -e; for script in $$(grep -l ^TARGET docs/pictures/*.py); do echo $$script; $(BIN)/python $$script; done

bench: $(READY) ## Iris beside pyzmq, zenoh, NNG, NATS, Redis, gRPC and raw TCP, half an hour: QUICK=1 PEERS= WORKLOADS= ROUNDS= SECONDS= MESSAGES= DOCS=1
	@$(BIN)/python -m pip $(INSTALL) --editable '.[bench,plots]' || echo "not all peers could be installed: the tables say which are missing"
	@$(BIN)/python -m benchmarks.peers $(BENCH_OPTIONS) --json build/bench/peers.json

bench-federation: $(READY) ## two clouds joined by gateways, beside one cloud and beside joined NATS servers; as root over 80 ms, too: QUICK=1 ROUNDS= DOCS=1
	@$(BIN)/python -m pip $(INSTALL) --editable '.[bench]' || echo "not all peers could be installed: the tables say which are missing"
	$(BIN)/python -m benchmarks.federation $(if $(QUICK),--quick --runs 1) $(if $(ROUNDS),--runs $(ROUNDS)) $(if $(DOCS),--docs docs/benchmarks.md) --json build/bench/federation.json

bench-web: $(READY) ## the web door beside a bare loop of Starlette and uvicorn, and beside python-socketio: QUICK=1 ROUNDS= WHAT='fanout requests held slow resume viewers'
	@$(BIN)/python -m pip $(INSTALL) --editable '.[bench,web]' || echo "not all peers could be installed: the tables say which are missing"
	$(BIN)/python -m benchmarks.web $(WHAT) $(if $(QUICK),--quick --runs 1) $(if $(ROUNDS),--runs $(ROUNDS)) --json build/bench/web.json

bench-nats: nats-packages ## one NATS door, and two of a network, beside nats-server: processor time of the servers: QUICK=1 ROUNDS= WORKLOADS='small requests'
	$(BIN)/python -m benchmarks.nats $(if $(QUICK),--quick --rounds 1) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(WORKLOADS),--workloads '$(WORKLOADS)') --json build/bench/nats.json

bench-spark: $(READY) ## what Spark jobs carry through clusters and topics, beside Spark alone, HTTP, and a connection per row; how fast executors answer
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m benchmarks.spark dispatch
	$(BIN)/python -m benchmarks.spark topics
	$(BIN)/python -m benchmarks.spark executors

evidence-spark: $(READY) ## a Spark job of 100,000 rows whose tasks, member and executor are killed: each row is executed once
	$(BIN)/python -m benchmarks.spark evidence

bench-streams: $(READY) ## streams of one process beside pwrite + fdatasync, and beside Redis that syncs always: QUICK=1 ROUNDS=
	@$(BIN)/python -m pip $(INSTALL) --editable '.[bench]' || echo "not all peers could be installed: the tables say which are missing"
	@$(BIN)/python -m benchmarks streams --embedded $(if $(QUICK),--quick --runs 1) $(if $(ROUNDS),--runs $(ROUNDS))

evidence-streams: $(READY) ## a process that appends is killed a thousand times, on a disk that loses unsynced writes: nothing acknowledged is lost: KILLS=100 for fewer
	IRIS_KILLS=$(or $(KILLS),1000) $(BIN)/pytest -s -o faulthandler_timeout=0 -m long tests/integration/test_stream_kills.py

# The tests of random schedules of subscriptions, with more seeds than `make test-long` has.
SCHEDULES = $(or $(SEEDS),1000)
schedules: $(READY) ## a thousand random schedules of subscriptions, of groups, of NATS doors, and of tables that are split: SEEDS=100 for fewer
	IRIS_SEEDS=$(SCHEDULES) $(BIN)/pytest $(PARALLEL) -m 'long or not long' \
		tests/sim/test_subscribe_schedules.py::test_nothing_is_missed_after_subscribe_returned_whoever_comes_and_goes \
		tests/sim/test_splits.py::test_nothing_is_missed_in_random_schedules \
		tests/sim/test_nats_doors.py::test_messages_come_once_and_in_order_whatever_happens_to_doors \
		tests/sim/test_shared.py::test_whatever_happens_each_group_gets_each_message_at_most_once_and_everything_after_it \
		tests/sim/test_counted.py::test_what_a_reader_missed_is_exact_over_restarts_losses_cuts_and_rotations

soak: $(READY) ## networks of fifty simulated nodes through hundreds of schedules of faults
	$(BIN)/python -m iris_py.testing.soak

soak-streams: $(READY) ## thousands of schedules of faults for replicated streams and their catalog: crashes at each write, damaged disks, changes of members: STREAM_SCHEDULES=100 for fewer
	$(BIN)/python -m iris_py.testing.stream_soak --schedules $(or $(STREAM_SCHEDULES),2000)
	$(BIN)/python -m iris_py.testing.stream_soak --all --schedules $(or $(STREAM_SCHEDULES),1000)
	$(BIN)/python -m iris_py.testing.stream_soak --catalog --schedules $(or $(STREAM_SCHEDULES),1000)

mutants-streams: $(READY) ## whether directed schedules, and those of soak-streams, find defects of replication: SCHEDULES_MAX=3000 for each
	$(BIN)/python -m tests.stream_mutants $(if $(SCHEDULES_MAX),--schedules $(SCHEDULES_MAX))
	$(BIN)/python -m tests.stream_mutants.catalog $(if $(SCHEDULES_MAX),--schedules $(SCHEDULES_MAX))

fuzz: $(READY) ## bytes of strangers and messages of insiders against every decoder and state machine, by coverage: RUNS=1000000 for hours
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	@$(BIN)/python -m tests.fuzz $(if $(RUNS),--runs $(RUNS)) $(TARGETS)

fuzz-properties: $(READY) ## the properties with twenty times as many examples as in make test-long, and other ones each time
	$(BIN)/pytest $(PARALLEL) -m hypothesis --hypothesis-profile=random --timeout 3600 -o faulthandler_timeout=0

mutants: $(READY) ## how many small defects the tests notice: SAMPLE=150 of them, chosen by SEED=1; about an hour on two cores; MATRIX=FILE: all tests that notice each
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[mutants]'
	$(BIN)/python -m tests.mutation $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED)) $(if $(MATRIX),--matrix $(MATRIX))

lock: build/tools/.ready ## make locks/ anew from pyproject.toml: the newest versions of all packages, for all systems and Pythons, with their hashes
	@$(COMPILE) --group pyproject.toml:tools --output-file locks/tools.lock
	@$(COMPILE) --group pyproject.toml:build --output-file locks/build.lock
	@$(COMPILE) pyproject.toml --extra dev --constraints locks/build.lock --output-file locks/dev.lock

# Interpreters that make test-pythons looks for: by name, and where pyenv keeps them.
PYTHONS ?= 3.12 3.13 3.14
PYTHON_TESTS := tests/unit/iris_py/api tests/unit/iris_py/sync tests/unit/iris_py/patterns tests/unit/iris_py/store tests/unit/security \
	tests/integration/test_local.py tests/integration/test_stream_kills.py tests/integration/test_sync_processes.py \
	tests/integration/test_unclosed.py

test-pythons: ## the tests of the API and of real nodes on the other Pythons that are here: PYTHONS=3.13 for one
	@for version in $(PYTHONS); do \
		python=$$(ls -d $$HOME/.pyenv/versions/$$version*/bin/python 2>/dev/null | tail -1); \
		python=$${python:-$$(command -v python$$version)}; \
		if [ -z "$$python" ]; then echo "Python $$version is not here, and not tested"; continue; fi; \
		home=build/python-$$version; mkdir -p build; \
		test -x $$home/bin/python || $$python -m venv $$home || exit 1; \
		$$home/bin/python -m pip $(INSTALL) --editable '.[metrics,otel]' hypothesis noiseprotocol opentelemetry-sdk pydantic 'pytest>=8,<9.2' pytest-timeout pytest-xdist || exit 1; \
		$$home/bin/python -VV; \
		$$home/bin/python -m pytest -p no:cacheprovider -q $(PARALLEL) $(PYTHON_TESTS) || exit 1; \
	done

release-check: $(READY) ## what can be checked of a release: two equal builds, metadata, contents, a clean installation, licences, changes of the interface
	@$(BIN)/python -m pip $(INSTALL) --editable '.[all,release]'
	@$(BIN)/python -m tests.release
	@$(MAKE) --no-print-directory audit

audit: $(READY) build/tools/.ready ## known vulnerabilities of all packages that the locks name; says so where the database cannot be reached
	@$(BIN)/python -m tests.audit build/tools/bin/pip-audit build/audit locks/*.lock

clean: ## remove the virtual environment and all caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info build dist
