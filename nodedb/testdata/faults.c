/* faults.c: stands between a process and libc (LD_PRELOAD) and lets writes or syncs of files
 * fail while the first byte of the file NODEDB_FAULTS, which another process writes, says so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
  FULL = 1, /* no write finds room; every other one writes a part first */
  SYNC = 2, /* fsync and fdatasync fail */
  META = 3  /* writes to files opened with O_DSYNC fail: LMDB's last step of a commit */
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

ssize_t write(int fd, const void *bytes, size_t n) {
  if (!write_fails(fd)) return NEXT(write)(fd, bytes, n);
  return mode(fd) == FULL && n > 1 && __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % 2 ? NEXT(write)(fd, bytes, n / 2) : -1;
}
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) {
  if (!write_fails(fd)) return NEXT(pwrite)(fd, bytes, n, at);
  return mode(fd) == FULL && n > 1 && __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % 2 ? NEXT(pwrite)(fd, bytes, n / 2, at) : -1;
}
ssize_t writev(int fd, const struct iovec *parts, int n) { return write_fails(fd) ? -1 : NEXT(writev)(fd, parts, n); }
ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t at) { return write_fails(fd) ? -1 : NEXT(pwritev)(fd, parts, n, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at) { return write_fails(fd) ? -1 : NEXT(pwrite64)(fd, bytes, n, at); }
ssize_t pwritev64(int fd, const struct iovec *parts, int n, off64_t at) { return write_fails(fd) ? -1 : NEXT(pwritev64)(fd, parts, n, at); }
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
