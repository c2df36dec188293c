#!/bin/sh
# tools/bare-debian.sh [TARGET…]: runs make TARGET (default: demo) as root in a
# minimal Debian that has nothing but git and make, on a clone of the last commit.
#
# The Debian is made below /tmp from this machine's own package sources, and removed
# afterwards. It has a PID namespace, so that servers which a target leaves behind
# end with it, and a mount namespace, so that nothing stays mounted. The settings
# of Go, pip, cargo and apt for package sources are copied from this machine.
# shellcheck disable=SC2016 # $(…) below are apt's fields
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- demo

fail() { printf 'bare-debian: %s\n' "$*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "run it as root: it needs chroot and mount"
tools/setup.sh debootstrap

# sources FORMAT: a line for each of Debian's own package indexes on this machine.
sources() {
  apt-get indextargets --format "\$(ORIGIN) $1" 'Created-By: Packages' | sed -n 's/^Debian //p' | sort -u
}
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(sources '$(RELEASE) $(REPO_URI)' | sed -n "s/^$release //p" | head -n 1)
[ -n "$mirror" ] || fail "apt knows no package source for Debian $release"

root=$(mktemp -d /tmp/perigee-debian.XXXXXX)
chmod 755 "$root" # PostgreSQL does not run as root
trap 'rm -rf --one-file-system "$root" "$root.log"' EXIT
trap 'exit 1' INT TERM
echo "bare-debian: making Debian $release in $root"
debootstrap --variant=minbase --include=git,make "$release" "$root" "$mirror" >"$root.log" 2>&1 ||
  { cat "$root.log"; fail "debootstrap failed"; }

sources 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' >"$root/etc/apt/sources.list"
apt-config dump --format '%f "%v";%n' Acquire::http Acquire::https >"$root/etc/apt/apt.conf.d/10host"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
if [ -d /usr/local/share/ca-certificates ]; then
  cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
fi
git clone --quiet --no-hardlinks . "$root/root/perigee"

# A fresh login's environment, and what says where packages come from.
go=$(tools/go.sh -path)
{
  printf '%s\n' HOME=/root USER=root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin
  for name in GOPROXY GOSUMDB GONOSUMDB GOPRIVATE; do echo "$name=$("$go" env "$name")"; done
  env | grep -iE '^(pip_[a-z_]+|cargo_(source|registr)[a-z_]+|[a-z]+_proxy)=' || true
} | sed "s/'/'\\\\''/g; s/=\(.*\)/='\1'/; s/^/export /" >"$root/root/run.sh"
cat >>"$root/root/run.sh" <<'END'
apt-get update -qq
cd /root/perigee
exec make "$@"
END

# PostgreSQL needs /dev/shm; the rest of /dev is the chroot's own.
unshare --mount --pid --fork --kill-child sh -eu -c '
  root=$1; shift
  mount -t proc proc "$root/proc"
  mkdir -p "$root/dev/shm"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  exec env -i "$(command -v chroot)" "$root" /bin/sh -eu /root/run.sh "$@"
' sh "$root" "$@" </dev/null &
namespace=$!
trap 'kill -KILL "$namespace"; exit 1' INT TERM # unshare itself ignores them
wait "$namespace"
echo "bare-debian: make $* succeeded"
