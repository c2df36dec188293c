#!/bin/sh
# Runs all linters, even after one has failed, and fails if any did.
set -eu
cd "$(dirname "$0")/.."
failed=0

# step NAME COMMAND…: runs a command and prints its output if it fails.
step() {
  name=$1; shift
  if output=$("$@" 2>&1); then
    printf 'ok    %s\n' "$name"
  else
    printf 'FAIL  %s\n%s\n' "$name" "$output"
    failed=1
  fi
}

formatted() {
  gofmt=$(dirname "$(command -v "$(tools/go.sh -path)")")/gofmt
  unformatted=$("$gofmt" -l $(git ls-files '*.go'))
  [ -z "$unformatted" ] || { echo "run gofmt -w on:"; echo "$unformatted"; return 1; }
}
c_formatted() {
  git ls-files 'internal/luajit/*.[ch]' 'internal/document/*.[ch]' 'nodedb/*.[ch]' 'eventstore/*.[ch]' | grep -v testdata/ | xargs clang-format --dry-run -Werror ||
    { echo 'run clang-format -i on these files'; return 1; }
}
# Not through CGO_CFLAGS: those flags would apply to the Go runtime's C too.
c_warnings() {
  git ls-files '*.c' | grep -v -e testdata/ -e tools/lmdb/ |
    xargs -n 1 gcc -std=gnu11 -O2 -Wall -Wextra -Werror -fsyntax-only -I .build/luajit/include -I .build/lmdb/include
}
# c_structure: every global symbol of C has the prefix of its library, and the files of a library
# call each other only downwards. LuaJIT calls luaJIT_unhandled, see tools/luajit.
c_structure() {
  work=$(mktemp -d)
  faults=$(
    while read -r folder prefix; do
      for source in $(git ls-files "$folder/*.c" | grep -v -e testdata/ -e /native/); do
        gcc -std=gnu11 -w -c -I .build/luajit/include -I .build/lmdb/include "$source" -o "$work/object.o" || echo "$source does not compile"
        nm --defined-only --extern-only --format=posix "$work/object.o" | sed "s|\( .*\)*\$| $source|" >> "$work/defined"
        nm --undefined-only --format=posix "$work/object.o" | sed "s|\( .*\)*\$| $source|" >> "$work/used"
      done
      grep -v -e "^$prefix" -e '^luaJIT_unhandled ' "$work/defined" | sed "s|\$| lacks the prefix $prefix|" || true
      git grep -nE '^//export ' -- "$folder/*.go" | grep -v "//export $prefix" || true
      sort "$work/defined" > "$work/defined.sorted"
      sort "$work/used" | join - "$work/defined.sorted" | cut -d ' ' -f 2,3 | sort -u > "$work/calls"
      tsort "$work/calls" 2>&1 > /dev/null | sed -n 's|^tsort: \([^-].*\.c\)$|\1 is in a cycle of calls|p'
      rm "$work"/*
    done <<EOF
internal/document doc_
internal/luajit plua_
nodedb ndb_
eventstore pes_
EOF
  )
  rm -r "$work"
  [ -z "$faults" ] || { echo "$faults"; return 1; }
}
lua_lint() { git ls-files '*.lua' | xargs luacheck --quiet --no-color; }
shell_lint() { git ls-files '*.sh' .ci/run 'packaging/deb/post*' packaging/deb/prerm | xargs shellcheck -e SC1091,SC2046,SC2317; }
in_bench() { (cd bench && ../tools/go.sh vet ./... && cd peers && ../../tools/go.sh vet ./...); }

step gofmt formatted
step vet tools/go.sh vet ./...
step 'vet, no cgo' env CGO_ENABLED=0 tools/go.sh vet ./...
step 'vet, no build tag' env GOFLAGS= "$(tools/go.sh -path)" vet ./...
step 'vet, bench' in_bench
step staticcheck tools/go.sh tool staticcheck ./...
step clang-format c_formatted
step 'C warnings' c_warnings
step 'C structure' c_structure
step luacheck lua_lint
step shellcheck shell_lint
exit $failed
