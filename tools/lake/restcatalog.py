"""Reads a table through a REST catalog with several engines.

usage: restcatalog.py ADDRESS TOKEN NAMESPACE TABLE ENGINE...

It prints a line for each engine: its name, the number of rows and the sum of the column id, or
an error.
"""
import glob
import os
import sys

address, token, namespace, name = sys.argv[1:5]


def pyiceberg():
    from pyiceberg.catalog.rest import RestCatalog

    catalog = RestCatalog("perigee", uri=address, token=token)
    assert (namespace,) in catalog.list_namespaces(), catalog.list_namespaces()
    assert (namespace, name) in catalog.list_tables(namespace), catalog.list_tables(namespace)
    assert catalog.table_exists((namespace, name)) and not catalog.table_exists((namespace, "other"))
    assert catalog.namespace_exists(namespace) and not catalog.namespace_exists("other")
    for write in (lambda: catalog.drop_table((namespace, name)), lambda: catalog.create_namespace("new")):
        try:
            write()
        except Exception as error:
            assert "only be read" in str(error) or "not support" in str(error).lower(), error
        else:
            raise AssertionError("a write succeeded")
    rows = catalog.load_table((namespace, name)).scan(selected_fields=("id",)).to_arrow()
    return rows.num_rows, sum(rows["id"].to_pylist())


def duckdb():
    import duckdb
    import duckdb_extension_avro
    import duckdb_extension_httpfs
    import duckdb_extension_iceberg

    db = duckdb.connect()
    for package in (duckdb_extension_httpfs, duckdb_extension_avro, duckdb_extension_iceberg):
        for path in glob.glob(os.path.dirname(package.__file__) + "/extensions/*/*.duckdb_extension"):
            db.execute(f"LOAD '{path}'")
    db.execute(f"CREATE SECRET s (TYPE iceberg, TOKEN '{token}')")
    db.execute(f"ATTACH 'perigee' AS lake (TYPE iceberg, ENDPOINT '{address}', SECRET s)")
    return db.execute(f"SELECT count(*), sum(id)::BIGINT FROM lake.{namespace}.{name}").fetchone()


def chdb():
    from chdb import session

    os.chdir("/")
    s = session.Session()
    s.query("SET allow_experimental_database_iceberg = 1")
    s.query(f"CREATE DATABASE lake ENGINE = DataLakeCatalog('{address}/v1', 'Parquet') SETTINGS catalog_type = 'rest', auth_header = 'Authorization: Bearer {token}', warehouse = 'perigee'")
    text = s.query(f"SELECT count(), sum(id) FROM lake.`{namespace}.{name}` FORMAT TSV").bytes().decode()
    return tuple(map(int, text.split()))


def sail():
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    os.environ["SAIL_CATALOG__LIST"] = f'[{{type="iceberg-rest", name="lake", uri="{address}", oauth_access_token="{token}"}}]'
    os.environ["SAIL_CATALOG__DEFAULT_CATALOG"] = "lake"
    server = SparkConnectServer("127.0.0.1", 0)
    server.start()
    _, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    return tuple(session.sql(f"SELECT count(*), sum(id) FROM lake.{namespace}.{name}").collect()[0])


for engine in sys.argv[5:]:
    try:
        print(engine, *{"pyiceberg": pyiceberg, "duckdb": duckdb, "chdb": chdb, "sail": sail}[engine](), flush=True)
    except Exception as error:
        print(engine, " ".join(repr(error).split())[:1000], flush=True)
os._exit(0)
