#!/bin/sh
# Builds the LuaJIT that Perigee links: Debian's source package, with the hook
# checks in compiled code without which no limit could stop a compiled loop.
#
#   tools/luajit/build.sh         .build/luajit/{lib,include}
#   tools/luajit/build.sh asan    .build/luajit-asan/{lib,include}, instrumented
#
# A second call does nothing unless this folder has changed. Each build has an identity,
# written into a header in internal/luajit (see luajit_build in vm.c): Go's build cache
# does not look at archives, and would not link a new one.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=$root/.build/luajit-source

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
*)
	echo "usage: $0 [asan]" >&2
	exit 2 ;;
esac

fail() {
	echo "build luajit: $*" >&2
	exit 1
}

# sources DIR writes an apt source list into DIR: this machine's own entries for
# its release, as deb-src. /etc stays as it is.
sources() {
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	[ -n "$codename" ] || fail "this system's release has no codename; LuaJIT is built from Debian's source package"
	for f in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
		[ -f "$f" ] || continue
		case $f in
		*.sources)
			awk -v RS= -v ORS='\n\n' -v want="$codename" '
				$0 ~ "(^|\n)Suites:[^\n]*[ \t]" want "([ \t\n]|$)" {
					sub(/(^|\n)Types:[^\n]*/, "\nTypes: deb-src"); sub(/^\n/, ""); print
				}' "$f" >> "$1/own.sources" ;;
		*.list)
			awk -v want="$codename" '
				$1 ~ /^deb(-src)?$/ && $0 ~ "[ \t]" want "[ \t]" { sub(/^deb(-src)?/, "deb-src"); print }' "$f" |
				sort -u >> "$1/own.list" ;;
		esac
	done
	[ -s "$1/own.sources" ] || [ -s "$1/own.list" ] || fail "no package source for $codename in /etc/apt"
}

# fetch downloads and unpacks the source package once.
fetch() {
	[ -f "$cache/unpacked" ] && return
	command -v dpkg-source > /dev/null || fail "dpkg-source is missing; install dpkg-dev"
	rm -rf "$cache"
	mkdir -p "$cache/parts" "$cache/lists/partial"
	sources "$cache/parts"
	apt="apt-get -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$cache/parts -o Dir::State::lists=$cache/lists -o APT::Sandbox::User=root"
	{ $apt update && (cd "$cache" && $apt source --download-only luajit); } > "$cache/log" 2>&1 ||
		fail "the source package could not be fetched; see $cache/log"
	(cd "$cache" && dpkg-source -x luajit_*.dsc unpacked.d) >> "$cache/log" 2>&1 ||
		fail "the source package could not be unpacked; see $cache/log"
	touch "$cache/unpacked"
}

# write_header tells Go's build cache which build is there.
write_header() {
	line="#define LUAJIT_BUILD \"$stamp\""
	[ "$(cat "$header" 2> /dev/null)" = "$line" ] || echo "$line" > "$header"
}

stamp=$(cat "$here"/build.sh "$here"/*.patch 2> /dev/null | cksum)
if [ "$(cat "$dest/stamp" 2> /dev/null)" = "$stamp" ]; then
	write_header
	exit 0
fi

for tool in cc make; do
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
cp -r "$cache/unpacked.d" "$work"
for p in "$here"/*.patch; do
	[ -f "$p" ] || continue
	patch -s -p1 -d "$work" < "$p" || fail "$(basename "$p") does not apply to $(basename "$cache"/luajit_*.dsc .dsc)"
done
make -C "$work/src" -j"$(nproc)" BUILDMODE=static XCFLAGS="$flags" TARGET_CFLAGS="$target" TARGET_STRIP=@: \
	libluajit.a > "$work/log" 2>&1 || fail "the compiler failed; see $work/log"
rm -rf "$dest"
mkdir -p "$dest/lib" "$dest/include"
cp "$work/src/libluajit.a" "$dest/lib/"
# Of LuaJIT's internal headers, lj_bc.h and lj_traceerr.h list the names of bytecodes and
# the reasons why code is not compiled, for "perigee bench". The others lay out Lua's
# stack, for last.c.
for h in lua.h lualib.h lauxlib.h luaconf.h luajit.h lj_traceerr.h lj_bc.h lj_def.h lj_arch.h lj_obj.h \
	lj_frame.h lj_debug.h lj_vm.h; do
	cp "$work/src/$h" "$dest/include/"
done
echo "$stamp" > "$dest/stamp"
write_header
rm -rf "$work"
