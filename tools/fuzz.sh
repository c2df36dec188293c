#!/bin/sh
# tools/fuzz.sh DURATION: runs all fuzz targets, each for an equal part of DURATION (such
# as 10m). Failing inputs stay under testdata/fuzz, where every later test runs them.
set -eu
cd "$(dirname "$0")/.."
seconds=$((${1%m} * 60))

targets=$(git grep -ho '^func Fuzz[A-Za-z0-9]*' -- '*_test.go' | wc -l)
[ "$targets" -gt 0 ]
share=$((seconds / targets))
git grep -o '^func Fuzz[A-Za-z0-9]*' -- '*_test.go' | sort | while IFS=: read -r file function; do
  name=${function#func }
  printf 'fuzz: %s, %d s\n' "$name" "$share"
  # Without a limit minimizing takes most of the time.
  tools/go.sh test "./$(dirname "$file")" -run '^$' -fuzz "^$name\$" -fuzztime "${share}s" -fuzzminimizetime 10x >.build/fuzz.log 2>&1 ||
    { cat .build/fuzz.log; exit 1; }
  tail -n 3 .build/fuzz.log | head -n 1
done
echo "fuzz: nothing found in $targets targets"
