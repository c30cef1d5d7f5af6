# Millrace. `make help` lists the targets.

GO      ?= go
PKG     ?= ./...
ROUNDS  ?= 5
# The commit that stands for the previous release.
PREVIOUS ?= 82bd95f
FUZZTIME ?= 10s
BENCH   ?= .
COUNT   ?= 1
ARGS    ?=
# Most tests wait most of the time, for disks, leases and elections: more packages, and of
# each more tests, run at once than a small machine has processors. Of a package those that
# keep it busy by themselves (models, clients that write as fast as they can) run alone.
PACKAGES ?= 3
PARALLEL ?= 4

tool    := $(GO) tool -modfile=tools.mod
version := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

# The race detector needs a C compiler.
compiler := $(shell command -v gcc || command -v clang || command -v cc)
race     := $(if $(compiler),-race,)

.PHONY: help demo build test test-binary test-packages test-sim test-rounds test-duckdb test-anchors test-s3 test-sdk test-browser check lint fuzz vuln bench soak chaos kills model random sim sdk spark upgrade release deploys

## help: list the targets
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST) | awk -F': ' '{printf "  make %-8s %s\n", $$1, $$2}'

## demo: load a shop, rename things while orders are written, verify every copy (under a minute)
demo:
	@$(GO) run ./cmd/millrace demo $(ARGS)

## build: bin/millrace, the one binary
build:
	$(GO) build -trimpath -ldflags "-X main.version=$(version)" -o bin/millrace ./cmd/millrace

## release: archives for four platforms, bills of materials and checksums (VERSION=v1.2.3): bin/release
release:
	@[ -n "$(VERSION)" ] || { echo "which version? make release VERSION=v1.2.3"; exit 1; }
	cd deploy/release && $(GO) run . -version $(VERSION)

# Beside the packages of this module run, one after the other, those of modules of their own and
# more seeds of the simulation and more rounds of tests that keep a processor busy, which the race
# detector makes slow. What starts processes takes the binary that is built first.
busy   := ./integration/bench ./leases ./processors/project/parquetsink ./store/engine
rounds := $(if $(filter ./...,$(PKG)),$(busy),$(filter $(busy),$(PKG)))
beside := $(if $(race),$(if $(filter ./... ./integration/sim,$(PKG)),sim) $(if $(rounds),rounds))
ifeq ($(PKG),./...)
beside += $(if $(race),duckdb anchors) s3 sdk browser
endif
# Tests sync small files without end, of which a disk that others keep busy makes each wait; they kill
# processes and no machine. So their files are in memory, where 8 GiB can be spared and programs there
# can be started, unless TMPDIR says otherwise.
memory := /dev/shm
spare  := awk '/^MemAvailable/ {exit $$2 < 12*1024*1024}' /proc/meminfo && df -Pk $(memory) | awk 'NR == 2 {exit $$4 < 8*1024*1024}' && \
	f=$$(mktemp $(memory)/millrace.XXXXXX) && cp /bin/true $$f && chmod +x $$f && $$f; s=$$?; rm -f $$f; [ $$s -eq 0 ] && echo yes
ifneq ($(filter check test test-%,$(MAKECMDGOALS)),)
ifeq ($(TMPDIR)$(shell { $(spare); } 2>/dev/null),yes)
export TMPDIR := $(memory)
export GOTMPDIR ?= /tmp
endif
endif
ifeq ($(PKG)$(MILLRACE_TEST_BINARY),./...)
test: export MILLRACE_TEST_BINARY := $(CURDIR)/bin/test/millrace
test: test-binary
endif

# `make lint` runs vet, over everything of this module.
## test: every test but those of the SDK for Rust (make sdk), shuffled, with the race detector where a C compiler is found
test:
	@echo "testing $(if $(race),with the race detector ($(compiler)),without the race detector: no C compiler found (install gcc for it))"
	@$(MAKE) --no-print-directory --keep-going --jobs=2 test-packages $(addprefix test-,$(beside))

test-binary:
	$(GO) build -o $(MILLRACE_TEST_BINARY) ./cmd/millrace

test-packages:
	CGO_ENABLED=$(if $(race),1,0) $(if $(race),GORACE=atexit_sleep_ms=100) $(GO) test $(race) -shuffle=on -count=$(COUNT) -vet=off -p $(PACKAGES) -parallel $(PARALLEL) -timeout 60m $(PKG)

test-sim:
	$(GO) test -count=$(COUNT) -vet=off -timeout 60m ./integration/sim

test-rounds:
	$(GO) test -count=$(COUNT) -vet=off -timeout 60m -p 1 \
		-run '^(TestSmall.*|TestRandomFaults|TestCrash_AtEveryStep|TestModel|TestEveryMergeHandsOverWhatItPutTogether)$$' $(rounds)

test-duckdb test-anchors test-s3 test-sdk test-browser: test-%:
	cd $(wildcard integration/$* integration/bench/$*) && $(if $(filter duckdb anchors,$*),CGO_ENABLED=1 )$(GO) test $(if $(filter sdk,$*),-short )-count=$(COUNT) -timeout 60m ./...

## check: what must pass before a commit: lint, tests, each fuzz target and benchmark briefly
check: lint test fuzz vuln
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 30m $(PKG)

# golangci-lint runs vet and staticcheck: by themselves they load and judge everything once more each.
## lint: gofumpt and golangci-lint, as pinned in tools.mod
lint:
	@unformatted=$$($(tool) gofumpt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted; run: $(tool) gofumpt -w ."; echo "$$unformatted"; exit 1; fi
	GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./store/internal/mapguard
	$(tool) golangci-lint run ./...

## fuzz: every fuzz target for FUZZTIME (default 10s)
fuzz:
	@for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "fuzz $$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

## vuln: known vulnerabilities of what the binary links, where govulncheck is installed
vuln:
	@if command -v govulncheck >/dev/null; then govulncheck ./...; \
	else echo "govulncheck is not installed: skipped (go install golang.org/x/vuln/cmd/govulncheck@latest)"; fi

## bench: all benchmarks, or those that BENCH matches; COUNT=10 for benchstat
bench:
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count=$(COUNT) -timeout 0 $(PKG)

## model: the models of docs/model and their mutations, by TLC (ARGS=-large, ARGS=-trace: see there)
model:
	$(GO) test ./docs/model -count=1 -timeout 0 -v -parallel 2 -run TestModels -args -tlc $(ARGS)

## random: 100,000 random operations over cascades, and over every kind of copy, from SEED on (default 1)
random:
	$(GO) test ./integration -count=1 -timeout 0 -v -parallel 1 -run 'EveryKind_Model|I6_Model' -args -long -everykind.seed=$(or $(SEED),1) -model.seed=$(or $(SEED),1)

## sim: SEEDS runs (default 1000) of the real roles in a simulated world, from SEED on (default 1), a fifth as many with pipelines, a fifth with silences, a fifth with standbys that lag (ARGS=-race)
sim:
	$(GO) test ./integration/sim $(ARGS) -count=1 -timeout 0 -v -run 'TestSimulation|TestPipelines|TestSilences|TestStandbys' -args -sim.seeds=$(or $(SEEDS),1000) -sim.pipelines=$$(($(or $(SEEDS),1000) / 5)) -sim.silences=$$(($(or $(SEEDS),1000) / 5)) -sim.standbys=$$(($(or $(SEEDS),1000) / 5)) -sim.first=$(or $(SEED),1)

## soak: an hour of writes at 2,000/s under the WebStore's pipelines; memory stays flat (SOAK=10m for less)
soak:
	$(GO) test ./integration -count=1 -timeout 0 -v -run 'Soak' -args -soak=$(or $(SOAK),1h)

## sdk: the tests of the SDKs, with those of the SDK for Rust, which make test leaves out: cargo compiles for minutes at the first time
sdk:
	cd integration/sdk && $(GO) test -count=1 -timeout 60m -v ./...

## spark: the tables of projections are read by Spark with Delta Lake, from PyPI and Maven (some 450 MB; Java 17 or newer)
spark:
	@dir=$$(mktemp -d) && trap "rm -rf $$dir" EXIT && python3 -m venv $$dir && $$dir/bin/pip install -q pyspark==4.0.1 && \
	DELTA_SPARK=$$dir/bin/python $(GO) test ./integration/delta -count=1 -timeout 60m -v -run '^TestDelta_'

## upgrade: go from the previous release to this one and back on one directory
upgrade:
	@dir=$$(mktemp -d) && trap "rm -rf $$dir" EXIT && git archive $(PREVIOUS) | tar -x -C $$dir && \
	(cd $$dir && $(GO) build -o millrace ./cmd/millrace) && \
	MILLRACE_EARLIER_BINARY=$$dir/millrace $(GO) test ./integration -count=1 -v -run 'TestUpgrade'

## deploys: the image's root is made and run, systemd judges the unit, the cluster's configuration starts, a release is made, the chart's pods run, a collector runs the sample
deploys:
	$(GO) test ./integration -count=1 -timeout 10m -v -run 'TestDeploy' -args -long
	cd deploy/release && $(GO) test -count=1 -timeout 20m -v ./...
	cd integration/helm && $(GO) test -count=1 -timeout 20m -v ./...
	cd integration/collector && $(GO) test -count=1 -timeout 20m -v ./...

## chaos: kill -9 under load, ROUNDS times (default 5), and CHAOS (default 10m) of faults of the hosts of a cluster, from SEED (drawn if not given), where network namespaces can be made (as root)
chaos:
	$(GO) test ./integration -count=1 -timeout 0 -v -run 'Chaos' -args -rounds=$(ROUNDS) -chaos.time=$(or $(CHAOS),10m) -chaos.seed=$(or $(SEED),0)
	$(GO) test ./integration/bench -count=1 -timeout 0 -v -run 'TestSmall(Rolling|Cut)' -args -long

## kills: kill -9 at every step of writing, snapshots, trims, walks, starts, backups and restores, and while files are merged, ROUNDS rounds (ARGS=-steps.all: a restore at each of its calls)
kills:
	$(GO) test ./integration -count=1 -timeout 0 -v -run 'Kill_AtEveryStep|Kill_MidCompaction' -args -long -steps.rounds=$(ROUNDS) -kills.rounds=$(ROUNDS) $(ARGS)
