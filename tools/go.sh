#!/bin/sh
# Runs the Go that the project builds with: the one that setup.sh fetched if it
# had to, else the one on the path. With -path it prints which that is.
#
# It sets the build tags luajit, without which scripts run on gopher-lua, and lmdb, without
# which there is no node database: both are archives in .build, which a plain "go build" or
# "go install" does not have. With CGO_ENABLED=0 the tags are left out. A -tags on the
# command line replaces them.
#
# Tests sync files thousands of times. They kill programs, and cut the power of what strace
# recorded, but not that of this machine: so "test" puts their files in memory, which takes a
# third of the time, unless TMPDIR is set or little memory is free. Targets of the Makefile that
# kill programs for long set it: kills find more of them in the middle of a sync on a disk.
#
# It runs the tests of one package more at once than there are processors, and links their
# binaries without DWARF, which took a third of the linking. Stack traces still have lines.
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
if [ "${1:-}" = test ]; then
	flags=$("$go" env GOFLAGS)
	case " $flags" in
	*' -p='*) ;;
	*) flags="$flags -p=$(($(getconf _NPROCESSORS_ONLN) + 1))" ;; # some tests wait
	esac
	case " $flags" in
	*' -ldflags='*) ;;
	*) flags="$flags -ldflags=-w" ;;
	esac
	export GOFLAGS="${flags# }"
fi
memory=/dev/shm
if [ "${1:-}" = test ] && [ -z "${TMPDIR:-}" ] && [ -w $memory ] && ! grep -q "^[^ ]* $memory [^ ]* [^ ]*noexec" /proc/mounts &&
	[ "$(df -Pk $memory | awk 'END { print $4 }')" -gt 4000000 ] &&
	[ "$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)" -gt 8000000 ]; then
	TMPDIR="$memory/perigee-tests-$(id -u)"
	export TMPDIR
	mkdir -p "$TMPDIR"
	chmod 711 "$TMPDIR" # PostgreSQL runs as another user than root
	# The tests remove their files, unless they are killed. find fails for those of other runs that
	# disappear meanwhile.
	find "$TMPDIR" -mindepth 1 -maxdepth 1 -mmin +600 -exec rm -rf {} + 2>/dev/null || true
fi
exec "$go" "$@"
