"""Measures how long engines take to scan the files of a lake, and the same rows in small row groups.

usage: scan.py LOCATION FOLDER ENGINE

LOCATION is the folder of an Iceberg table with the columns event, campaign and score. FOLDER
gets a copy of it whose files have row groups of 16,384 rows; a second run uses that copy again.
It prints the median of the times of a warm scan, in seconds, of the table and of the copy.
"""
import glob
import os
import statistics
import sys
import time

location, folder, name = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))


def newest(location):
    return max(glob.glob(location + "/metadata/*.metadata.json"), key=os.path.getmtime)


def copy():
    """Writes the copy, file by file, and returns its folder."""
    import duckdb
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(newest(location))
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    os.makedirs(folder + "/files")
    catalog = SqlCatalog("copy", uri=f"sqlite:///{folder}/catalog.db", warehouse="file://" + folder)
    catalog.create_namespace("copy")
    paths = []
    for i, file in enumerate(files):
        paths.append(f"{folder}/files/{i}.parquet")
        duckdb.sql(f"COPY (FROM read_parquet('{file}')) TO '{paths[-1]}' (COMPRESSION zstd, ROW_GROUP_SIZE 16384, PARQUET_VERSION V1)")
    import pyarrow.parquet

    made = catalog.create_table("copy.events", pyarrow.parquet.read_schema(paths[0]))
    made.add_files(["file://" + path for path in paths])
    return made.location().removeprefix("file://")


def scan(location):
    """Returns a function that scans a table once."""
    sql = "SELECT event, count(*), sum(score) FROM {} WHERE campaign < 40 GROUP BY event"
    if name == "pyiceberg":
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(newest(location))
        return lambda: table.scan(selected_fields=("event", "score"), row_filter="campaign < 40").to_arrow().group_by("event").aggregate([("score", "sum")])
    if name == "duckdb":
        import duckdb
        import duckdb_extension_avro
        import duckdb_extension_iceberg

        db = duckdb.connect()
        for package in (duckdb_extension_avro, duckdb_extension_iceberg):
            for path in glob.glob(os.path.dirname(package.__file__) + "/extensions/*/*.duckdb_extension"):
                db.execute(f"LOAD '{path}'")
        return lambda: db.execute(sql.format(f"iceberg_scan('{newest(location)}')")).fetchall()
    if name == "chdb":
        from chdb import session

        os.chdir("/")
        one = session.Session()
        return lambda: one.query(sql.format(f"icebergLocal('{location}')")).bytes()
    if name == "sail":
        from pysail.spark import SparkConnectServer
        from pyspark.sql import SparkSession

        server = SparkConnectServer("127.0.0.1", 0)
        server.start()
        spark = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").create()
        spark.read.format("iceberg").load(location).createOrReplaceTempView("t")
        scan.kept = getattr(scan, "kept", []) + [server]
        return lambda: spark.sql(sql.format("t")).collect()
    raise SystemExit("unknown engine " + name)


marker = folder + "/location"
if not os.path.exists(marker):
    with open(marker + ".new", "w") as file:
        file.write(copy())
    os.rename(marker + ".new", marker)
runs = {"published": scan(location), "small": scan(open(marker).read())}
times = {kind: [] for kind in runs}
for turn in range(8):
    for kind, run in runs.items():
        begun = time.monotonic()
        run()
        if turn > 0:
            times[kind].append(time.monotonic() - begun)
print(*(statistics.median(times[kind]) for kind in ("published", "small")), flush=True)
os._exit(0)
