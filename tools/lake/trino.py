"""Starts a Trino server and asks it over HTTP."""
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request


class Server:
    """A private Trino whose catalog lake has these properties."""

    def __init__(self, home, java, properties):
        self.folder = tempfile.mkdtemp()
        port = socket.create_server(("127.0.0.1", 0)).getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        for path, lines in {
            "config.properties": ["coordinator=true", "node-scheduler.include-coordinator=true", f"http-server.http.port={port}", f"discovery.uri={self.address}", f"plugin.dir={home}/plugin", f"catalog.config-dir={self.folder}/catalogs"],
            "catalogs/lake.properties": [line.replace("FOLDER", self.folder) for line in properties],
        }.items():
            os.makedirs(os.path.dirname(f"{self.folder}/{path}"), exist_ok=True)
            with open(f"{self.folder}/{path}", "w") as file:
                file.write("\n".join(lines) + "\n")
        flags = ["-Xmx1500M", "--add-opens=java.base/java.nio=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED", "-Djdk.attach.allowAttachSelf=true"]
        options = [f"-Dconfig={self.folder}/config.properties", "-Dnode.environment=test", f"-Dnode.data-dir={self.folder}/data"]
        self.log = open(f"{self.folder}/log", "w+")
        self.server = subprocess.Popen([java, *flags, *options, "-cp", f"{home}/lib/*", "io.trino.server.TrinoServer"], cwd=self.folder, stdout=self.log, stderr=self.log)
        self.ready()

    def ready(self):
        end = time.monotonic() + 120
        while True:
            try:
                return self.ask("SELECT 1 FROM system.runtime.nodes")
            except Exception:
                if time.monotonic() > end or self.server.poll() is not None:
                    self.log.seek(0)
                    raise RuntimeError("Trino does not start: " + self.log.read()[-2000:])
                time.sleep(0.5)

    def ask(self, sql):
        request = urllib.request.Request(self.address + "/v1/statement", sql.encode(), {"X-Trino-User": "test", "X-Trino-Time-Zone": "Asia/Tokyo"})
        rows = []
        while True:
            answer = json.load(urllib.request.urlopen(request))
            if "error" in answer:
                raise RuntimeError(answer["error"]["message"])
            rows += answer.get("data", [])
            if "nextUri" not in answer:
                return rows
            request = answer["nextUri"]

    def close(self):
        self.server.kill()
        self.server.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
