/* fork.c: a process that has a store open forks and is killed. Its child must not be able to use
 * the store or keep its locks. Prints errors; exits with 0 if there are none. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nodedb.h"

static const char *folder;
static int result[2]; /* a pipe for the child's result */

static int lock(ndb_session *s, const char *name, int64_t timeout_ms) {
  char bytes[NDB_KEY_MAX];
  ndb_key key = {bytes, (size_t)ndb_key_name(bytes, sizeof bytes, name, 2)};
  return ndb_lock(s, &key, 1, timeout_ms);
}

static ndb_session *open_session(void) {
  ndb_store *store;
  ndb_session *s;
  if (ndb_open(folder, NULL, &store) != NDB_OK || ndb_session_open(store, &s) != NDB_OK) {
    fprintf(stderr, "open: %s\n", ndb_message());
    _exit(3);
  }
  return s;
}

static void be_killed(void) {
  ndb_session *s = open_session();
  if (lock(s, "^x", 0) != NDB_OK) _exit(3);
  int ready[2];
  if (pipe(ready) != 0) _exit(3);
  pid_t child = fork();
  if (child == 0) {
    int code = lock(s, "^y", 0);
    pid_t me = getpid();
    if (write(result[1], &code, sizeof code) < 0 || write(result[1], &me, sizeof me) < 0 || write(ready[1], "", 1) < 0) _exit(3);
    sleep(60);
    _exit(0);
  }
  char byte;
  if (read(ready[0], &byte, 1) == 1) kill(getpid(), SIGKILL);
  _exit(3);
}

int main(int count, char **arguments) {
  int code = 0, status, wrong = 0;
  pid_t child = 0;
  if (count < 2 || pipe(result) != 0) return 3;
  folder = arguments[1];
  pid_t parent = fork();
  if (parent == 0) be_killed();
  waitpid(parent, &status, 0);
  if (read(result[0], &code, sizeof code) != sizeof code || read(result[0], &child, sizeof child) != sizeof child) return 3;
  if (code != NDB_E_ARGUMENT) wrong++, printf("a lock in the child of a fork: %s\n", ndb_code_name(code));
  ndb_session *s = open_session();
  if ((code = lock(s, "^x", 2000)) != NDB_OK) wrong++, printf("the lock of the killed process: %s: %s\n", ndb_code_name(code), ndb_message());
  if (kill(child, SIGKILL) != 0) wrong++, printf("the child has ended early\n");
  return wrong;
}
