#!/bin/sh
# Builds the C part of the Lua modules: one shared object per Lua ABI, with the core and LMDB
# linked in. LuaJIT uses the one for Lua 5.1.
#
#   nodedb/lua/build.sh                  for every Lua with installed headers:
#                                        .build/nodedb-lua/{5.1,5.2,5.3,5.4}/nodedb/native.so
#   nodedb/lua/build.sh INCLUDE FILE     FILE, for the Lua with headers in the folder INCLUDE
#                                        (luarocks calls it like this)
#   nodedb/lua/build.sh asan             .build/nodedb-lua/asan/luajit: a LuaJIT with the C part
#                                        linked in, all of it under AddressSanitizer
#
# LMDB_DIR is the folder with LMDB's static library and headers from tools/lmdb/build.sh; default
# .build/lmdb. The script rebuilds only if a source has changed. CC, CFLAGS and LDFLAGS work as usual.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
core=$root/nodedb
objects=$root/.build/nodedb-lua

fail() {
	echo "build nodedb-lua: $*" >&2
	exit 1
}

if [ -z "${LMDB_DIR:-}" ]; then
	LMDB_DIR=$root/.build/lmdb
	"$root/tools/lmdb/build.sh"
fi
{ [ -f "$LMDB_DIR/lib/liblmdb.a" ] && [ -f "$LMDB_DIR/include/lmdb_extend.h" ]; } ||
	fail "LMDB_DIR=$LMDB_DIR has no lib/liblmdb.a and include/lmdb_extend.h; tools/lmdb/build.sh makes both"

cc=${CC:-cc}
command -v "$cc" > /dev/null || fail "the C compiler $cc is missing"
flags="-std=gnu11 -O2 -g -fPIC -fvisibility=hidden -pthread -Wall -Wextra ${CFLAGS:-}"

# up_to_date FILE TEXT: succeeds if FILE contains TEXT.
up_to_date() { [ "$(cat "$1" 2> /dev/null)" = "$2" ]; }

mkdir -p "$objects"
exec 9> "$objects/lock"
flock 9

# The core, compiled once for all Lua versions.
stamp=$(cat "$0" "$core"/*.[ch] "$here"/native/native.c "$LMDB_DIR/lib/liblmdb.a" "$LMDB_DIR"/include/*.h | cksum)
stamp="$stamp $cc $flags ${LDFLAGS:-}"
if ! up_to_date "$objects/stamp" "$stamp"; then
	rm -rf "$objects"/core "$objects"/stamp
	mkdir -p "$objects/core"
	for source in "$core"/*.c; do
		# shellcheck disable=SC2086
		"$cc" $flags -I"$LMDB_DIR/include" -c "$source" -o "$objects/core/$(basename "$source" .c).o" ||
			fail "the compiler failed on $source"
	done
	echo "$stamp" > "$objects/stamp"
fi

# build INCLUDE FILE
build() {
	[ -f "$1/lua.h" ] || fail "there is no lua.h in $1"
	mkdir -p "$(dirname "$2")"
	# shellcheck disable=SC2086
	"$cc" $flags -I"$1" -shared "$here/native/native.c" "$objects"/core/*.o "$LMDB_DIR/lib/liblmdb.a" \
		-Wl,--exclude-libs,ALL ${LDFLAGS:-} -lm -o "$2.new" || fail "the compiler failed for the Lua in $1"
	mv "$2.new" "$2"
}

# build_asan links the LuaJIT built by "tools/luajit/build.sh asan".
build_asan() {
	target=$objects/asan/luajit
	luajit=$root/.build/luajit-asan
	"$root/tools/luajit/build.sh" asan
	asan_stamp="$stamp $(cat "$here/native/asan.c" "$luajit/stamp" | cksum)"
	! up_to_date "$target.stamp" "$asan_stamp" || return 0
	mkdir -p "$objects/asan"
	# shellcheck disable=SC2086
	"$cc" $flags -fsanitize=address -fno-omit-frame-pointer -I"$luajit/include" -I"$LMDB_DIR/include" "$here/native/asan.c" \
		"$here/native/native.c" "$core"/*.c "$luajit/lib/libluajit.a" "$LMDB_DIR/lib/liblmdb.a" \
		-Wl,-E -lm -ldl -o "$target" || fail "the compiler failed for LuaJIT under AddressSanitizer"
	echo "$asan_stamp" > "$target.stamp"
}

case $#/${1:-} in
1/asan) build_asan ;;
2/*) build "$1" "$2" ;;
0/)
	for version in 5.1 5.2 5.3 5.4; do
		target=$objects/$version/nodedb/native.so
		include=/usr/include/lua$version
		[ -f "$include/lua.h" ] || continue
		up_to_date "$target.stamp" "$stamp" && continue
		build "$include" "$target"
		echo "$stamp" > "$target.stamp"
	done
	;;
*) fail "usage: $0 [asan | INCLUDE FILE]" ;;
esac
