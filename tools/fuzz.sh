#!/bin/sh
# tools/fuzz.sh SECONDS: runs every fuzz target for so many seconds, one per core at a time,
# also after one has found something, and fails if any did. Failing inputs stay under
# testdata/fuzz, where every later test runs them.
#
# tools/fuzz.sh SECONDS PACKAGE TARGET runs one.
set -eu
cd "$(dirname "$0")/.."
seconds=$1
logs=.build/fuzz

if [ $# = 3 ]; then
  log=$logs/$3-$(echo "$2" | tr / -)
  # Without a limit minimizing takes most of the time. Now and then go test takes the end of the
  # time for a failure, and names no input.
  if tools/go.sh test "./$2" -run '^$' -fuzz "^$3\$" -fuzztime "${seconds}s" -fuzzminimizetime 10x -parallel 1 >"$log" 2>&1 ||
    { grep -q '^    context deadline exceeded$' "$log" && ! grep -q 'Failing input' "$log"; }; then
    printf 'ok    %s in %s: %s\n' "$3" "$2" "$(grep '^fuzz: elapsed' "$log" | tail -n 1)"
    exit
  fi
  printf 'FAIL  %s in %s\n%s\n' "$3" "$2" "$(cat "$log")"
  exit 1
fi

rm -rf $logs
mkdir -p $logs
targets=$(git grep -o '^func Fuzz[A-Za-z0-9]*' -- '*_test.go' | sed 's|/[^/]*:func | |')
[ -n "$targets" ]
echo "$targets" | xargs -n 2 -P "$(nproc)" tools/fuzz.sh "$seconds" ||
  { echo 'fuzz: inputs that fail are under testdata/fuzz'; exit 1; }
echo "fuzz: nothing found in $(echo "$targets" | wc -l) targets of $seconds s each"
