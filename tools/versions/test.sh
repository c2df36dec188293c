#!/bin/sh
# Runs the tests of sources and sinks with servers of other versions than Debian's: each
# is first on the path. The servers are in .build/versions (tools/setup.sh versions).
set -u
cd "$(dirname "$0")/../.." || exit 1
servers=$PWD/.build/versions
failed=''

# run SERVER BINARY ARGUMENT…: go test with the server.
run() {
  server=$1
  "$servers/$server/$2" --version
  shift 2
  PATH=$servers/$server:$PATH tools/go.sh test -count=1 "$@" || failed="$failed $server"
}

# This Valkey is built without TLS.
run valkey redis-server -skip 'OverTLS|TestUntrustedServer' ./source/redis ./sink/redis
# Redis 6 is for lists alone, and says less about permissions.
run redis6 redis-server -run 'TestContract|TestTakeover|TestRestored|TestOldRedis' -skip '/stream' ./source/redis ./sink/redis
run postgres/bin postgres ./sink/postgres
run mariadb/bin mariadbd ./sink/mysql
# A commit there puts the transaction's own copies of whole tables in place, over what others
# committed meanwhile: nothing that writes from two connections at once holds. It has no TLS and
# no arrays of parameters.
run mysql mariadbd -run 'TestSuite/insert' -skip '//(Concurrent|OverlappingLanes|Takeover|RejectedRows|Conflict|CommitArrivesLate|LostConnectionOfFenced|SetPosition|LeaseExpires|LeaseIsContended|Heartbeat)' ./sink/mysql
[ -z "$failed" ] || { echo "failed with:$failed"; exit 1; }
