"""Reads an Iceberg table with pyiceberg and DuckDB, which must agree, and prints its rows.

usage: rows.py LOCATION

LOCATION is the table's folder. It prints a line for each column, with its name and type, then
an empty line, then a line of JSON for each row.
"""
import glob
import json
import os
import sys

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
from pyiceberg.table import StaticTable

metadata = max(glob.glob(sys.argv[1] + "/metadata/*.metadata.json"), key=os.path.getmtime)
table = StaticTable.from_metadata(metadata)
db = duckdb.connect()
for package in (duckdb_extension_avro, duckdb_extension_iceberg):
    for path in glob.glob(os.path.dirname(package.__file__) + "/extensions/*/*.duckdb_extension"):
        db.execute(f"LOAD '{path}'")
names = [field.name for field in table.schema().fields]
listed = ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def lines(rows):
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


ours = lines(table.scan().to_arrow().to_pylist())
theirs = lines(db.execute(f"SELECT {listed} FROM iceberg_scan('{metadata}')").to_arrow_table().to_pylist())
if ours != theirs:
    sys.exit(f"pyiceberg and DuckDB differ: {[a for a in zip(ours, theirs) if a[0] != a[1]][:3]}, {len(ours)} and {len(theirs)} rows")
for field in table.schema().fields:
    print(field.name, field.field_type)
print()
print("\n".join(ours), flush=True)
os._exit(0)
