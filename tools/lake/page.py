"""Runs the program of an engine in docs/scale.md.

usage: page.py ADDRESS TOKEN SECTION [SETTINGS]

ADDRESS is that of a REST catalog. SETTINGS are the jar of Iceberg for Spark, or for Trino its
folder and a Java, with a comma between them.
"""
import glob
import importlib
import os
import re
import sys

here = os.path.dirname(os.path.abspath(__file__))
address, token, section = sys.argv[1:4]
settings = sys.argv[4].split(",") if len(sys.argv) > 4 else []
with open(here + "/../../docs/scale.md") as page:
    text = page.read().split(f"\n### {section}\n")[1].split("\n#")[0]
text = text.replace("http://127.0.0.1:4292/iceberg", address).replace("THE-TOKEN", token)
blocks = re.findall(r"```(\w+)\n(.*?)```", text, re.S)

if section == "Trino":
    import trino

    server = trino.Server(*settings, dict(blocks)["properties"].splitlines())
    try:
        print(server.ask(dict(blocks)["sql"])[0][0], flush=True)
    finally:
        server.close()
    os._exit(0)

program = dict(blocks)["python"]
if section == "DuckDB":  # which takes extensions from its own server otherwise
    import duckdb

    def load(db, name):
        package = importlib.import_module("duckdb_extension_" + name)
        for path in glob.glob(os.path.dirname(package.__file__) + "/extensions/*/*.duckdb_extension"):
            db.execute(f"LOAD '{path}'")

    duckdb.DuckDBPyConnection.install_extension = lambda db, name: None
    duckdb.DuckDBPyConnection.load_extension = load
elif section == "ClickHouse":
    os.chdir("/")
elif section == "Spark":
    program = re.sub(r'"spark.jars.packages", ".*?"', f'"spark.jars", "{settings[0]}"', program)
exec(compile(program, section, "exec"), {"__name__": "__main__"})
sys.stdout.flush()
os._exit(0)
