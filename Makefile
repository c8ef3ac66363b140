# Narrows: `make demo` shows it at work, `make test` proves it. Both install what is missing.

SHELL := /bin/bash
.DEFAULT_GOAL := help

NARROWS := target/release/narrows
# What a fresh Debian needs beside Rust: a compiler for BPF and the libraries that the BPF
# loader is linked with, and the tools with which the testbed builds networks and traffic.
PACKAGES := clang llvm libelf-dev zlib1g-dev linux-libc-dev pkg-config make gcc g++ \
            iproute2 ethtool iperf3 iputils-ping tcpdump valgrind python3-minimal jq bird2 nftables iptables \
            nginx wrk containernetworking-plugins nats-server freeradius-utils kea-dhcp4-server
# DPDK's scheduler, beside which `bench cake` and `bench tree` measure: a shared library, no drivers.
PEERS := librte-sched23
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
CARGO := $(shell command -v cargo || echo $$HOME/.cargo/bin/cargo)
# Another CPU architecture than this machine's: ARCH=arm64. dist/cross says with which compilers.
CROSS := $(if $(ARCH),dist/cross $(ARCH))
# ARM boxes are small. For other small boxes: PROFILE=small.
PROFILE ?= $(if $(filter arm64,$(ARCH)),small,release)

.PHONY: help demo demo-latency demo-tree demo-flood demo-router demo-balance demo-host demo-fleet test crate-tests end-to-end end-to-end-counts end-to-end-measures test-vm test-vm-short test-vm-cake test-vm-arm64 test-arm64 tested programs deps build check format loom instructions reproduction reproduction-check chaos chaos-short fuzz fuzz-short fuzz-kept explore explore-short explore-properties explore-machine package-compiles bench-forward bench-cake bench-tree bench-wheels bench-pacing bench-tree-real tc-testing tools api-check unit book pictures page page-check page-tests page-tools deb tarball sbom deny test-deb page-traffic page-cost

help:
	@echo "make demo           build, and shape real traffic between network namespaces (root)"
	@echo "make demo-latency   what cake does to delay under load, beside tbf and beside nothing (root)"
	@echo "make demo-tree      a tree of classes as they wake, leave and borrow, on four queues (root)"
	@echo "make demo-flood     what a flood leaves of a server's transactions, with and without filters (root)"
	@echo "make demo-router    a routing daemon moves a flow when a link fails, and cake keeps the delay low where it goes (root)"
	@echo "make demo-balance   web servers drain, die and come back behind the balancer, under requests, a flood and an upgrade (root)"
	@echo "make demo-host      a box's own traffic under the host plane and under the kernel's shapers (root)"
	@echo "make demo-fleet     four boxes keep one limit together, while load moves, a box dies and a wire is cut (root)"
	@echo "make test           all tests: unit, property, loom, instruction counts, figures, end to end (root)"
	@echo "make test-vm        other kernels and real drivers, under qemu: CELLS='7.x-igb 6.1' for some (root to install it)"
	@echo "make test-vm-cake   of these only Linux's cake and cake_mq beside ours, on the same traffic"
	@echo "make test-arm64     the tests of crates/core, built for ARM, under qemu (root to install it)"
	@echo "make test-vm-arm64  Narrows for ARM on Debian's kernel for ARM, under qemu (root to install it)"
	@echo "make chaos          faults of all kinds under traffic, for three minutes; SEED=N for a certain run, PLANE=xdp for the driver (root)"
	@echo "make fuzz           every fuzz target for half a minute"
	@echo "make explore        the same, and the property tests with another seed: each run tries something else"
	@echo "make unit           check the services in dist/, how much systemd lets them do, and the alerts for Prometheus"
	@echo "make build          build $(NARROWS)"
	@echo "make check          formatting and lints"
	@echo "make bench-forward  forwarding beside a bare AF_XDP forwarder, a bridge and HTB (root)"
	@echo "make bench-cake     cake beside a FIFO and DPDK's rte_sched, which it installs"
	@echo "make bench-tree     a tree of up to a million classes beside a FIFO and rte_sched, which it installs"
	@echo "make bench-wheels   timing wheels beside fq, a binary heap and a FIFO"
	@echo "make bench-pacing   flowbundler beside carousel, eiffel and fq, with real packets (root)"
	@echo "make bench-tree-real the kernel's HTB and ours: the same tree, the same traffic (root)"
	@echo "make reproduction   simulate every figure of docs/reproduction.md again and renew it; SCENARIOS='fair-wake' for some"
	@echo "make tc-testing     Linux's own cases for tc, which it downloads; LIVE=1 on running instances (root)"
	@echo "make tools          programs that call Narrows, for the end-to-end tests: FireQOS, tcconfig, cnitool"
	@echo "make book           build docs/ as a book, with mdBook, which it installs"
	@echo "make pictures       take the pictures of docs/pictures of a running instance, in Chromium and tmux (root)"
	@echo "make page           build the page of narrows serve from crates/views/serve/web, with esbuild, which it installs"
	@echo "make page-check     whether the page in assets/ is what its sources give"
	@echo "make page-tests     the page in Chromium: what it shows, and whether everybody can read it (WCAG AA)"
	@echo "make page-cost      what the page takes of server and browser with 2,000 and 100,000 subscribers"
	@echo "make page-traffic   the page of an instance with real traffic, beside tc -s (root)"
	@echo "make deb            build target/package/narrows_*.deb and those of narrows-serve, narrows-cni, narrows-fleet and narrows-sync, with cargo-deb, which it installs, and check them and their sizes; ARCH=arm64 for ARM"
	@echo "make tarball        build target/package/narrows-*.tar.xz: statically linked, for other distributions; ARCH=arm64 for ARM"
	@echo "make test-deb       install, start, upgrade under load and purge the package on Debian 12 and 13 (root)"
	@echo "make sbom           list what the package is built from, as target/package/narrows.cdx.json"
	@echo "make deny           check licences, sources and advisories of all dependencies"
	@echo "make deps           install the Debian packages that are missing; ARCH=arm64 also those that build for ARM"

# Packages with which a service comes that nobody asked for, and its name.
SERVICES := bird2:bird nginx:nginx nats-server:nats-server kea-dhcp4-server:kea-dhcp4-server

# Installs only what is missing, and says what. A service that comes with it is stopped, and not started
# again. One that was here before stays as it is. update-rc.d knows only services with an init script,
# and some have none.
deps:
	@command -v $(CARGO) >/dev/null || { \
	  echo "Rust is not installed: install the stable toolchain with rustup first"; exit 1; }
	@missing=""; for package in $(PACKAGES); do \
	  dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
	  echo "installing Debian packages:$$missing"; \
	  $(SUDO) apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null || exit; \
	  for service in $(SERVICES); do case "$$missing " in *" $${service%:*} "*) \
	    $(SUDO) invoke-rc.d --quiet $${service#*:} stop >/dev/null 2>&1; \
	    if [ -e /etc/init.d/$${service#*:} ]; then $(SUDO) update-rc.d $${service#*:} disable; \
	    else $(SUDO) systemctl --quiet disable $${service#*:}; fi && \
	    echo "$${service%:*}: its service is stopped and disabled" || exit;; \
	  esac; done; \
	fi
	@$(if $(ARCH),dist/cross $(ARCH) install)

build: deps
	@echo "building $(NARROWS)"
	@$(CARGO) build --release --locked -p narrows

demo: build
	@$(NARROWS) demo

demo-latency: build
	@$(NARROWS) demo latency --plot target/demo-latency.svg

demo-tree: build
	@$(NARROWS) demo tree --plot target/demo-tree.svg

demo-flood: build
	@$(NARROWS) demo flood --plot target/demo-flood.svg

demo-router: build
	@$(NARROWS) demo router

demo-host: build
	@$(NARROWS) demo host

demo-fleet: build
	@$(CARGO) build --release --locked -p narrows-fleet
	@$(NARROWS) demo fleet --plot target/demo-fleet.svg

demo-balance: build
	@$(NARROWS) demo balance

bench-forward: build
	@$(NARROWS) bench forward

# Where Debian's release has another DPDK, the peer is absent and the rest is measured.
bench-cake bench-tree: build
	@dpkg-query -W -f='$${Status}' $(PEERS) 2>/dev/null | grep -q 'ok installed' || { \
	  echo "installing Debian packages: $(PEERS)"; \
	  $(SUDO) apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $(PEERS) >/dev/null; \
	} || echo "could not install $(PEERS)"
	@$(NARROWS) bench $(@:bench-%=%)

bench-wheels: build
	@$(NARROWS) bench wheels

bench-pacing: build
	@$(NARROWS) bench pacing

bench-tree-real: build
	@$(NARROWS) bench tree-real

# The services of dist/: whether systemd can read them, and how much they may do (0.0 to 10.0, and at
# most 2.5; 2.0 for the one that sends probes, and 1.5 for the one without privileges). The program need not be installed for that.
unit:
	@mkdir -p target/unit
	@sed 's|/usr/bin/narrows|/bin/true|' dist/narrows@.service > target/unit/narrows@.service
	@for unit in narrows-serve narrows-health narrows-fleet narrows-sync narrows-sync@; do \
	  sed 's|/usr/bin/[a-z-]*|/bin/true|' dist/$$unit.service > target/unit/$$unit.service; \
	done
	systemd-analyze verify target/unit/*.service
	set -o pipefail; systemd-analyze security --offline=true --threshold=15 dist/narrows-serve.service | tail -n 1
	set -o pipefail; systemd-analyze security --offline=true --threshold=20 dist/narrows-health.service | tail -n 1
	set -o pipefail; systemd-analyze security --offline=true --threshold=15 dist/narrows-fleet.service | tail -n 1
	set -o pipefail; systemd-analyze security --offline=true --threshold=15 dist/narrows-sync.service | tail -n 1
	set -o pipefail; systemd-analyze security --offline=true --threshold=15 dist/narrows-sync@.service | tail -n 1
	set -o pipefail; systemd-analyze security --offline=true --threshold=25 dist/narrows@.service | tail -n 1
	@if command -v promtool >/dev/null; then promtool test rules dist/prometheus/narrows.rules.test.yml; \
	else echo "promtool is not installed: dist/prometheus is not checked (apt-get install prometheus)"; fi

check: format
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

format: deps
	$(CARGO) fmt --all --check
	@! git ls-files '*.rs' '*.c' '*.h' | LC_ALL=C.UTF-8 xargs grep -nE '^.{101,}$$' | grep -E ':[0-9]+: *//' || \
	  { echo "comments are at most 100 columns wide"; exit 1; }

# Everything: .ci/test says in which order. As root everything runs; without, what needs network
# namespaces says that it was skipped.
test:
	@.ci/test

# With LINT=1 clippy compiles the tests, and checks each crate of the workspace as it does. To run it
# beside the compiler (`make check`) takes two minutes of a core more, most of them for other
# people's crates. What either of them compiles, the other does not use.
COMPILER := $(if $(LINT),RUSTC_WORKSPACE_WRAPPER="$(dir $(CARGO))clippy-driver" CLIPPY_ARGS=-Dwarnings)

# Without the one that measures a rate: it runs with the end-to-end tests.
MEASURING := the_kernels_own_shaper_delivers_its_rate
crate-tests: deps
	$(COMPILER) .ci/counted $(CARGO) test --workspace --locked --exclude narrows -- \
	  --show-output --skip $(MEASURING) $(TESTS)

# Of the whole workspace, as for `tested`: with `-p narrows` crates have fewer features, and half of
# them would be compiled again. More threads than tests run at once: some wait for their turn. What
# fails runs once more, alone.
END_TO_END := $(COMPILER) RUST_TEST_THREADS=6 .ci/counted .ci/again $(CARGO) test --locked --workspace
end-to-end: end-to-end-counts end-to-end-measures

end-to-end-counts: deps
	NARROWS_TURNS=counts $(END_TO_END) --bin narrows \
	  $(foreach test,$(basename $(notdir $(wildcard crates/cli/tests/*.rs))) e2e,--test $(test))

end-to-end-measures: deps
	NARROWS_TURNS=measures $(END_TO_END) --test e2e
	$(COMPILER) $(CARGO) test --locked --workspace --test bed $(MEASURING)

# What the tests build, with every assertion: all targets. Of these, the programs that machines need;
# a test beside them, so that crates have the features that they have for the tests, and nothing is
# compiled a second time.
TESTED := $(COMPILER) $(CARGO) build --locked --profile test --workspace
tested: deps
	@$(TESTED) --all-targets

programs: deps
	@$(TESTED) --bin narrows --bin narrows-serve --bin narrows-fleet --bin narrows-sync --bin vmlab --test pages

# With BUILT=1 they are there, and nobody waits for a neighbour's build to find that out.
PROGRAMS := $(if $(BUILT),deps,programs)

# Debian's kernels between emulated cards: all cells take half an hour. CELLS= chooses some by
# name, kernel or driver; RESUME=1 keeps what this build has shown already; WRITE=1 renews the
# tables of docs/kernels.md and docs/cake.md.
test-vm: programs
	@target/debug/vmlab $(if $(RESUME),--resume) $(if $(WRITE),--write) $(CELLS)

# Linux's cake and cake_mq beside ours, in one of these machines. WRITE=1 renews the tables of
# docs/cake.md; ROWS= measures some alone, and not cake_mq: ROWS='tcp-ecn-20 light'.
test-vm-cake: programs
	@target/debug/vmlab $(if $(RESUME),--resume) $(if $(WRITE),--write) $(ROWS:%=--row=%) cake

# What tests build for ARM: linked statically, so that it needs no libraries where it runs.
ON_ARM := CARGO_TARGET_DIR=target/arm64 RUSTFLAGS="-C target-feature=+crt-static" dist/cross arm64 $(CARGO)
# It tries the shells that are there, and under qemu a program that is absent starts, and says nothing.
CALLS_SHELLS := a_shell_reads_each_word_as_it_was
test-arm64: deps
	@dist/cross arm64 install
	$(ON_ARM) test --locked --tests $(foreach crate,$(wildcard crates/core/*),-p narrows-$(notdir $(crate))) -- \
	  --skip $(CALLS_SHELLS)

# The packaged program on Debian's kernel for ARM, in one cell more. Its processor is always emulated.
test-vm-arm64: $(PROGRAMS)
	@$(MAKE) --no-print-directory tarball ARCH=arm64
	@$(ON_ARM) build --locked --profile test -p narrows-vmlab
	@target/debug/vmlab $(if $(WRITE),--write) --narrows "$$(ls -t target/package/narrows-*-aarch64/bin/narrows | head -1)" \
	  --init target/arm64/aarch64-unknown-linux-gnu/debug/vmlab 6.12-arm64

# The cells that cover most, in at most 5 minutes.
test-vm-short: $(PROGRAMS)
	@target/debug/vmlab --short

# Another seed each time, which the run prints. FORWARDING=--router or --balancer, PLANE=xdp. The short
# one is always the same, and needs no release build. A wire and a router share its time and most kinds
# of faults; some that depend on what forwards strike both.
SEED = $(shell od -An -N2 -tu2 /dev/urandom | tr -d ' ')

chaos: build
	@$(if $(findstring --fleet,$(FORWARDING)),$(CARGO) build --release --locked -p narrows-fleet)
	@$(NARROWS) chaos --seed $(SEED) $(FORWARDING) $(PLANE:%=--plane %)

# The XDP plane and the balancer have their turns beside the other. Who takes a core of the machine
# for itself comes last, alone: it would take it from both.
CHAOS := target/debug/narrows chaos
WIRE := kill,restart,upgrade,pause,hang,link,mtu,bridge,ring-exhaustion
ROUTER := kill,hang,queues,routes,neighbours,reload,classes,address-flood
WIRE_IN_DRIVER := kill,restart,upgrade,pause,link,policy
ROUTER_IN_DRIVER := kill,routes,neighbours,classes
chaos-short: $(PROGRAMS)
	@if [ "$$(id -u)" = 0 ]; then \
	  { $(CHAOS) --seed 1 --duration 18s --plane xdp --only $(WIRE_IN_DRIVER) && \
	    $(CHAOS) --router --seed 2 --duration 12s --plane xdp --xdp native --only $(ROUTER_IN_DRIVER) && \
	    $(CHAOS) --balancer --seed 2 --duration 18s; \
	  } >target/chaos-xdp.log 2>&1 & \
	  { $(CHAOS) --seed 1 --duration 26s --only $(WIRE) && \
	    $(CHAOS) --router --seed 1 --duration 25s --only $(ROUTER) && \
	    $(CHAOS) --fleet --seed 1 --duration 25s; }; status=$$?; \
	  wait $$! || status=1; cat target/chaos-xdp.log; \
	  $(CHAOS) --seed 1 --duration 4s --plane xdp --only real-time-hog || status=1; exit $$status; \
	else echo "SKIPPED: chaos needs root, for network namespaces"; fi

# The inputs that are kept, once each; or half a minute of search for others, two at once on each core,
# or a third of it. All targets; FUZZ= chooses some.
fuzz: deps
	@CARGO="$(CARGO)" fuzz/run 30 $(FUZZ)

fuzz-short: deps
	@CARGO="$(CARGO)" fuzz/run 10 $(FUZZ)

fuzz-kept: deps
	@CARGO="$(CARGO)" fuzz/run 0 $(FUZZ)

# What explores: other inputs and other random cases each time. A failure says how to repeat it.
explore: fuzz explore-properties explore-machine api-check page-tests
explore-short:
	@.ci/explore

# What a package has, compiled: without the lab's commands, which all other builds have.
package-compiles: deps
	$(CARGO) check --locked --package narrows --no-default-features

# The crates' property tests, with a seed of their own. `make test` has always the same.
explore-properties: deps
	@seed=$${PROPTEST_RNG_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	echo "properties with PROPTEST_RNG_SEED=$$seed"; \
	PROPTEST_RNG_SEED=$$seed $(MAKE) --no-print-directory crate-tests TESTS="$$(.ci/properties | xargs)" || \
	{ echo "again: PROPTEST_RNG_SEED=$$seed make explore-properties"; exit 1; }

# What the short form of the machines leaves out, of a router or of a switch, on one of them. MACHINE=
# says on which, CHECK= what.
MACHINES := $(foreach kernel,7.x 6.12 6.1,$(kernel:%=%-igb) $(kernel:%=%-virtio_net) $(kernel:%=%-veth))
explore-machine: $(PROGRAMS)
	@machine=$${MACHINE:-$$(shuf -n 1 -e $(MACHINES))}; check=$${CHECK:-$$(shuf -n 1 -e router switch host)}; \
	target/debug/vmlab --check $$check $$machine || \
	{ echo "again: MACHINE=$$machine CHECK=$$check make explore-machine"; exit 1; }

# Every interleaving of the lock-free parts, with tiny constants.
loom: deps
	RUSTFLAGS="--cfg loom" $(CARGO) test --locked --profile loom --lib --target-dir target/loom \
	  -p narrows-xsk -p narrows-coordination -p narrows-roundtrip

# Instructions per packet of every hot structure, against the recorded budget.
instructions: deps
	$(CARGO) run --locked --release -p narrows-bench --no-default-features --bin instruction-count -- --check

# Every figure of docs/reproduction.md, simulated: the same on every machine.
# SCENARIOS='fair-wake fair-stall' renews theirs alone.
reproduction: deps
	$(CARGO) run --locked --release -p narrows-sim --bin figures -- --write $(SCENARIOS)

# With every assertion. To optimise the simulator would take longer than it saves.
reproduction-check: deps
	$(TESTED) --bin figures --test pages
	target/debug/figures --check

# Linux's own cases for tc, from the newest Debian package of its source that apt knows; they are not
# part of this repository. LINUX_SOURCE names another package, TC_TESTS a folder that is there.
LINUX_SOURCE ?= $(shell apt-cache search --names-only '^linux-source-[0-9]' | cut -d ' ' -f 1 | sort -V | tail -n 1)
TC_TESTS ?= target/tc-testing/tc-tests

$(TC_TESTS):
	@mkdir -p $(@D)
	@package=$(LINUX_SOURCE); echo "downloading $$package, 170 MB, for its cases" && cd $(@D) && \
	  apt-get download -qq $$package && \
	  dpkg-deb --fsys-tarfile $${package}_*.deb | tar x --to-stdout --wildcards '*.tar.xz' | \
	  tar x --xz --strip-components 5 --wildcards '*/tools/testing/selftests/tc-testing/tc-tests/*'; \
	  rm -f $${package}_*.deb

# LIVE=1 runs the cases on running instances, as root, and not in memory. WORDS='qdiscs/mq 8c17' for
# some of them.
tc-testing: $(if $(LIVE),build,deps) $(TC_TESTS)
	@$(CARGO) run --locked -q -p narrows-tc --example tc_testing -- $(LIVE:%=--live $(NARROWS)) $(TC_TESTS) $(WORDS)

# Other people's programs that call Narrows, for the end-to-end tests: FireQOS from Debian, tcconfig
# from PyPI, and CNI's cnitool, which a Go compiler builds where there is one. They are unpacked in
# target/tools, and nothing is installed.
TOOLS := target/tools
tools: $(TOOLS)/fireqos $(TOOLS)/tcconfig $(TOOLS)/cnitool

CNITOOL := github.com/containernetworking/cni/cnitool@v1.3.0
$(TOOLS)/cnitool:
	@if command -v go >/dev/null; then \
	  mkdir -p $(TOOLS) && GOBIN=$(abspath $@) go install $(CNITOOL) || \
	    echo "cnitool cannot be built, which its test says, too"; \
	else echo "there is no Go compiler: cnitool is not built"; fi

$(TOOLS)/fireqos:
	@mkdir -p $(TOOLS)/debs $@
	@cd $(TOOLS)/debs && apt-get download -qq fireqos firehol-common && \
	  for deb in *.deb; do dpkg-deb -x $$deb .; done && mv usr/lib/firehol/* ../fireqos
	@rm -rf $(TOOLS)/debs

$(TOOLS)/tcconfig:
	@python3 -m venv $@ && $@/bin/pip install --quiet tcconfig

$(TOOLS)/schemathesis:
	@echo "installing schemathesis with pip"
	@python3 -m venv $@ && $@/bin/pip install --quiet schemathesis

# Requests that schemathesis makes from the description of the API to write.
api-check: $(PROGRAMS) $(TOOLS)/schemathesis
	@.ci/api-check target/debug/narrows target/debug/narrows-sync $(TOOLS)/schemathesis/bin/schemathesis

# The pages of docs/ as HTML in target/book.
MDBOOK := $(shell command -v mdbook || echo $$HOME/.cargo/bin/mdbook)

book: deps
	@command -v $(MDBOOK) >/dev/null || { \
	  echo "installing mdbook with cargo"; \
	  CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install --quiet --locked --debug --no-default-features mdbook; }
	@$(MDBOOK) build
	@echo "the book is target/book/index.html"

# What narrows serve and narrows top show of a tree with real traffic: dist/pictures/take says how.
VISIBLE := chromium fonts-dejavu-core pngquant python3 tmux
pictures: build
	@missing=""; for package in $(VISIBLE); do \
	  dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
	  echo "installing Debian packages:$$missing"; \
	  DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi
	@$(SUDO) dist/pictures/take $(NARROWS) docs/pictures

# The page of `narrows serve`: sources in web/, and in assets/ what they give, which the program has in
# it. So only who changes the page needs node and npm.
PAGE := crates/views/serve/web
PAGE_MODULES := $(PAGE)/node_modules/.package-lock.json

# Commands, and the Debian packages that have them. Other sources of node bring npm with it.
page-tools:
	@missing=""; for tool in node:nodejs npm:npm chromium:chromium; do \
	  command -v $${tool%:*} >/dev/null || missing="$$missing $${tool#*:}"; \
	done; \
	if [ -n "$$missing" ]; then \
	  echo "installing Debian packages:$$missing"; \
	  $(SUDO) apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

$(PAGE_MODULES): $(PAGE)/package-lock.json | page-tools
	@echo "installing the packages of $(PAGE)/package.json"
	@cd $(PAGE) && npm ci --silent && touch node_modules/.package-lock.json

page: $(PAGE_MODULES)
	@cd $(PAGE) && npx tsc --noEmit && node build.mjs

page-check: $(PAGE_MODULES)
	@cd $(PAGE) && npx tsc --noEmit && node build.mjs --check
	@echo "the page in assets/ is what its sources give"

# Half a minute on an idle machine, of which the checks for WCAG are most.
page-tests: deps page-check
	@$(TESTED) --example provider --test pages
	@cd $(PAGE) && PROVIDER="$(CURDIR)/target/debug/examples/provider" \
	  node --test --test-reporter=spec tests/page.test.mjs tests/fleet.test.mjs

# What the page costs: bytes and processor time with 2,000 subscribers, and how smooth the table of
# 100,000 is. Figures depend on the machine, so nobody fails by them but for elements that are not in sight.
page-cost: page-check
	@$(CARGO) build --release --locked -p narrows-serve --example provider
	@cd $(PAGE) && export PROVIDER="$(CURDIR)/target/release/examples/provider" && \
	  node tests/cost.mjs 2000 15 && node tests/size.mjs 100000

# The same of a real instance, with traffic between network namespaces: what is drawn is what `tc -s` says.
page-traffic: build page-check
	@$(SUDO) ip netns add nrw-page-box
	@$(SUDO) ip netns exec nrw-page-box env NARROWS="$(CURDIR)/$(NARROWS)" \
	  node --test --test-reporter=spec $(PAGE)/tests/traffic.test.mjs; \
	result=$$?; $(SUDO) ip netns del nrw-page-box; exit $$result

# What is distributed: dist/package says how it is built. lintian's findings that are meant are in
# dist/debian/lintian-overrides, each with its reason.
deb: deps
	@CARGO="$(CARGO)" PROFILE=$(PROFILE) $(CROSS) dist/package deb
	@command -v lintian >/dev/null || { \
	  echo "installing Debian packages: lintian"; \
	  $(SUDO) apt-get install -y -qq --no-install-recommends lintian >/dev/null; }
	lintian --fail-on error,warning --tag-display-limit 0 --allow-root \
	  target/package/narrows{,-serve,-cni,-fleet,-sync}_*_$(or $(ARCH),$(shell dpkg --print-architecture)).deb

tarball: deps
	@CARGO="$(CARGO)" PROFILE=$(PROFILE) $(CROSS) dist/package tarball

# What the program of the package is made of, with versions, licences and checksums: CycloneDX 1.5.
sbom: deps
	@mkdir -p target/package
	@CARGO="$(CARGO)" dist/sbom > target/package/narrows.cdx.json
	@echo "target/package/narrows.cdx.json: $$(grep -c '"purl"' target/package/narrows.cdx.json) packages"

# Without its database of advisories, as on a machine without a network, the rest is checked.
deny: deps
	@command -v cargo-deny >/dev/null || { \
	  echo "installing cargo-deny with cargo"; \
	  CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install --quiet --locked --debug cargo-deny; }
	$(CARGO) deny --workspace check licenses bans sources
	@$(CARGO) deny fetch db >/dev/null 2>&1 || { \
	  echo "the database of advisories cannot be reached: advisories were NOT checked"; exit 0; }; \
	  $(CARGO) deny --workspace check advisories

# The package on the Debian releases that it is for. CELLS= chooses: 12, 13.
test-deb:
	@dist/test-deb $(CELLS)
