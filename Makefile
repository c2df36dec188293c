# `make` lists the targets. Each target first installs what it needs, if it is missing.
GO := tools/go.sh
SETUP := tools/setup.sh
PERIGEE := bin/perigee
# Do not export the symbols of the linked C and C++ libraries: 6 MB of names that the
# loader would search at every start. Go's own symbols must stay, for plugins.
HIDE := -extldflags=-Wl,--exclude-libs,ALL

# Flags of UndefinedBehaviorSanitizer; go's -asan sets those of AddressSanitizer.
UNDEFINED := -g -O1 -fsanitize=undefined -fno-sanitize-recover=undefined

# The files of tests are on the disk: tools/go.sh otherwise puts them in memory.
ON_DISK := TMPDIR=$${TMPDIR:-/tmp}

.DEFAULT_GOAL := help
.PHONY: help demo demo-redis build test test-long nodedb-lua lake test-kafka test-console test-s3 test-lake test-lake-engines test-m test-yottadb test-versions race nocgo check ci-long verify crash crash-scripts crash-nodes crash-store crash-state crash-takeover crash-lake soak-state soak torture test-sql test-oracle test-oracle-newest test-first-hour test-install nodes-asan torture-asan fuzz mutants powercut dist test-dist bench-crossing bench-pipeline bench-pool bench-isolate bench-nodes bench-nodes-growth bench-diff bench-events bench-observe bench-peers bench-formats bench-manifest bench-queries bench-lake bench-state site recording bare-debian clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## a million events through a Lua script into a table, and a query over it
	@$(PERIGEE) demo

demo-redis: build ## the demo from a real Redis into a real MariaDB, compared with the article's flow
	@$(SETUP) servers
	@cd bench && ../$(GO) run ./demo-redis -perigee ../$(PERIGEE)

build: ## build bin/perigee
	@$(SETUP) build
	@$(GO) build -buildvcs=auto -ldflags '$(HIDE)' -o $(PERIGEE) ./cmd/perigee

# make check runs vet, on all of it; go test would once more.
test: ## all tests, with real Redis, MariaDB and PostgreSQL servers
	@$(SETUP) servers
	@$(GO) test -vet=off ./...
	@$(MAKE) --no-print-directory nocgo
	@cd bench && ../$(GO) test -vet=off ./...

test-long: ## the same with all of the random programs, kills and single faults, and with files on the disk
	@PERIGEE_LONG=1 $(ON_DISK) $(MAKE) --no-print-directory test

nodedb-lua: ## build the Lua modules of the node database, for LuaJIT and Lua 5.1 to 5.4
	@$(SETUP) lua
	@nodedb/lua/build.sh
	@echo 'The modules are built. To use them, for example with Lua 5.4 (LuaJIT takes those of 5.1):'
	@echo '  export LUA_PATH="$(CURDIR)/nodedb/lua/?.lua;;" LUA_CPATH="$(CURDIR)/.build/nodedb-lua/5.4/?.so;;"'

lake: ## build bin/perigee-lake, which publishes tables as Iceberg tables
	@$(SETUP) build
	@cd cmd/perigee-lake && ../../$(GO) build -ldflags "-s -w" -buildvcs=auto -o ../../bin/perigee-lake .

LAKE_JVM := $(CURDIR)/.build/lake-engines-jvm
LAKE := PERIGEE_LAKE=$(CURDIR)/bin/perigee-lake PERIGEE_SEAWEEDFS=$(CURDIR)/.build/seaweedfs/bin/weed \
  PERIGEE_LAKE_PYTHON=$(CURDIR)/.build/lake-engines/bin/python PERIGEE_LAKE_SPARK_PYTHON=$(LAKE_JVM)/python/bin/python
test-lake: lake ## tables in folders and S3, with SQL and REST catalogs, which pyiceberg, DuckDB, ClickHouse (chdb) and Sail read
	@$(SETUP) servers && $(SETUP) lake-engines && $(SETUP) seaweedfs
	@cd cmd/perigee-lake && $(LAKE) ../../$(GO) test -vet=off -ldflags "-s -w" -count=1 .
	@$(LAKE) PERIGEE_LAKE_ENGINES='pyiceberg duckdb chdb sail' $(GO) test ./eventstore -count=1 -v -run 'TestLake|TestDeletedBytes$$'

test-lake-engines: lake ## the same table, read by Spark with two versions of Iceberg and by Trino as well
	@$(SETUP) lake-engines-jvm
	@$(LAKE) PERIGEE_LAKE_ENGINES='pyiceberg duckdb chdb sail spark=$(LAKE_JVM)/iceberg-1.11.0.jar spark=$(LAKE_JVM)/iceberg-1.12.0.jar trino=$(LAKE_JVM)/trino,$(LAKE_JVM)/java' \
	  $(GO) test ./eventstore -count=1 -v -timeout 40m -run 'TestLakeEngines|TestLakePage'

crash-lake: lake ## kill a store that publishes, its committer, S3 and the catalog 200 times, lose 60 answers of commits, and compact the lake with Spark: it has each row once
	@$(SETUP) servers && $(SETUP) seaweedfs && $(SETUP) lake-engines-jvm
	@cd cmd/perigee-lake && $(LAKE) ../../$(GO) test -vet=off -ldflags "-s -w" -count=1 -v -run 'TestLostAnswers|TestTwoCommitters' .
	@$(LAKE) PERIGEE_LAKE_KILLS=200 PERIGEE_LAKE_ICEBERG=$(LAKE_JVM)/iceberg-1.11.0.jar $(ON_DISK) \
	  $(GO) test ./eventstore -count=1 -v -timeout 90m -run 'TestCrashLake$$|TestLakeCompactedBySpark'

test-kafka: ## the tests of the Kafka source and sink with a real broker
	@$(SETUP) kafka
	@PERIGEE_KAFKA_JARS=$(CURDIR)/.build/kafka $(GO) test -count=1 ./source/kafka ./sink/kafka
	@PERIGEE_KAFKA_JARS=$(CURDIR)/.build/kafka $(GO) test -count=1 ./cmd/perigee -run TestStatesThroughKafka

test-console: build ## every page of the web console in Chromium, on an engine with Redis and MariaDB; SHOTS=docs/images writes screenshots
	@$(SETUP) servers && $(SETUP) console
	@PERIGEE_CONSOLE_TOOLS=$(CURDIR)/.build/console PERIGEE_CONSOLE_SHOTS=$(if $(SHOTS),$(CURDIR)/$(SHOTS)) $(GO) test ./console -count=1 -v -timeout 10m -run 'TestBrowser$$'

test-s3: ## the archive of states in the buckets of a real S3 service
	@$(SETUP) seaweedfs
	@PERIGEE_SEAWEEDFS=$(CURDIR)/.build/seaweedfs/bin/weed $(GO) test -count=1 ./pipeline/state/archive

test-m: ## the node database's order, sums and operations against M itself (GT.M), a million pairs
	@$(SETUP) nodes
	@PERIGEE_PAIRS_FOR_M=1000000 $(GO) test ./nodedb/internal/coretest -count=1 -v -run AgainstM

test-yottadb: ## the module yottadb against all that lua-yottadb documents, on LuaJIT and Lua 5.1 to 5.4
	@$(SETUP) lua
	@$(GO) test ./nodedb/lua -count=1 -v -run TestYottadbFace

test-versions: ## the tests of sources and sinks with Valkey 9, Redis 6, PostgreSQL 18, MariaDB 11 and go-mysql-server
	@$(SETUP) versions
	@tools/versions/test.sh

# Under the race detector code is several times slower, and a process sleeps for a second before
# it ends, unless GORACE tells otherwise. What -short leaves out or makes smaller is about disks,
# amounts of data, code in C or Lua, which the detector does not see, and the commands of pages.
# nodedb/lua tests only such code, in other processes, and archtest only reads files.
race: ## the tests under the race detector; the longest are left out
	@$(SETUP) servers
	@GORACE=atexit_sleep_ms=20 $(GO) test -race -short -vet=off -timeout 20m $$($(GO) list ./... | grep -v -e /nodedb/lua$$ -e /internal/archtest$$)

# Without cgo another Lua engine runs, another decoder reads documents, and the stores are absent.
# The tests of cmd/perigee that are left out need none of these to differ: servers that are
# lost, leases, positions, pauses, and kills between the steps of a batch. make test has run them.
SAME_WITHOUT_CGO := ^Test(ServersAbsentAtStart|ServersLostMidway|SecondSignalStopsAtOnce|TableLacksColumn|PortTaken|PauseAndResume|CheckConnect|Position|PositionAndSource|PositionBesideEngine|Poison|TwoSinksAgree|VerifyOwnPipeline|WorkersOfOnePipeline|KilledEngine)$$
nocgo: ## build and test without cgo: gopher-lua instead of LuaJIT
	@$(SETUP) servers
	@CGO_ENABLED=0 $(GO) build -o bin/perigee-nocgo ./cmd/perigee
	@CGO_ENABLED=0 $(GO) test -vet=off -skip '$(SAME_WITHOUT_CGO)' ./script/... ./internal/document/... ./engine/... ./admin/... ./cmd/... ./eventstore/internal/statement

check: ## format, vet, staticcheck, warnings of the C compiler, Lua and shell lint
	@$(SETUP) lint
	@tools/check.sh

ci-long: ## check, test-long and race, then go install, torture, Kafka, the C code under AddressSanitizer and a minute of every fuzzer: at most 70 minutes
	@.ci/run check torture test-kafka test-s3 test-long test-install torture-asan race fuzz

verify: build ## kill, suspend, disconnect and restore everything 500 times: each event is delivered once
	@$(SETUP) servers
	@$(PERIGEE) verify

crash: build ## a short verify, in about a minute
	@$(SETUP) servers
	@$(PERIGEE) verify --quick

crash-scripts: build ## kill 500 processes of a script while events flow: each event is delivered once
	@PERIGEE_KILLS=500 $(ON_DISK) $(GO) test ./cmd/perigee -count=1 -v -timeout 20m -run TestKilledScripts

crash-nodes: ## kill writers of the node database 200 times, let its disk fail, damage its file, abandon transactions: what was durable stays
	@$(SETUP) build && $(SETUP) lua
	@PERIGEE_NODE_KILLS=200 PERIGEE_NODE_STOPS=3 PERIGEE_NODE_DISK_FAILURES=50 PERIGEE_NODE_DAMAGES=200 $(ON_DISK) $(GO) test ./nodedb/internal/coretest -count=1 -v -timeout 30m \
		-run 'TestKilledWriters|TestStoppedWriter|TestFailingDisk|TestDamagedFile|TestIdle|TestReadOnlyMedia|TestOpenOnFullDisk|TestUnwritableFolder'
	@PERIGEE_NODE_KILLS=40 $(ON_DISK) $(GO) test ./nodedb/lua -count=1 -v -timeout 10m -run TestAbandonedCoroutines

crash-store: ## kill the event store 200 times, cut its power 1000 times and fill its disk 20 times, while tables are dropped and changed too: each acknowledged row is there once
	@$(SETUP) servers
	@cd eventstore && PERIGEE_STORE_KILLS=160 PERIGEE_STORE_IMPORT_KILLS=40 PERIGEE_STORE_POWERCUTS=1000 PERIGEE_STORE_FULL_DISKS=20 \
		$(ON_DISK) ../$(GO) test -count=1 -timeout 60m -run 'TestCrash$$|TestCrashImport$$|TestPowerCut$$|TestFullDisk$$'

CRASH_STATE_KILLS ?= 200
SOAK_STATE ?= 30m
crash-state: build ## kill the engine of a script with a state, and its servers, 200 times, at each point: rows, state and timers agree
	@$(SETUP) servers
	@CRASH_STATE_KILLS=$(CRASH_STATE_KILLS) $(ON_DISK) $(GO) test ./cmd/perigee -count=1 -timeout 30m -v -run 'TestCrashState$$'

TAKEOVERS ?= 20
TAKEOVER_USERS ?= 1000000
crash-takeover: build ## kill, freeze or remove the owner of a state with 1,000,000 users 20 times: its follower goes on, and nothing is lost
	@$(SETUP) servers
	@TAKEOVERS=$(TAKEOVERS) TAKEOVER_USERS=$(TAKEOVER_USERS) $(ON_DISK) $(GO) test ./cmd/perigee -count=1 -timeout 30m -v -run 'TestTakeover$$'

DURATION := 10m
soak-state: build ## a state that forgets as much as it gets, for SOAK_STATE=30m: memory, file, notes and archive stay flat
	@$(SETUP) servers
	@SOAK_STATE=$(SOAK_STATE) $(ON_DISK) $(GO) test ./cmd/perigee -count=1 -timeout 3h -v -run 'TestSoakState$$'

soak: build ## events faster than the sink for DURATION=10m: memory stays flat
	@$(SETUP) servers
	@$(PERIGEE) verify --soak $(DURATION)

# Code that attacks its process while it loads, and calls that a process forges.
ATTACKS := ^(TestLoadingLeaks|TestForgedCalls|TestEndlessFiles|TestFailedRun)$$
torture: build ## run hostile scripts, requests, SQL and attacks on the web console against the limits: small memory, garbage collected before each call, code that attacks while it loads
	@$(GO) build -o bin/torture ./internal/luajit/torture/run
	@bin/torture
	@bin/torture -oom
	@PERIGEE_NODE_PROGRAMS=100 $(GO) test ./internal/luajit -count=1 -v -timeout 20m -run 'TestCollectingPrograms|TestNodesHoldTheirArguments'
	@$(GO) test -count=1 -v -run '$(ATTACKS)' ./script/isolate
	@$(GO) build -o bin/hostile ./internal/e2e/hostile
	@bin/hostile -perigee $(PERIGEE)

nodes-asan: ## test the C core of the node database under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(SETUP) build
	@CGO_CFLAGS='$(UNDEFINED)' CGO_LDFLAGS='$(UNDEFINED)' $(GO) test -asan -count=1 -timeout 30m ./nodedb ./nodedb/internal/coretest

test-sql: build ## SQL: parameters, limits, cancelling, each format in a reader of its own, recompute, backup and restore under load, and hostile statements while events arrive
	@$(SETUP) pyarrow
	@$(GO) test -count=1 ./internal/sqltext
	@PERIGEE_PYARROW=$(CURDIR)/.build/pyarrow PERIGEE_STORE_CRAFTED=150 PERIGEE_STORE_SHAPES=4 $(GO) test -count=1 -run 'EnoughMemory|Requests|Truncated|Formats|Disconnect|Queries|Endless|Handler|Encodings|Macros|Functions|Examples|Growth|Sandbox|Recompute|Computed|Backup|Restore' ./eventstore ./eventstore/queryhttp ./eventstore/internal/sqlworker ./eventstore/internal/sqlclient
	@$(GO) build -o bin/hostile ./internal/e2e/hostile
	@bin/hostile -perigee $(PERIGEE) -only sql:

test-first-hour: build ## projects of every pair of kinds, README and the tutorials as they are typed, and three configurations that are wrong
	@$(SETUP) servers && $(SETUP) kafka && $(SETUP) nats
	@PERIGEE_VERIFY_ROUNDS=all PERIGEE_KAFKA_JARS=$(CURDIR)/.build/kafka PERIGEE_NATS=$(CURDIR)/.build/nats \
		$(GO) test -count=1 -v -timeout 20m -run 'TestFirstHour$$' ./cmd/perigee

test-install: ## go install of the command and go get of the library, without this Makefile and its tags
	@$(SETUP) build
	@PERIGEE_GO_INSTALL=1 $(GO) test -count=1 -v -timeout 20m -run 'TestInstalledWithoutMakefile$$' ./cmd/perigee

ORACLE_SEEDS := 4
ORACLE_QUERIES := 1600
test-oracle: ## random queries over values of every type, at ten moments in the life of rows, against DuckDB's plain tables: ORACLE_QUERIES=1600 of each of ORACLE_SEEDS=4
	@$(SETUP) build
	@PERIGEE_ORACLE_SEEDS=$(ORACLE_SEEDS) PERIGEE_ORACLE_QUERIES=$(ORACLE_QUERIES) $(GO) test -count=1 -v -timeout 20m -run 'TestOracle$$' ./eventstore

test-oracle-newest: ## the same against DuckDB 2.0.1 from PyPI, which has no library yet
	@$(SETUP) duckdb
	@PERIGEE_ORACLE_DUCKDB=$(CURDIR)/.build/duckdb-2.0.1 PERIGEE_ORACLE_SEEDS=$(ORACLE_SEEDS) PERIGEE_ORACLE_QUERIES=$(ORACLE_QUERIES) \
		$(GO) test -count=1 -v -timeout 20m -run 'TestOracle$$' ./eventstore

torture-asan: nodes-asan ## test the C code and LuaJIT under AddressSanitizer, with hostile scripts
	@$(SETUP) build
	@tools/luajit/build.sh asan
	@nodedb/lua/build.sh asan
	@PERIGEE_LUAJIT=$(CURDIR)/.build/nodedb-lua/asan/luajit $(GO) test ./nodedb/lua -count=1 -v -timeout 30m -run TestCollecting
	@$(GO) test -asan -count=1 -v -timeout 30m -run 'TestCollectingPrograms|TestNodesHoldTheirArguments' ./internal/luajit
	@$(GO) test -asan -timeout 30m ./internal/luajit/... ./internal/document/... ./script/luajit

FUZZ_SECONDS := 60
fuzz: ## fuzz all decoders, and the script engines against each other, for FUZZ_SECONDS=60 each
	@$(SETUP) build
	@tools/fuzz.sh $(FUZZ_SECONDS)

SEED := 1
FAULTS := 100
mutants: ## put each of FAULTS=100 random faults of SEED=1 into the code: which do the tests notice?
	@$(SETUP) servers && $(SETUP) kafka
	@PERIGEE_KAFKA_JARS=$(CURDIR)/.build/kafka $(GO) run ./tools/mutants -seed $(SEED) -n $(FAULTS)

POWERCUTS := 10
powercut: ## the tests of power cuts and failing disks, POWERCUTS=10 times as many as in make test
	@$(SETUP) servers
	@PERIGEE_POWERCUTS=$(POWERCUTS) PERIGEE_LONG=1 $(ON_DISK) $(GO) test -count=1 -timeout 60m -run 'PowerCut|FailedSync|LyingSync|FailedWrite|FailingDisk|FullDisk' $$(grep -rl --include='*_test.go' internal/powercut . | xargs -n 1 dirname | sort -u)

bench-crossing: ## the cost of an event in user code: ours, native Go, sonic, gopher-lua
	@$(SETUP) build
	@cd bench && ../$(GO) run ./crossing

bench-pipeline: build ## a million events from Redis into MariaDB and PostgreSQL: ours and others; KAFKA=1 adds Kafka
	@$(SETUP) bench
	@$(if $(KAFKA),$(SETUP) kafka)
	@cd bench && PERIGEE_KAFKA_JARS=$(CURDIR)/.build/kafka ../$(GO) run ./pipeline -perigee ../$(PERIGEE) $(if $(KAFKA),-kafka)

bench-pool: ## pools of VMs at 1,000 to 4,000 goroutines: ours and gopher-lua's
	@$(SETUP) build
	@cd bench && ../$(GO) run ./pool

bench-isolate: ## a script in a process of its own, compared with one in the engine's process
	@$(SETUP) build
	@cd bench && ../$(GO) run ./isolate

bench-nodes: nodedb-lua ## the node database from LuaJIT and Lua 5.4, compared with M (GT.M)
	@$(SETUP) nodes
	@cd bench && ../$(GO) run ./nodes

bench-nodes-growth: nodedb-lua ## get, set and walk at 1, 10 and 100 million nodes, and a plot in docs; needs 12 GB
	@cd bench && ../$(GO) run ./nodes -growth -plot ../docs/nodes-growth.svg

bench-formats: build ## lines of text and CSV, compared with NDJSON of the same size
	@cd bench && ../$(GO) run ./formats -perigee ../$(PERIGEE)

bench-diff: build ## two versions of a script on a million events, compared with one run; a pipeline with a shadow, with one without
	@cd bench && ../$(GO) run ./diff -perigee ../$(PERIGEE)

bench-events: build ## ingest: ours, DuckDB's appender, QuestDB, and a bare loop of writes; ROUNDS=1 is shorter
	@$(SETUP) questdb
	@cd bench && ../$(GO) run ./events -perigee ../$(PERIGEE) $(if $(ROUNDS),-rounds $(ROUNDS))

bench-peers: build ## a million events from Redis into MariaDB, as they are and killed ten times: ours, Benthos, a Go worker; then counts per user beside Kafka Streams; with a plot in docs
	@$(SETUP) servers && $(SETUP) kafka && $(SETUP) kafka-streams
	@cd bench/peers && ../../$(GO) run . -perigee ../../$(PERIGEE) -plot ../../docs/peers.svg $(if $(ROUNDS),-rounds $(ROUNDS))
	@cd bench && PERIGEE_KAFKA_JARS=$(CURDIR)/.build/kafka ../$(GO) run ./state -perigee ../$(PERIGEE) -only Kafka $(if $(ROUNDS),-rounds $(ROUNDS))

bench-observe: build ## an engine that somebody looks at, with a tap that is read slowly, traces or a console, compared with one alone
	@cd bench && ../$(GO) run ./observe -perigee ../$(PERIGEE) $(if $(ROUNDS),-rounds $(ROUNDS))

bench-manifest: ## a change of the event store's metadata with 20,000 segments and 10,000 partitions: bytes and milliseconds
	@$(GO) test -run XXX -bench BenchmarkSave -benchtime 300x ./eventstore/internal/manifest | grep Benchmark

ROWS := 50000000
bench-queries: ## ten queries over ROWS=50000000 rows: ours, DuckDB's file, Parquet as a glob, QuestDB; needs 20 GB of disk
	@$(SETUP) questdb
	@cd bench && ../$(GO) run ./queries -rows $(ROWS) $(if $(ROUNDS),-rounds $(ROUNDS))

bench-lake: lake ## ingest with and without a lake, what a day of publishing costs, cached queries, and engines on published files beside small row groups
	@$(SETUP) lake-engines
	@PERIGEE_BENCH_LAKE=1 $(LAKE) PERIGEE_LAKE_ENGINES='pyiceberg duckdb chdb sail' $(ON_DISK) $(GO) test ./eventstore -count=1 -v -timeout 20m -run 'TestBenchLake|TestLakeDay'

bench-state: build ## exactly-once state: ours with and without it, HINCRBY, 10 million users, Kafka Streams; ROUNDS=1 is shorter
	@$(SETUP) servers && $(SETUP) kafka && $(SETUP) kafka-streams
	@cd bench && PERIGEE_KAFKA_JARS=$(CURDIR)/.build/kafka ../$(GO) run ./state -perigee ../$(PERIGEE) $(if $(ROUNDS),-rounds $(ROUNDS))

site: ## the documentation as a site in .build/site, from docs; a link that leads nowhere is an error
	@mkdir -p .build && $(SETUP) site
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=.build/site-generator python3 -m mkdocs build --strict --config-file site/mkdocs.yml
	@echo '.build/site/index.html'

recording: build ## the first commands on a terminal as a drawing that moves, for README, in docs/start.svg
	@python3 site/record.py $(PERIGEE) docs/start.svg

dist: ## the packages of this commit in dist/, for amd64 and arm64: tarball, .deb, container image, Helm chart, bill of materials, checksums
	@$(SETUP) dist
	@cd tools/dist && ../../$(GO) run .

test-dist: ## build the packages twice and compare them, install, upgrade and remove them in a bare Debian, run the image, render the chart, run the arm64 tests; needs root
	@$(SETUP) test-dist
	@cd tools/dist && ../../$(GO) vet ./... && ../../$(GO) run ./check

TARGET := demo
bare-debian: ## make TARGET=demo on a clone in a minimal Debian below /tmp; needs root
	@tools/bare-debian.sh $(TARGET)

clean: ## remove build results
	@rm -rf .build bin dist
