#!/bin/sh
# Bundles the libraries of the console into console/assets/vendor, from the versions in
# package-lock.json. The results are checked in: only a change of a library needs this.
#
#   tools/console/build.sh          installs with npm, and writes the bundles
#   tools/console/build.sh install  only installs, into .build/console
set -eu
cd "$(dirname "$0")/../.."
to=.build/console
vendor=console/assets/vendor

install_packages() {
  mkdir -p "$to"
  cmp -s tools/console/package-lock.json "$to/package-lock.json" && [ -f "$to/complete" ] && return
  cp tools/console/package.json tools/console/package-lock.json "$to/"
  (cd "$to" && npm ci --no-audit --no-fund --loglevel=error >npm.log 2>&1) ||
    { echo "npm could not get the packages; its output is in $to/npm.log" >&2; exit 1; }
  touch "$to/complete"
}

# licence NAME FOLDER: prints a package's licence below its name and version.
licence() {
  package=$to/node_modules/$1
  printf '%s %s\n\n' "$1" "$(sed -n 's/^ *"version": "\(.*\)",*$/\1/p' "$package/package.json" | head -n 1)"
  cat "$package"/LICENSE*
  printf '\n%s\n\n' '--------------------------------------------------------------------------------'
}

install_packages
[ "${1:-}" = install ] && exit
mkdir -p "$vendor"
for name in codemirror preact uplot; do
  cp "tools/console/$name.js" "$to/"
  "$to/node_modules/.bin/esbuild" "$to/$name.js" --bundle --minify --format=esm --target=es2022 \
    --legal-comments=none --outfile="$vendor/$name.js" --log-level=warning
done
gzip -9nf "$vendor/codemirror.js" # browsers take it as it is
cp "$to/node_modules/uplot/dist/uPlot.min.css" "$vendor/uplot.css"
for package in preact htm uplot crelt style-mod w3c-keyname @marijn/find-cluster-break \
  @codemirror/autocomplete @codemirror/commands @codemirror/lang-json @codemirror/lang-sql @codemirror/language \
  @codemirror/legacy-modes @codemirror/state @codemirror/view @lezer/common @lezer/highlight @lezer/json @lezer/lr; do
  licence "$package"
done >"$vendor/LICENSES.txt"
