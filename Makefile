# Thaw: everything that is built, made and tested. `make help` lists the targets.

GO      ?= go
BIN     := bin
GOBUILD  = CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w $(LINK)'
BINS    := thaw thawd thaw-vmm thaw-init
BENCH   := thaw-bench bench-guest

# Go files and what they embed; a change of any makes the programs again (go build does the rest).
SOURCES := $(shell find . -name '*.go' -o -name '*.s' -o -name go.mod | grep -v /testdata/) \
	$(shell find guestinit/warm broker/fleet/play api kernel rootfs lab integration/programs bench/checkpoint/repository \
		-type f -not -path '*/testdata/*' -not -name '*.go')

.DEFAULT_GOAL := help
.PHONY: help deps build kernel kernel-stock images lab lab-down demo test test-unit test-guest test-lab test-race fuzz lint bench bench-checkpoint clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-17s %s\n", $$1, $$2}'

deps: ## install what building and testing needs (Debian, as root)
	./scripts/deps

build: $(addprefix $(BIN)/,$(BINS) $(BENCH)) $(BIN)/labinit $(BIN)/runner ## build the programs into bin/

# Data from 10 MiB on, away from code and constants: guestinit/hugetext puts those on huge pages.
$(BIN)/thaw-init: LINK := -D 0xa00000
$(BIN)/%: $(SOURCES)
	@mkdir -p $(BIN)
	$(GOBUILD) -o $@ $(if $(wildcard cmd/$*),./cmd/$*,$(if $(wildcard lab/$*),./lab/$*,./integration/$*))

# A module of its own: what only measuring needs stays out of the other programs.
$(addprefix $(BIN)/,$(BENCH)): $(SOURCES)
	@mkdir -p $(BIN)
	cd bench && $(GOBUILD) -o ../$@ ./cmd/$(@F)

kernel: $(BIN)/thaw ## build the tuned guest kernel (5 to 7 minutes once, then cached)
	$(BIN)/thaw kernel build

kernel-stock: $(BIN)/thaw ## fetch Debian's 6.12 cloud kernel
	$(BIN)/thaw kernel fetch

images: $(BIN)/thaw ## make the python, node and dual images (some minutes once, then cached)
	$(BIN)/thaw image build python
	$(BIN)/thaw image build node
	$(BIN)/thaw image build dual

lab: build kernel kernel-stock images ## start the emulated host: then `bin/thaw --host lab run …`
	$(BIN)/thaw lab up

lab-down: $(BIN)/thaw ## stop the emulated host
	$(BIN)/thaw lab down

demo: deps ## build everything and run the examples in microVMs
	@$(MAKE) --no-print-directory build kernel images
	./examples/demo

test: deps ## every test, natively where there is KVM, and in the lab
	@$(MAKE) --no-print-directory build kernel images
	./scripts/test

test-unit: ## tests that need no guest kernel or image
	$(GO) test $$($(GO) list ./... | grep -v -e /integration -e /cmd/thaw$$)
	cd bench && $(GO) test ./...

test-guest: build ## tests with real guests, natively
	THAW_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 30m ./integration/... ./cmd/thaw/...

test-race: ## unit tests with the race detector
	CGO_ENABLED=1 $(GO) test -race $$($(GO) list ./... | grep -v -e /integration -e /cmd/thaw$$)
	cd bench && CGO_ENABLED=1 $(GO) test -race ./...

test-lab: build kernel kernel-stock images ## the integration suite in the lab
	./scripts/test-lab

fuzz: ## run each fuzz test for a short while
	./scripts/fuzz

lint: ## gofmt, vet, staticcheck
	./scripts/lint

bench: deps build kernel images ## cold start, block and network figures beside QEMU's
	$(BIN)/thaw image build bench
	$(BIN)/thaw bench start

bench-checkpoint: deps build kernel images ## restore, checkpoint, rollback and fork figures, with the least this host allows
	$(BIN)/thaw bench checkpoint --raw out/bench

clean: ## remove what was built here; the cache stays
	rm -rf $(BIN) out
