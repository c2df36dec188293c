"""Reads an Iceberg table with several engines and compares what they see with the truth.

usage: engines.py TRUTH LOCATION ENGINE...

TRUTH is a file of JSON: {"columns": [...], "where": [{"sql": ..., "ids": [...]}, ...],
"rows": [[...], ...]}, with times in microseconds since 1970, and bytes in hexadecimal digits.
LOCATION is the table's folder, or CATALOG#WAREHOUSE#TABLE for a REST catalog, whose
credential is in PERIGEE_LAKE_TOKEN. It prints a line for each engine: ENGINE agree, or ENGINE and
what differs.
"""
import datetime
import decimal
import glob
import json
import os
import re
import sys

truth = json.load(open(sys.argv[1]))
location = sys.argv[2]
if "#" in location:
    from pyiceberg.catalog.rest import RestCatalog

    address, warehouse, name = location.split("#")
    s3 = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"], "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"], "s3.region": "us-east-1"}
    catalog = RestCatalog("lake", uri=address, warehouse=warehouse, credential=os.environ["PERIGEE_LAKE_TOKEN"], **s3)
    table = catalog.load_table(name)
    metadata, location = table.metadata_location, table.location()
else:
    catalog = table = None
    metadata = max(glob.glob(location + "/metadata/*.metadata.json"), key=os.path.getmtime)
utc = datetime.timezone.utc
epoch = datetime.datetime(1970, 1, 1, tzinfo=utc)


def plain(value):
    """Returns a value as the truth spells it."""
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise ValueError("a time without a time zone")
        return (value - epoch) // datetime.timedelta(microseconds=1)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, decimal.Decimal):
        return str(value)
    return value


class PyIceberg:
    def __init__(self):
        from pyiceberg.table import StaticTable

        self.table = table or StaticTable.from_metadata(metadata)

    def rows(self, columns, where):
        scan = self.table.scan(selected_fields=tuple(columns), row_filter=re.sub(r"TIMESTAMP '(\S+) ", r"'\1T", where) if where else "true")
        table = scan.to_arrow().select(columns)
        return [tuple(row.values()) for row in table.to_pylist()]


class DuckDB:
    def __init__(self):
        import duckdb
        import duckdb_extension_avro
        import duckdb_extension_httpfs
        import duckdb_extension_iceberg

        self.db = duckdb.connect()
        for package in (duckdb_extension_avro, duckdb_extension_httpfs, duckdb_extension_iceberg):
            for path in glob.glob(os.path.dirname(package.__file__) + "/extensions/*/*.duckdb_extension"):
                self.db.execute(f"LOAD '{path}'")
        if catalog:
            endpoint = s3["s3.endpoint"].removeprefix("http://")
            self.db.execute(f"CREATE SECRET (TYPE s3, KEY_ID '{s3['s3.access-key-id']}', SECRET '{s3['s3.secret-access-key']}', ENDPOINT '{endpoint}', URL_STYLE 'path', USE_SSL false, REGION 'us-east-1')")
        self.db.execute("SET TimeZone = 'Asia/Tokyo'")
        self.db.execute(f"CREATE VIEW t AS FROM iceberg_scan('{metadata}')")

    def rows(self, columns, where):
        sql = "SELECT " + ", ".join(f'"{c}"' for c in columns) + " FROM t" + (" WHERE " + where.replace("TIMESTAMP", "TIMESTAMPTZ") if where else "")
        return [tuple(row.values()) for row in self.db.execute(sql).to_arrow_table().to_pylist()]


class Chdb:
    def __init__(self):
        from chdb import session

        self.source = f"icebergLocal('{location}')"
        if catalog:
            self.source = f"icebergS3('{s3['s3.endpoint']}/{location.removeprefix('s3://')}', '{s3['s3.access-key-id']}', '{s3['s3.secret-access-key']}')"
        os.chdir("/")  # it reads files below the working folder only
        self.session = session.Session()
        self.session.query("SET session_timezone = 'Asia/Tokyo'")

    def rows(self, columns, where):
        where = where.replace("TIMESTAMP '", "toDateTime64('").replace("+00:00'", "', 6, 'UTC')") if where else "true"
        names = []
        for c in columns:
            name = f'"{c}"'
            if c in truth["times"]:
                name = f"toUnixTimestamp64Micro({name})"
            elif c in truth["bytes"]:
                name = f"lower(hex({name}))"
            elif c in truth["decimals"]:
                name = f"toDecimalString({name}, {truth['decimals'][c]})"
            names.append(name + f' AS "c{len(names)}"')
        sql = f"SELECT {', '.join(names)} FROM {self.source} WHERE {where} FORMAT JSONCompactEachRow SETTINGS output_format_json_quote_64bit_integers=0, output_format_json_quote_denormals=1"
        text = self.session.query(sql).bytes().decode()
        return [tuple(json.loads(line)) for line in text.splitlines()]


class Sail:
    def __init__(self):
        from pysail.spark import SparkConnectServer
        from pyspark.sql import SparkSession

        self.server = SparkConnectServer("127.0.0.1", 0)
        self.server.start()
        _, port = self.server.listening_address
        self.session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        self.session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        self.session.read.format("iceberg").load(location).createOrReplaceTempView("t")

    def rows(self, columns, where):
        names = [f"unix_micros(`{c}`) AS `{c}`" if c in truth["times"] else f"`{c}`" for c in columns]
        sql = "SELECT " + ", ".join(names) + " FROM t" + (f" WHERE {where}" if where else "")
        return [tuple(row) for row in self.session.sql(sql).collect()]


class Spark:
    """Spark with Iceberg's own library."""

    def __init__(self, jar):
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").config("spark.jars", jar).config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", "2")
        self.session = builder.config("spark.driver.memory", "1g").config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
        self.session.sparkContext.setLogLevel("OFF")
        self.session.read.format("iceberg").load("file:" + metadata).createOrReplaceTempView("t")

    rows = Sail.rows


class Trino:
    def __init__(self, home, java):
        import trino

        self.server = trino.Server(home, java, ["connector.name=iceberg", "iceberg.catalog.type=TESTING_FILE_METASTORE", "hive.metastore.catalog.dir=FOLDER/metastore", "fs.hadoop.enabled=true", "iceberg.register-table-procedure.enabled=true"])
        self.close = self.server.close
        self.server.ask("CREATE SCHEMA lake.test")
        self.server.ask(f"CALL lake.system.register_table('test', 't', 'file://{location}')")

    def rows(self, columns, where):
        names = []
        for c in columns:
            name = f'"{c}"'
            if c in truth["times"]:
                name = f"CAST(round(to_unixtime({name}) * 1000000) AS bigint)"
            elif c in truth["bytes"]:
                name = f"lower(to_hex({name}))"
            names.append(name)
        where = where.replace("+00:00", " UTC") if where else "true"
        return [tuple(row) for row in self.server.ask(f"SELECT {', '.join(names)} FROM lake.test.t WHERE {where}")]


def differences(engine):
    columns = truth["columns"]
    want = {tuple(row) for row in map(tuple, truth["rows"])}
    rows = [tuple(map(plain, row)) for row in engine.rows(columns, None)]
    got = set(rows)
    if len(got) != len(rows) or len(want) != len(truth["rows"]):
        yield f"{len(rows)} rows, {len(got)} different ones"
    for row in sorted(want - got, key=repr)[:3]:
        yield f"does not have {row}"
    for row in sorted(got - want, key=repr)[:3]:
        yield f"has {row}"
    for test in truth["where"]:
        try:
            ids = sorted(row[0] for row in engine.rows(["id"], test["sql"]))
        except Exception as error:
            yield f"{test['sql']}: {error}"
            continue
        if ids != test["ids"]:
            yield f"{test['sql']}: {len(ids)} rows instead of {len(test['ids'])}"


kinds = {"pyiceberg": PyIceberg, "duckdb": DuckDB, "chdb": Chdb, "sail": Sail, "spark": Spark, "trino": Trino}
for name in sys.argv[3:]:
    kind, *settings = name.split("=", 1)
    name, engine = kind, None
    try:
        engine = kinds[kind](*",".join(settings).split(",") if settings else [])
        found = list(differences(engine))
    except Exception as error:
        found = [repr(error)]
    finally:
        if hasattr(engine, "close"):
            engine.close()
    print(name, "; ".join(found)[:2000] if found else "agree", flush=True)
os._exit(0)
