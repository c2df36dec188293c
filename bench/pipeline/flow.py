# Two processes, each popping a thousand events at a time and inserting them by executemany.
import json
import multiprocessing
import sys

import pymysql
import redis

redis_at, key, mysql_at, database = sys.argv[1:5]
INSERT = ("INSERT INTO events (id, event_name, email, domain, topic, campaign_number, time, url)"
          " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)")


def row(text):
    event = json.loads(text)
    if event["event_name"] == "spam":
        return None
    _, at, domain = event["email"].partition("@")
    if not at:
        return None
    topic, _, number = event["campaign"].rpartition("-")
    time = event["time"].replace("T", " ").rstrip("Z")
    return event["id"], event["event_name"], event["email"], domain, topic, number, time, event["url"]


def work():
    host, port = redis_at.split(":")
    queue = redis.Redis(host=host, port=int(port))
    host, port = mysql_at.split(":")
    db = pymysql.connect(host=host, port=int(port), user="root", database=database, charset="utf8mb4")
    with db.cursor() as cursor:
        while events := queue.lpop(key, 1000):
            rows = [r for r in map(row, events) if r]
            cursor.executemany(INSERT, rows)
            db.commit()


if __name__ == "__main__":
    workers = [multiprocessing.Process(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(any(worker.exitcode for worker in workers))
