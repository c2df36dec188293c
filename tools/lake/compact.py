"""Compacts the tables of a warehouse that is its own catalog with Spark, and expires all snapshots but one.

usage: compact.py JAR WAREHOUSE TABLE
"""
import os
import sys

from pyspark.sql import SparkSession

jar, warehouse, table = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.jars", jar).config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "1g")
builder = builder.config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions").config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
session = builder.config("spark.sql.catalog.lake.type", "hadoop").config("spark.sql.catalog.lake.warehouse", "file:" + warehouse).getOrCreate()
session.sparkContext.setLogLevel("OFF")
rewritten = session.sql(f"CALL lake.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))").collect()[0]
session.sql(f"CALL lake.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1)").collect()
print("rewritten", rewritten["rewritten_data_files_count"], flush=True)
os._exit(0)
