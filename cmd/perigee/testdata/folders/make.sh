#!/bin/sh
# make.sh PERIGEE NAME: keeps the folder that a version writes as NAME.tar.zst, for TestFoldersOfEarlierVersions.
# Run it when a format is raised, with the last version that had the format before.
set -eu
perigee=$1 name=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here"/*.yaml "$here"/*.lua "$work"
cd "$work"
"$perigee" run pipeline.yaml                                           # 200 events, some of them dead letters
"$perigee" table delete events 'WHERE id = 1' --data data --yes        # the log becomes a Parquet file
EVENTS=230 "$perigee" run pipeline.yaml                                # another partition, whose rows stay in the log
"$perigee" node set nodes '^users(7,"name")' Ada
"$perigee" node set nodes '^users(8,"name")' Bob
"$perigee" pause emails --data data --reason 'kept as it is'
if "$perigee" check counts.yaml >/dev/null 2>&1; then "$perigee" run counts.yaml; fi # since states exist
rm -f data/perigee.sock nodes/lock.mdb nodes/shared
tar --sparse --sort=name --owner=0 --group=0 --mtime=@0 -cf - data files nodes | zstd -q -19 >"$here/$name.tar.zst"
