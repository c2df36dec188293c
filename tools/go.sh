#!/bin/sh
# Runs the Go that the project builds with: the one that setup.sh fetched if it
# had to, else the one on the path. With -path it prints which that is.
top=$(cd "$(dirname "$0")/.." && pwd)
go=go
[ -x "$top/.build/pypi/go/bin/go" ] && go=$top/.build/pypi/go/bin/go
[ "${1:-}" = -path ] && { echo "$go"; exit; }
exec "$go" "$@"
