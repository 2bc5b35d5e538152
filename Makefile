# Everything that a fresh machine with Go and npm needs is installed by name.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export CGO_ENABLED ?= 0

# Without the paths of this folder in what is compiled, all stages share it, and another clone on this machine does too.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath)

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LINT := $(CURDIR)/bin/tools/golangci-lint
PROMTOOL := $(CURDIR)/bin/tools/promtool
ARGS ?=

# A server far away may fail once.
APT := -q -o Acquire::Retries=5 -o DPkg::Lock::Timeout=600
export npm_config_fetch_retries ?= 5

.PHONY: help
help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: build
build: runtime elements console pkcs11 ## Build bin/tokenkeep with the card fields and the console, and bin/runtime for the code of tenants
	go build -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION)" -o bin/tokenkeep ./cmd/tokenkeep

# The program that loads PKCS#11 modules. It is optional, and the only one that needs a C compiler.
.PHONY: pkcs11
pkcs11:
	@if command -v $$(go env CC) >/dev/null; then \
	  CGO_ENABLED=1 go build -trimpath -buildvcs=false -ldflags "-s -w" -o bin/tokenkeep-pkcs11 ./cmd/tokenkeep-pkcs11; \
	else echo "There is no C compiler, so bin/tokenkeep-pkcs11 is not built: only a key-encryption key in a PKCS#11 token needs it."; fi

# The race detector needs a C compiler, and so does what loads PKCS#11 modules.
.PHONY: compiler
compiler:
	@command -v $$(go env CC) >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get $(APT) update && DEBIAN_FRONTEND=noninteractive apt-get $(APT) install -y --no-install-recommends gcc libc6-dev; \
	  else echo "Install a C compiler (Debian: gcc, libc6-dev): the race detector needs it."; exit 1; fi; }

# A token in software, for the tests of PKCS#11.
.PHONY: softhsm
softhsm: compiler
	@command -v softhsm2-util >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get $(APT) update && DEBIAN_FRONTEND=noninteractive apt-get $(APT) install -y --no-install-recommends softhsm2; \
	  else echo "Install SoftHSM 2 (Debian: softhsm2): the tests use a key in a token with it."; exit 1; fi; }

# Node 16 and the packages for reactor code. Only a change of the lock file needs the network.
.PHONY: runtime
runtime:
	@command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' || { \
	  echo "Install npm with Node.js 18 or newer (Debian: npm): it fetches and bundles what runs reactor code."; exit 1; }
	@node runtime/build.mjs bin/runtime

# The card fields, which the server embeds. Only a change of the lock file needs the network.
.PHONY: elements
elements:
	@command -v npm >/dev/null || { echo "Install npm with Node.js 18 or newer (Debian: npm): it fetches what bundles the card fields."; exit 1; }
	@node web/elements/build.mjs

# The console, which the server embeds. Only a change of the lock file needs the network.
.PHONY: console
console:
	@command -v npm >/dev/null || { echo "Install npm with Node.js 20.19 or newer (Debian: npm): it fetches what builds the console."; exit 1; }
	@if node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)'; then node web/console/build.mjs; \
	else echo "Node.js 20.19 or newer builds the console. This is $$(node --version), so bin/tokenkeep is without it."; fi

.PHONY: runtime-test
runtime-test: runtime ## Run the tests of what reactor code finds, on Node 16 and on your Node
	KEEPTEST_RUNTIME=required KEEPTEST_ROUNDS=few go test ./test/runtime

.PHONY: run
run: build ## Build, then start a server to try things out with (ARGS="--addr 127.0.0.1:0 --data DIR")
	@exec bin/tokenkeep dev $(ARGS)

# What people wait for: 12 minutes on two idle cores, and the aim is 8. CONTRIBUTING.md says what belongs here.
.PHONY: test
test: ## Run the checks that every change passes, and print how long each took
	@test/stages --memory tools build tidy lint spec-lint unit both race fuzz

# What people run before a merge, after 'make test'.
.PHONY: check
check: ## Run the tests in their large size, which takes up to 45 minutes
	@test/stages tools coverage hsm alerts large both-long race-all fuzz-long

# Whatever the other targets install, so that the times of the stages are those of the tests. The linter is compiled while npm
# waits for the network; apt has a lock.
.PHONY: tools
tools: postgres chromium compiler
	@$(MAKE) --no-print-directory -j 4 --output-sync=target $(LINT) runtime elements console packages elements-tools console-tools webhooks compat tsclient pictures apidoc

.PHONY: tidy
tidy: ## Check the format of the code, and the modules
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt would change: $$unformatted"; exit 1; }
	go mod verify
	go mod tidy -diff

# 'go vet' is one of them.
.PHONY: lint
lint: $(LINT) ## Run the linters
	$(LINT) run ./...

$(LINT): tools/go.mod tools/go.sum
	cd tools && go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# The tests run PostgreSQL clusters of their own, from the installed programs.
.PHONY: postgres
postgres:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get $(APT) update && DEBIAN_FRONTEND=noninteractive apt-get $(APT) install -y --no-install-recommends postgresql; \
	  else echo "Install PostgreSQL 14 or newer (Debian: postgresql): the tests start clusters of their own from it."; exit 1; fi; }

# What checks the alerts. It comes in the package of the server of the same name, which is not installed.
.PHONY: promtool
promtool: $(PROMTOOL)

$(PROMTOOL):
	@mkdir -p $(@D) && if command -v promtool >/dev/null; then ln -s "$$(command -v promtool)" $@; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && apt-get $(APT) update && (cd "$$folder" && apt-get $(APT) download prometheus) && \
	  dpkg -x "$$folder"/prometheus_*.deb "$$folder/package" && cp "$$folder/package/usr/bin/promtool" $@; \
	else echo "Install promtool (Debian: prometheus): the alerts are checked with it."; exit 1; fi

# The library with which receivers check callbacks. Only a change of the lock file needs the network.
.PHONY: webhooks
webhooks: test/webhooks/node_modules/.package-lock.json

test/webhooks/node_modules/.package-lock.json: test/webhooks/package-lock.json
	cd test/webhooks && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules/.package-lock.json

# Clients that exist already, to try the server with. Only a change of the lock file needs the network.
.PHONY: compat
compat: test/compat/node_modules/.package-lock.json

test/compat/node_modules/.package-lock.json: test/compat/package-lock.json
	cd test/compat && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules/.package-lock.json

# The tools of the TypeScript client. Only a change of the lock file needs the network.
.PHONY: tsclient
tsclient: client/typescript/node_modules/.package-lock.json

client/typescript/node_modules/.package-lock.json: client/typescript/package-lock.json
	cd client/typescript && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules/.package-lock.json

# What draws the pictures of the pages. Only a change of the lock file needs the network.
.PHONY: pictures
pictures: test/pictures/node_modules/.package-lock.json

test/pictures/node_modules/.package-lock.json: test/pictures/package-lock.json
	cd test/pictures && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules/.package-lock.json

.PHONY: docs
docs: ## Count the blocks of the pages, by what the tests do with them
	@set -o pipefail; go test -count=1 -v -run '^TestEveryBlockOfThePagesIsRunOrSaysNot$$' ./test/readme | sed -n 's/^ *[a-z_]*\.go:[0-9]*: //p'

# The reference UI that the server has embedded, the driver of a browser, and the linter of the description. Only a change of the lock file needs the network.
.PHONY: apidoc
apidoc: test/apidoc/node_modules/.package-lock.json

test/apidoc/node_modules/.package-lock.json: test/apidoc/package-lock.json
	cd test/apidoc && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules/.package-lock.json

# What builds the npm packages of the card fields. Only a change of the lock file needs the network.
.PHONY: packages
packages: web/packages/node_modules/.package-lock.json

web/packages/node_modules/.package-lock.json: web/packages/package-lock.json
	cd web/packages && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules/.package-lock.json

.PHONY: pack
pack: packages ## Pack the npm packages of the card fields into bin/pack
	@node web/packages/pack.mjs bin/pack && ls bin/pack

# What opens the card fields in a browser. Only a change of the lock file needs the network.
.PHONY: elements-tools
elements-tools: test/elements/node_modules/.package-lock.json

test/elements/node_modules/.package-lock.json: test/elements/package-lock.json
	cd test/elements && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules/.package-lock.json

# What opens the console in a browser. Only a change of the lock file needs the network.
.PHONY: console-tools
console-tools: test/console/node_modules/.package-lock.json

test/console/node_modules/.package-lock.json: test/console/package-lock.json
	cd test/console && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules/.package-lock.json

.PHONY: spec-lint
spec-lint: apidoc ## Lint api/openapi.yaml
	cd test/apidoc && node_modules/.bin/spectral lint --quiet --fail-severity hint --ruleset spectral.yaml ../../api/openapi.yaml

# The tests open the API page in a browser of their own.
.PHONY: chromium
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get $(APT) update && DEBIAN_FRONTEND=noninteractive apt-get $(APT) install -y --no-install-recommends chromium; \
	  else echo "Install Chromium (Debian: chromium): the tests open the API page with it."; exit 1; fi; }

# The tests of 'make check' open the card fields in it, too.
.PHONY: firefox
firefox:
	@command -v firefox-esr >/dev/null || command -v firefox >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get $(APT) update && DEBIAN_FRONTEND=noninteractive apt-get $(APT) install -y --no-install-recommends firefox-esr; \
	  else echo "Install Firefox (Debian: firefox-esr): the tests open the card fields with it."; exit 1; fi; }

# Many tests wait for something most of their time, so more packages run at once than there are cores. 'make lint' has vetted
# the tests already. A test has no time limit of its own: only the stage has one. The linker is a quarter faster when it
# collects less garbage.
GOTEST := go test -vet=off -p 6 -toolexec 'env GOGC=400'
REQUIRED := KEEPTEST_POSTGRES=required KEEPTEST_RUNTIME=required KEEPTEST_BROWSER=required KEEPTEST_ELEMENTS=required KEEPTEST_CONSOLE=required
TESTED := runtime elements console packages elements-tools console-tools postgres chromium webhooks compat tsclient pictures apidoc

# The packages that decide who sees what, and those that hold the keys, have no statement that no test of theirs reaches.
COVERED := $(addprefix ./internal/,secret access keyring)

# The two calls of 'go test' run at the same time.
.PHONY: unit
unit: $(TESTED) ## Run every test once, in short form, with the coverage of the critical packages
	@others=$$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -vxF "$$(go list $(COVERED))") || exit 1; \
	{ set -o pipefail; $(REQUIRED) KEEPTEST_ROUNDS=few $(GOTEST) -timeout 20m -cover $(COVERED) | \
	  awk '{print} $$1 != "ok" || $$0 !~ / 100\.0% of statements/ {bad = 1; print "not everything is reached: " $$2} END {exit bad || NR < $(words $(COVERED))}'; } & covered=$$!; \
	$(REQUIRED) KEEPTEST_ROUNDS=few $(GOTEST) -timeout 20m $$others; status=$$?; \
	wait $$covered && exit $$status

# The share of other packages that are worth a look, printed.
.PHONY: coverage
coverage: $(TESTED)
	@$(REQUIRED) KEEPTEST_ROUNDS=few $(GOTEST) -timeout 20m -cover ./internal/directory ./internal/token

# The tests that know no store. Those where the store decides most are in 'make test', the others in 'make check'.
BOTH := ./internal/token ./test/contract ./test/knowledge ./test/parallel ./test/moving
BOTH_LONG := $(BOTH) ./test/clock ./test/matrix ./test/openapi ./test/rotation

.PHONY: both
both: postgres ## Run tests that know no store once more, on PostgreSQL, each request to one of two nodes by chance
	@$(REQUIRED) KEEPTEST_STORE=postgres KEEPTEST_NODES=2 $(GOTEST) -timeout 20m $(BOTH)

.PHONY: both-long
both-long: postgres runtime
	@$(REQUIRED) KEEPTEST_STORE=postgres KEEPTEST_NODES=2 KEEPTEST_ROUNDS=few $(GOTEST) -timeout 60m $(BOTH_LONG)

# The packages that start goroutines or hold locks of their own, and a suite that calls all of them at once; the others run
# under the race detector in 'make check'.
RACED := ./internal/admission         # the memory that all requests share
RACED += ./internal/audit             # refusals are counted by all requests, tenants are signed in parallel
RACED += ./internal/clock             # all requests read it while it is corrected
RACED += ./internal/directory         # the cache of grants
RACED += ./internal/egress            # pools of connections, destinations that do not respond
RACED += ./internal/endpoint          # bodies that arrive while their request ends
RACED += ./internal/expression        # the cache of parsed expressions
RACED += ./internal/httpapi           # limits per caller, draining
RACED += ./internal/idempotency       # requests in flight with the same key
RACED += ./internal/jobs              # handlers, heartbeats, turns of tenants
RACED += ./internal/keyring           # the caches of keys, calls of the KMS that several requests share
RACED += ./internal/keyring/localkms  # the file of keys is read again
RACED += $(addprefix ./internal/keyring/,azurekv gcpkms transit) # clients and leases that several requests share
RACED += ./internal/limit             # what was exceeded lately
RACED += ./internal/processor         # the turns that all requests take
RACED += ./internal/reactor           # workers, jobs, callers that wait for a result
RACED += ./internal/sandbox           # the pool of processes and their connections
RACED += ./internal/server            # background jobs, shutdown, certificates
RACED += ./internal/store/postgres    # transactions that share a commit, cleaning up, closing
RACED += ./internal/store/sqlite      # the writer, checkpoints, backups, closing
RACED += ./test/parallel              # whole servers with many clients

# All but SQLite itself, which is C in origin, locks as that does, and would take most of the time.
RACE := CGO_ENABLED=1 $(GOTEST) -race -gcflags=modernc.org/sqlite/lib=-race=false -short

# Long tables of what a single goroutine does: 'make check' has them under the race detector too. Of the suite of stores,
# transactions, concurrency, random operations and closing remain.
RACE_SKIP := ^TestStandardFiltersAreBounded$$|^TestStepsAreBounded$$|^TestACardNumberSent|^TestAnOlderStoreIsBroughtUpToDate$$
RACE_SKIP := $(RACE_SKIP)|^TestWhatAnOlderServerWritesIsOutdated$$|^TestWhatAnApplicationMayBeMadeFrom$$|^TestAnApplicationChangedByHandOpensNothing$$
RACE_SKIP := $(RACE_SKIP)|^TestSuite$$/^(values|tokens|token_lists|tenants|tenants_are_apart|tenants_that_go|the_installation|sessions|parcels|log|keysets_and_marks|epoch_keys|definitions|applications)$$

.PHONY: race
race: compiler postgres runtime ## Run the packages with concurrency under the race detector, without the long tests
	@$(REQUIRED) $(RACE) -skip '$(RACE_SKIP)' -timeout 20m $(RACED)

.PHONY: race-all
race-all: compiler $(TESTED)
	@$(REQUIRED) KEEPTEST_ROUNDS=few $(RACE) -timeout 60m ./...

# The packages with tests that have a larger size than the one of 'make test'.
.PHONY: large
large: $(TESTED) firefox
	@$(REQUIRED) KEEPTEST_FIREFOX=required KEEPTEST_ROUNDS=all $(GOTEST) -timeout 60m \
	  $$(grep -rlE 'storetest\.(Rounds|All|CheckOnly)\(' --include='*_test.go' cmd client internal test | xargs -n 1 dirname | sort -u | sed 's#^#./#')

# The alerts, as Prometheus evaluates them.
.PHONY: alerts
alerts: $(PROMTOOL)
	@KEEPTEST_PROMTOOL=$(PROMTOOL) $(GOTEST) -run Alerts ./test/operations

.PHONY: hsm
hsm: softhsm
	@KEEPTEST_SOFTHSM=required $(GOTEST) -timeout 20m ./internal/keyring/pkcs11

# Four targets at a time. The corpus and what fuzzing has found are tests of 'make unit'. What is found is kept beside the
# package, in testdata/fuzz, and is a test from then on. The packages of FUZZED guide it, as 'go test -fuzz' would have all of
# them do, which compiles each dependency once more. Go 1.26 may call it a failure that the time is over (go.dev/issue/75804),
# without an input that fails: that is none.
FUZZTIME ?= 5s
FUZZED ?= github.com/tokenkeep/tokenkeep/...
.PHONY: fuzz
fuzz: export BUILT = $(CURDIR)/bin/fuzz
fuzz: export CORPORA = $(shell go env GOCACHE)/fuzz
fuzz: ## Run every fuzz target for FUZZTIME (default 5s)
	@mkdir -p $$BUILT && $(GOTEST) -c $(FUZZED:%='-gcflags=%=-d=libfuzzer') -ldflags '-s -w' -o $$BUILT/ \
	  $$(grep -rlE '^func Fuzz' --include='*_test.go' internal | xargs -n 1 dirname | sort -u | sed 's#^#./#')
	@grep -roE '^func Fuzz[A-Za-z0-9]+' --include='*_test.go' internal | sed -E 's#/[^/]+:func # #' | sort | \
	  xargs -P 4 -L 1 sh -c 'cd $$0 && out=$$($$BUILT/$$(basename $$0).test -test.run "^$$" -test.fuzz "^$$1\$$" -test.fuzztime $(FUZZTIME) -test.fuzzminimizetime 2s \
	    -test.parallel 1 -test.fuzzcachedir $$CORPORA/$$0 2>&1) || \
	    { echo "$$out" | grep -q "context deadline exceeded" && ! echo "$$out" | grep -qE "_test\.go:|Failing input|panic:|hung"; } && \
	    echo "$$0 $$1: $$(echo "$$out" | grep -o "execs: [0-9]*" | tail -1)" || { echo "$$0 $$1"; echo "$$out"; exit 255; }'

# The parsers of others that ours are built on guide it too.
.PHONY: fuzz-long
fuzz-long: FUZZTIME = 20s
fuzz-long:
	@$(MAKE) --no-print-directory fuzz FUZZTIME=$(FUZZTIME) FUZZED='github.com/tokenkeep/tokenkeep/... github.com/go-json-experiment/... go.yaml.in/... golang.org/x/net/... golang.org/x/text/... encoding/... mime/... net/url'

# Up to three hours, so run it detached: setsid nohup make flaky >flaky.out 2>&1 &
.PHONY: flaky
flaky: $(TESTED) ## Run the tests 20 times, shuffled, on 1, 2 and 8 threads, half of them under load; an interrupted call is continued
	@test/stages flaky-runs

.PHONY: flaky-runs
flaky-runs:
	@$(REQUIRED) test/flaky

# An hour and a half on two cores that have nothing else to do, most of it fuzzing: 500 kills under load, 10,000 power cuts,
# 10,000 idle connections, slow clients of slowhttptest's, ten minutes for each fuzz target. What it finds is a bug like any
# other.
.PHONY: soak
soak: build postgres webhooks compat ## Run the tests that kill, cut, crowd and fuzz in their largest size, which takes an hour and a half
	@command -v slowhttptest >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get $(APT) update && DEBIAN_FRONTEND=noninteractive apt-get $(APT) install -y --no-install-recommends slowhttptest; \
	  else echo "Install slowhttptest (Debian: slowhttptest)."; exit 1; fi; }
	ulimit -n $$(ulimit -Hn) && KEEPTEST_POSTGRES=required KEEPTEST_RUNTIME=required KEEPTEST_ROUNDS=soak \
	  go test -count 1 -p 1 -timeout 12h ./internal/store/... ./internal/server ./test/crash ./test/faults ./test/clock ./test/hostile ./test/idempotency ./test/knowledge
	$(MAKE) fuzz-long FUZZTIME=10m

.PHONY: bench
bench: ## Measure, each figure beside its limit in the same run (BENCH_MILLION=1: lists of a million)
	go test -run "^$$" -bench . -benchtime 1x ./internal/store/sqlite ./internal/store/postgres ./internal/server ./internal/sandbox
	go test -run "^$$" -bench . -benchtime 1x -timeout 60m ./test/bench

.PHONY: bench-peers
bench-peers: ## Measure beside other systems, each named by its URL: see docs/benchmarks.md
	go test -run "^$$" -bench "Peers|Proxy" -benchtime 1x -timeout 60m ./test/bench

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin coverage.out client/typescript/dist
	find internal/elements/dist internal/console/dist -type f ! -name README.md -delete
