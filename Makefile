# `make` lists the targets. Each of them first gets what it needs, once.
GO := tools/go.sh
SETUP := tools/setup.sh
PERIGEE := bin/perigee
# What the linked C and C++ libraries export would be exported again: 6 MB of names
# that the loader searches at every start. Go's own must stay, for plugins.
HIDE := -extldflags=-Wl,--exclude-libs,ALL

.DEFAULT_GOAL := help
.PHONY: help demo demo-redis build test test-kafka race nocgo check verify crash soak torture torture-asan fuzz bench-crossing bench-pipeline bench-pool bare-debian clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## a million events through a Lua script into a table, and a query over it
	@$(PERIGEE) demo

demo-redis: build ## the same from a real Redis into a real MariaDB, beside the article's flow
	@$(SETUP) servers
	@cd bench && ../$(GO) run ./demo-redis -perigee ../$(PERIGEE)

build: ## build bin/perigee
	@$(SETUP) build
	@$(GO) build -ldflags '$(HIDE)' -o $(PERIGEE) ./cmd/perigee

test: ## all tests, real Redis and MariaDB among them
	@$(SETUP) servers
	@$(GO) test ./...
	@$(MAKE) --no-print-directory nocgo
	@cd bench && ../$(GO) test ./...

test-kafka: ## the tests of the Kafka source and sink, against a real broker
	@$(SETUP) kafka
	@PERIGEE_KAFKA_JARS=$(CURDIR)/.build/kafka $(GO) test -count=1 ./source/kafka ./sink/kafka

race: ## the tests under the race detector
	@$(SETUP) servers
	@$(GO) test -race -timeout 20m ./...

nocgo: ## the build without C: gopher-lua in place of LuaJIT
	@$(SETUP) servers
	@CGO_ENABLED=0 $(GO) build -o bin/perigee-nocgo ./cmd/perigee
	@CGO_ENABLED=0 $(GO) test ./script/... ./internal/document/... ./cmd/...

check: ## format, vet, staticcheck, warnings of the C compiler, Lua and shell lint
	@$(SETUP) lint
	@tools/check.sh

verify: build ## kill, freeze, cut off and set back everything in the chain 500 times: each event once
	@$(SETUP) servers
	@$(PERIGEE) verify

crash: build ## the same in a minute
	@$(SETUP) servers
	@$(PERIGEE) verify --quick

DURATION := 10m
soak: build ## ten minutes (or DURATION=1h) of a source that is faster than its sink: memory stays flat
	@$(SETUP) servers
	@$(PERIGEE) verify --soak $(DURATION)

torture: ## hostile scripts against the limits, and a sweep of memory limits
	@$(SETUP) build
	@$(GO) build -o bin/torture ./internal/luajit/torture/run
	@bin/torture
	@bin/torture -oom

torture-asan: ## the C code and LuaJIT under AddressSanitizer, hostile scripts included
	@$(SETUP) build
	@tools/luajit/build.sh asan
	@$(GO) test -asan ./internal/luajit/... ./internal/document/... ./script/luajit

fuzz: ## ten minutes of fuzzing every reader of documents, and the engines against each other
	@$(SETUP) build
	@tools/fuzz.sh 10m

bench-crossing: ## what an event costs in user code: ours, native Go, sonic, gopher-lua
	@$(SETUP) build
	@cd bench && ../$(GO) run ./crossing

bench-pipeline: build ## a million events from Redis into MariaDB and PostgreSQL: ours, and how others do it; with KAFKA=1 from Kafka too
	@$(SETUP) bench
	@$(if $(KAFKA),$(SETUP) kafka)
	@cd bench && PERIGEE_KAFKA_JARS=$(CURDIR)/.build/kafka ../$(GO) run ./pipeline -perigee ../$(PERIGEE) $(if $(KAFKA),-kafka)

bench-pool: ## pools of VMs at 1,000 to 4,000 goroutines: ours, and gopher-lua's of the report
	@$(SETUP) build
	@cd bench && ../$(GO) run ./pool

TARGET := demo
bare-debian: ## make demo (or TARGET=test) in a clone on a minimal Debian; needs root
	@tools/bare-debian.sh $(TARGET)

clean: ## remove what was built
	@rm -rf .build bin
