#!/bin/sh
# Builds the LMDB that package nodedb links: version 0.9.36, from the source in the Python package
# "lmdb", without that package's patches, with the edits of guard.sed, and with extend.c. Debian's LMDB
# is from 2019 and only allows keys of up to 511 bytes.
#
#   tools/lmdb/build.sh           .build/lmdb/{lib,include}
#   tools/lmdb/build.sh fetched   succeeds if the source does not have to be downloaded
#
# CC=aarch64-linux-gnu-gcc compiles for another machine, as it does in a build of Go.
#
# The script rebuilds only if this folder has changed. Each build has an identity, which is written to a
# header in nodedb: Go's build cache does not look at archives, and would not link a new one.
set -eu

version=3.0.0 # of the Python package
checksum=06dda0723545e14d56ac7dcd6f582d9922c2ed5e16f1c3f8d0e670a96ec2ee65

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
source=$root/.build/lmdb-source/$checksum
dest=$root/.build/lmdb
header=$root/nodedb/lmdb_build.h

case ${1:-} in
'') ;;
fetched)
	[ -f "$source/LICENSE" ]
	exit ;;
*)
	echo "usage: $0 [fetched]" >&2
	exit 2 ;;
esac

fail() {
	echo "build lmdb: $*" >&2
	exit 1
}

# fetch downloads the source if it is missing.
fetch() {
	[ ! -f "$source/LICENSE" ] || return 0
	command -v python3 > /dev/null || fail "python3 is missing; install Debian's python3-pip"
	parts=$root/.build/lmdb-source
	rm -rf "$parts"
	mkdir -p "$parts/parts"
	python3 -m pip download --quiet --no-deps --no-binary :all: --dest "$parts" "lmdb==$version" > "$parts/log" 2>&1 ||
		fail "pip could not fetch the source; see $parts/log"
	echo "$checksum  $parts/lmdb-$version.tar.gz" | sha256sum -c --quiet - > "$parts/log" 2>&1 ||
		fail "the checksum of the fetched source differs from the one in $0"
	tar -xzf "$parts/lmdb-$version.tar.gz" -C "$parts/parts"
	mv "$parts/parts/lmdb-$version/LICENSE" "$parts/parts/lmdb-$version/lib/"
	mv "$parts/parts/lmdb-$version/lib" "$source"
	rm -rf "$parts/parts" "$parts/lmdb-$version.tar.gz"
}

# write_header writes the identity of the build for Go's build cache.
write_header() {
	line="#define LMDB_BUILD \"$stamp\""
	[ "$(cat "$header" 2> /dev/null)" = "$line" ] || echo "$line" > "$header"
}

case ${CC:-} in
*-gcc) cross=${CC%gcc} compiler=$CC ;;
*) cross='' compiler=cc ;;
esac
stamp=$(cat "$here"/build.sh "$here"/guard.sed "$here"/*.[ch] | cksum)${cross:+ $cross}
if [ "$(cat "$dest/stamp" 2> /dev/null)" = "$stamp" ]; then
	write_header
	exit 0
fi

for tool in "$compiler" "${cross}ar"; do
	command -v "$tool" > /dev/null || fail "$tool is missing"
done
mkdir -p "$root/.build"
exec 9> "$root/.build/lmdb.lock"
flock 9
if [ "$(cat "$dest/stamp" 2> /dev/null)" = "$stamp" ]; then
	write_header
	exit 0
fi
fetch

# MDB_MAXKEYSIZE=0 allows keys as long as a page permits: 1,980 bytes. LMDB's assertions name their
# file: without its folder, builds in two folders have the same bytes.
compile() {
	"$compiler" -O2 -g "-ffile-prefix-map=$root=." -fPIC -pthread -DMDB_MAXKEYSIZE=0 "-I$work" "-I$source" "-I$here" -w -c "$1" -o "$2" 2>> "$work/log" ||
		fail "the compiler failed; see $work/log"
}
work=$dest.work
rm -rf "$work"
mkdir -p "$work/lib" "$work/include"
sed -f "$here/guard.sed" "$source/mdb.c" > "$work/mdb.c"
edits=$(grep -c 'guard_' "$work/mdb.c")
[ "$edits" = 24 ] || fail "guard.sed made $edits edits, not 24: does it fit this version of LMDB?"
compile "$source/midl.c" "$work/midl.o"
compile "$here/extend.c" "$work/extend.o"
"${cross}ar" rcs "$work/lib/liblmdb.a" "$work/midl.o" "$work/extend.o"
cp "$source/lmdb.h" "$here/extend.h" "$work/include/"
mv "$work/include/extend.h" "$work/include/lmdb_extend.h"
rm -f "$work"/*.o "$work/mdb.c"
echo "$stamp" > "$work/stamp"
rm -rf "$dest"
mv "$work" "$dest"
write_header
