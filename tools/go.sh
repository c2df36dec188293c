#!/bin/sh
# Runs the Go that the project builds with: the one that setup.sh fetched if it
# had to, else the one on the path. With -path it prints which that is.
#
# It sets the build tags luajit, without which scripts run on gopher-lua, and lmdb, without
# which there is no node database: both are archives in .build, which a plain "go build" or
# "go install" does not have. With CGO_ENABLED=0 the tags are left out. A -tags on the
# command line replaces them.
#
# LuaJIT is built again if tools/luajit has changed since, LMDB if tools/lmdb has.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
go=go
[ -x "$top/.build/pypi/go/bin/go" ] && go=$top/.build/pypi/go/bin/go
[ "${1:-}" = -path ] && { echo "$go"; exit; }
if [ "${CGO_ENABLED:-1}" != 0 ]; then
	flags=$("$go" env GOFLAGS)
	case " $flags" in
	*' -tags='*) flags=$(printf %s "$flags" | sed 's/-tags=/-tags=luajit,lmdb,/') ;;
	*) flags="$flags -tags=luajit,lmdb" ;;
	esac
	export GOFLAGS="${flags# }"
	for build in "" asan; do
		[ ! -d "$top/.build/luajit${build:+-$build}" ] || "$top/tools/luajit/build.sh" $build
	done
	"$top/tools/lmdb/build.sh"
fi
exec "$go" "$@"
