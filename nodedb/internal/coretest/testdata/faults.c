/* faults.c: preloaded before libc (LD_PRELOAD), it makes writes, syncs or renames of files fail
 * or wait, as selected by the first byte of the file NODEDB_FAULTS, which another process
 * writes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
  FULL = 1, /* the disk is full; every other write writes part of its bytes */
  SYNC = 2, /* fsync and fdatasync fail */
  META = 3, /* writes to files opened with O_DSYNC fail: LMDB's last step of a commit */
  RUNS = 4, /* writes of several parts write half: LMDB's runs of pages */
  HOLD = 5, /* renames wait, up to 30 seconds */
  PLAIN = 6 /* the file system does not support flags of a rename */
};

static volatile const unsigned char *control;
static unsigned calls;

__attribute__((constructor)) static void map_control(void) {
  const char *path = getenv("NODEDB_FAULTS");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *map = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
  if (map != MAP_FAILED) control = map;
  close(fd);
}

static int mode(int fd) {
  struct stat status;
  if (!control || !*control || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) return 0;
  return *control;
}

static int write_fails(int fd) {
  int now = mode(fd);
  if (now == FULL) errno = ENOSPC;
  else if (now == META && fcntl(fd, F_GETFL) & O_DSYNC) errno = EIO;
  else return 0;
  return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* How many of n bytes a failing call writes: every other call writes half of them. */
static size_t part_of(int fd, size_t n) {
  return mode(fd) == FULL && __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % 2 ? n / 2 : 0;
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) {
  if (write_fails(fd) && (n = part_of(fd, n)) == 0) return -1;
  return NEXT(pwrite)(fd, bytes, n, at);
}
ssize_t write(int fd, const void *bytes, size_t n) {
  if (write_fails(fd) && (n = part_of(fd, n)) == 0) return -1;
  return NEXT(write)(fd, bytes, n);
}

/* Copies to some the parts that a call may write, and returns their number; -1: it fails. LMDB
 * writes a run of pages by lseek and writev. */
static int leave_parts(int fd, const struct iovec **parts, int n, struct iovec some[IOV_MAX]) {
  size_t bytes = 0;
  int fails = write_fails(fd), runs = mode(fd) == RUNS;
  if (!fails && !runs) return n;
  for (int i = 0; i < n; i++) bytes += (*parts)[i].iov_len;
  bytes = runs ? bytes / 2 : part_of(fd, bytes);
  if (!bytes) return -1;
  for (n = 0; bytes; bytes -= some[n++].iov_len) {
    some[n] = (*parts)[n];
    if (some[n].iov_len > bytes) some[n].iov_len = bytes;
  }
  *parts = some;
  return n;
}

ssize_t writev(int fd, const struct iovec *parts, int n) {
  struct iovec some[IOV_MAX];
  return (n = leave_parts(fd, &parts, n, some)) < 0 ? -1 : NEXT(writev)(fd, parts, n);
}
ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t at) {
  struct iovec some[IOV_MAX];
  return (n = leave_parts(fd, &parts, n, some)) < 0 ? -1 : NEXT(pwritev)(fd, parts, n, at);
}
ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at) { return pwrite(fd, bytes, n, at); }
ssize_t pwritev64(int fd, const struct iovec *parts, int n, off64_t at) { return pwritev(fd, parts, n, at); }
int fsync(int fd) {
  if (mode(fd) != SYNC) return NEXT(fsync)(fd);
  errno = EIO;
  return -1;
}
int fdatasync(int fd) {
  if (mode(fd) != SYNC) return NEXT(fdatasync)(fd);
  errno = EIO;
  return -1;
}

static void hold(void) {
  for (int ms = 0; control && *control == HOLD && ms < 30000; ms++) usleep(1000);
}
int rename(const char *from, const char *to) {
  hold();
  return NEXT(rename)(from, to);
}
int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
  hold();
  if (!control || *control != PLAIN || !flags) return NEXT(renameat2)(from_at, from, to_at, to, flags);
  errno = EINVAL;
  return -1;
}
