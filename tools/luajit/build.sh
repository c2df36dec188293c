#!/bin/sh
# Builds the LuaJIT that Perigee links: the source that Cargo.toml pins, with the hook
# checks in compiled code without which no limit could stop a compiled loop.
#
#   tools/luajit/build.sh           .build/luajit/{lib,include}
#   tools/luajit/build.sh asan      .build/luajit-asan/{lib,include}, instrumented
#   tools/luajit/build.sh fetched   succeeds if the source does not have to be downloaded
#
# CC=aarch64-linux-gnu-gcc compiles for another machine, as it does in a build of Go.
#
# A second call does nothing unless this folder has changed. Each build has an identity,
# written into a header in internal/luajit (see luajit_build in vm.c): Go's build cache
# does not look at archives, and would not link a new one.
#
# docs/luajit.md says how to move to another version.
set -eu

# SHA-256 of the crate, whose version is in Cargo.toml.
checksum=1db548b001f0b7da416daf0ffae963912bae6cad1799fa9f4eaba09da6dba837

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
source=$root/.build/luajit-source/$checksum

# CHECKHOOK:     compiled loops look at the hook, so that a watchdog can stop them.
# LUA52COMPAT:   __len and __pairs for tables, comparison between unlike types;
#                a lazy document needs them to look like a table.
# -fPIC:         a program that can load plugins does not link without it.
flags="-DLUAJIT_ENABLE_CHECKHOOK -DLUAJIT_ENABLE_LUA52COMPAT -fPIC"
target=
case ${1:-} in
'')
	dest=$root/.build/luajit
	header=$root/internal/luajit/luajit_build.h ;;
asan)
	dest=$root/.build/luajit-asan
	header=$root/internal/luajit/luajit_build_asan.h
	flags="$flags -DLUAJIT_USE_SYSMALLOC"
	target="-fsanitize=address -fno-omit-frame-pointer" ;;
fetched)
	[ -d "$source" ]
	exit ;;
*)
	echo "usage: $0 [asan|fetched]" >&2
	exit 2 ;;
esac

fail() {
	echo "build luajit: $*" >&2
	exit 1
}

# fetch downloads the source once. Cargo holds what it downloads to its registry's
# checksum, and notes that beside it; here it is held to the one above.
fetch() {
	[ ! -d "$source" ] || return 0
	command -v cargo > /dev/null || fail "cargo is missing; install Debian's cargo-web, or any cargo from 1.85 on"
	parts=$root/.build/luajit-source
	rm -rf "$parts"
	mkdir -p "$parts"
	cp "$here/Cargo.toml" "$parts/"
	(cd "$parts" && cargo vendor vendor) > "$parts/log" 2>&1 ||
		fail "cargo could not fetch the source; see $parts/log"
	grep -q "\"package\":\"$checksum\"" "$parts/vendor/luajit-src/.cargo-checksum.json" ||
		fail "the fetched source has another checksum than $0 says: $(grep -o '"package":.*' "$parts/vendor/luajit-src/.cargo-checksum.json")"
	cp "$parts/vendor/luajit-src/luajit_relver.txt" "$parts/vendor/luajit-src/luajit2/.relver"
	mv "$parts/vendor/luajit-src/luajit2" "$source"
	rm -rf "$parts/vendor"
}

# write_header tells Go's build cache which build is there.
write_header() {
	line="#define LUAJIT_BUILD \"$stamp\""
	[ "$(cat "$header" 2> /dev/null)" = "$line" ] || echo "$line" > "$header"
}

case ${CC:-} in
*-gcc) cross=${CC%gcc} ;;
*) cross= ;;
esac
stamp=$(cat "$here"/build.sh "$here"/Cargo.toml "$here"/*.patch 2> /dev/null | cksum)${cross:+ $cross}
if [ "$(cat "$dest/stamp" 2> /dev/null)" = "$stamp" ]; then
	write_header
	exit 0
fi

for tool in cc make patch; do
	command -v $tool > /dev/null || fail "$tool is missing"
done
mkdir -p "$root/.build"
exec 9> "$root/.build/luajit.lock"
flock 9
if [ "$(cat "$dest/stamp" 2> /dev/null)" = "$stamp" ]; then
	write_header
	exit 0
fi
fetch

work=$dest.work
rm -rf "$work"
cp -r "$source" "$work"
for p in "$here"/*.patch; do
	[ -f "$p" ] || continue
	patch -s -p1 -d "$work" < "$p" || fail "$(basename "$p") does not apply"
done
make -C "$work/src" -j"$(nproc)" HOST_CC=gcc CROSS="$cross" BUILDMODE=static XCFLAGS="$flags" TARGET_CFLAGS="$target" TARGET_STRIP=@: \
	libluajit.a > "$work/log" 2>&1 || fail "the compiler failed; see $work/log"
rm -rf "$dest"
mkdir -p "$dest/lib" "$dest/include"
cp "$work/src/libluajit.a" "$dest/lib/"
# Of LuaJIT's internal headers, lj_bc.h and lj_traceerr.h list the names of bytecodes and
# the reasons why code is not compiled, for "perigee bench". The others lay out Lua's
# stack, for tailcall.c.
for h in lua.h lualib.h lauxlib.h luaconf.h luajit.h lj_traceerr.h lj_bc.h lj_def.h lj_arch.h lj_obj.h \
	lj_frame.h lj_debug.h lj_vm.h; do
	cp "$work/src/$h" "$dest/include/"
done
echo "$stamp" > "$dest/stamp"
write_header
rm -rf "$work"
