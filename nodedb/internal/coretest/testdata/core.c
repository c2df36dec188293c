/* core.c: the C core by itself, for builds with sanitizers. sanitizer_test.go builds and runs it.
 *
 *   core FOLDER          one session after the other, then many threads at once, then a unit whose
 *                        deltas are made, committed and viewed by different threads
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../../nodedb.h"

#define IS(call, want)                                                                                             \
  do {                                                                                                             \
    long got_ = (call);                                                                                            \
    if (got_ != (long)(want)) {                                                                                    \
      fprintf(stderr, "line %d: %s: %ld, want %ld (%s)\n", __LINE__, #call, got_, (long)(want), ndb_message());     \
      exit(1);                                                                                                     \
    }                                                                                                              \
  } while (0)
#define OK(call) IS(call, NDB_OK)

enum { NODES = 20000, ACCOUNTS = 50, BALANCE = 100, TRANSFERS = 500, SUMS = 5000 };

static ndb_store *store;
static const char *folder;

static ndb_scalar number(double n) { return (ndb_scalar){.type = NDB_NUMBER, .number = n}; }
static ndb_scalar text(const char *t) { return (ndb_scalar){.type = NDB_STRING, .bytes = t, .len = (uint32_t)strlen(t)}; }
static int print(void *user, const char *line);
static int name(char *key, const char *n) { return ndb_key_name(key, NDB_KEY_MAX, n, strlen(n)); }
static int at(char *key, int len, double n) {
  ndb_scalar s = number(n);
  return ndb_key_append(key, (size_t)len, NDB_KEY_MAX, &s);
}
static int at_text(char *key, int len, const char *t) {
  ndb_scalar s = text(t);
  return ndb_key_append(key, (size_t)len, NDB_KEY_MAX, &s);
}

/* Counts the items of an iteration whose subscripts and values are 0 to count-1. */
static void expect_numbers(ndb_session *s, const char *key, int len, int flags, long count) {
  ndb_iter *it;
  ndb_items items;
  long seen = 0;
  int result;
  OK(ndb_iter_open(s, key, (size_t)len, flags | NDB_VALUES, NULL, NULL, 0, &it));
  while ((result = ndb_iter_fill(it, &items)) == NDB_OK)
    for (uint32_t i = 0; i < items.count; i++, seen++) {
      long want = flags & NDB_REVERSE ? count - 1 - seen : seen;
      IS(items.subscript[i].number, want);
      IS(items.value[i].number, want);
    }
  IS(result, NDB_NONE);
  IS(seen, count);
  ndb_iter_close(it);
}

static void test_nodes(void) {
  ndb_session *s, *other;
  ndb_scalar v, value = text("hello"), one = number(1), sum;
  char key[NDB_KEY_MAX], below[NDB_KEY_MAX]; /* of ^a(…), of ^a("list",…) */
  uint64_t commit;
  OK(ndb_session_open(store, &s));
  OK(ndb_session_open(store, &other));
  int top = name(key, "^a");
  OK(ndb_set(s, key, (size_t)at(key, top, 1), &value));
  OK(ndb_get(other, key, (size_t)at(key, top, 1), &v));
  IS(v.len, 5);
  IS(ndb_data(s, key, (size_t)top), 10);
  for (int i = 1; i <= 10; i++) {
    OK(ndb_increment(s, key, (size_t)at(key, top, 2), &one, &sum));
    IS(sum.number, i);
  }
  IS(ndb_set_new(s, key, (size_t)at(key, top, 2), &one), NDB_NONE);

  /* A large transaction: invisible before its commit, visible after it. */
  int list = at_text(below, name(below, "^a"), "list");
  OK(ndb_begin(s));
  for (int i = 0; i < NODES; i++) {
    v = number(i);
    OK(ndb_set(s, below, (size_t)at(below, list, i), &v));
  }
  IS(ndb_data(other, below, (size_t)list), 0);
  expect_numbers(s, below, list, 0, NODES);
  OK(ndb_commit(s, &commit));
  expect_numbers(other, below, list, NDB_REVERSE, NODES);
  OK(ndb_wait(s, commit));
  expect_numbers(other, below, list, 0, NODES);
  expect_numbers(other, below, list, NDB_REVERSE, NODES);

  /* The same values over those in LMDB, half of them undone. */
  OK(ndb_begin(s));
  for (int i = 0; i < NODES; i += 10) {
    v = number(i);
    OK(ndb_set(s, below, (size_t)at(below, list, i), &v));
    if (i % 20) continue;
    uint64_t mark = ndb_mark(s);
    v = number(-1);
    OK(ndb_set(s, below, (size_t)at(below, list, i), &v));
    OK(ndb_kill_value(s, below, (size_t)at(below, list, i + 1)));
    OK(ndb_undo(s, mark));
  }
  /* A mark twice: after the first undo, the value that it has put back is not changed in place. */
  uint64_t first = ndb_mark(s);
  v = number(1);
  OK(ndb_set(s, below, (size_t)at(below, list, 1), &v));
  uint64_t twice = ndb_mark(s);
  for (int i = 0; i < 2; i++) {
    v = number(2 + i);
    OK(ndb_set(s, below, (size_t)at(below, list, 1), &v));
    OK(ndb_undo(s, twice));
    OK(ndb_get(s, below, (size_t)at(below, list, 1), &v));
    IS(v.number, 1);
  }
  OK(ndb_undo(s, first));
  expect_numbers(s, below, list, 0, NODES);
  expect_numbers(s, below, list, NDB_REVERSE, NODES);
  OK(ndb_begin(s));
  OK(ndb_kill(s, below, (size_t)list));
  IS(ndb_data(s, below, (size_t)list), 0);
  OK(ndb_rollback(s));
  expect_numbers(s, below, list, 0, NODES);
  OK(ndb_rollback(s));

  /* A transaction with a conflict, and one without. */
  OK(ndb_begin(s));
  OK(ndb_get(s, key, (size_t)at(key, top, 2), &v));
  OK(ndb_increment(other, key, (size_t)at(key, top, 2), &one, &sum));
  OK(ndb_set(s, key, (size_t)at(key, top, 3), &one));
  IS(ndb_commit(s, NULL), NDB_E_CONFLICT);
  IS(ndb_level(s), 1);
  OK(ndb_set(s, key, (size_t)at(key, top, 3), &one));
  OK(ndb_increment(other, key, (size_t)at(key, top, 2), &one, &sum));
  OK(ndb_commit(s, NULL));
  OK(ndb_get(other, key, (size_t)at(key, top, 2), &v));
  IS(v.number, 12);

  /* A kill of nodes in pending and in LMDB; a merge; a time to live. */
  OK(ndb_kill(s, below, (size_t)list));
  IS(ndb_data(other, below, (size_t)list), 0);
  v = number(7);
  OK(ndb_set(s, below, (size_t)at(below, list, 7), &v));
  OK(ndb_sync(store));
  uint64_t count = 0;
  size_t place_len = 0;
  char place[NDB_KEY_MAX], copy[NDB_KEY_MAX];
  OK(ndb_count(s, below, (size_t)list, 0, place, &place_len, &count));
  IS(count, 1);
  place_len = 0;
  OK(ndb_merge(s, copy, (size_t)name(copy, "^copy"), key, (size_t)top, 0, place, &place_len));
  IS(ndb_merge(s, below, (size_t)list, key, (size_t)top, 0, place, &place_len), NDB_E_MERGE);
  OK(ndb_get(s, copy, (size_t)at(copy, at_text(copy, name(copy, "^copy"), "list"), 7), &v));
  OK(ndb_expire(s, below, (size_t)at(below, list, 7), 20));
  OK(ndb_sync(store));
  nanosleep(&(struct timespec){0, 30000000}, NULL);
  IS(ndb_get(s, below, (size_t)at(below, list, 7), &v), NDB_NONE);
  IS(ndb_data(s, below, (size_t)list), 0);
  ndb_statistics about;
  for (int i = 0; i < 500; i++) { /* the sweeper checks once a second */
    OK(ndb_stat(store, &about));
    if (about.expiring == 0) break;
    nanosleep(&(struct timespec){0, 10000000}, NULL);
  }
  IS(about.expiring, 0);
  IS(about.readers < 10, 1);

  /* A tree in memory, restored by a rollback. */
  int local = name(key, "local");
  OK(ndb_set(s, key, (size_t)at(key, local, 1), &one));
  OK(ndb_begin(s));
  OK(ndb_restore_local(s, "local", 5));
  OK(ndb_kill(s, key, (size_t)local));
  OK(ndb_rollback(s));
  OK(ndb_get(s, key, (size_t)at(key, local, 1), &v));
  ndb_session_close(s);
  ndb_session_close(other);
}

/* A transaction keeps reading its snapshot while the file repeatedly outgrows its map. */
static void test_growth(void) {
  ndb_session *reader, *writer;
  char key[NDB_KEY_MAX], large[NDB_KEY_MAX];
  static char bytes[1 << 20];
  ndb_scalar v, block = {.type = NDB_STRING, .bytes = bytes, .len = sizeof bytes};
  ndb_statistics before, after;
  OK(ndb_session_open(store, &reader));
  OK(ndb_session_open(store, &writer));
  int few = name(key, "^few");
  for (int i = 0; i < 1000; i++) {
    v = number(i);
    OK(ndb_set(writer, key, (size_t)at(key, few, i), &v));
  }
  OK(ndb_sync(store));
  OK(ndb_stat(store, &before));
  OK(ndb_begin(reader));
  expect_numbers(reader, key, few, 0, 1000);
  ndb_iter *it;
  ndb_items items;
  long passed = 0;
  OK(ndb_iter_open(reader, key, (size_t)few, NDB_VALUES | NDB_KEYS, NULL, NULL, 0, &it));
  for (int i = 0; i < 80; i++) {
    OK(ndb_set(writer, large, (size_t)at(large, name(large, "^large"), i), &block));
    if (i % 8 == 7) OK(ndb_sync(store));
    expect_numbers(reader, key, few, i % 2 ? NDB_REVERSE : 0, 1000);
    IS(ndb_data(reader, large, (size_t)name(large, "^large")), 0);
    if (i == 20 || i == 50) { /* values read through one map are checked after a remap */
      if (i == 50)
        for (uint32_t n = 0; n < items.count; n++) IS(items.key[n][0], '^');
      OK(ndb_iter_fill(it, &items));
      for (uint32_t n = 0; n < items.count; n++) IS(items.value[n].number, passed++);
    }
  }
  for (uint32_t n = 0; n < items.count; n++) IS(items.key[n][0], '^');
  ndb_iter_close(it);
  OK(ndb_stat(store, &after));
  IS(after.map_bytes >= 4 * before.map_bytes, 1);
  OK(ndb_rollback(reader));
  OK(ndb_get(reader, large, (size_t)at(large, name(large, "^large"), 79), &v));
  IS(v.len, sizeof bytes);
  ndb_idle(reader);
  OK(ndb_kill(writer, large, (size_t)name(large, "^large")));
  IS(ndb_get(reader, large, (size_t)at(large, name(large, "^large"), 79), &v), NDB_NONE);
  for (int i = 0; i < 4; i++) { /* closing the session must end three of them */
    OK(ndb_iter_open(reader, key, (size_t)few, NDB_VALUES, NULL, NULL, 0, &it));
    if (i > 0) OK(ndb_iter_fill(it, &items));
    if (i == 2) ndb_iter_close(it);
  }
  ndb_session_close(reader);
  ndb_session_close(writer);
}

/* ---- threads ---- */

static atomic_int over;

static void *transfer(void *argument) {
  unsigned seed = (unsigned)(size_t)argument;
  ndb_session *s;
  char from[NDB_KEY_MAX], to[NDB_KEY_MAX];
  OK(ndb_session_open(store, &s));
  for (int n = 0; n < TRANSFERS; n++) {
    int a = at(from, name(from, "^account"), rand_r(&seed) % ACCOUNTS), b = at(to, name(to, "^account"), rand_r(&seed) % ACCOUNTS);
    double amount = rand_r(&seed) % 10;
    int result;
    OK(ndb_begin(s));
    do {
      ndb_scalar x, y, v;
      OK(ndb_get(s, from, (size_t)a, &x));
      v = number(x.number - amount);
      OK(ndb_set(s, from, (size_t)a, &v));
      OK(ndb_get(s, to, (size_t)b, &y));
      v = number(y.number + amount);
      OK(ndb_set(s, to, (size_t)b, &v));
      result = ndb_commit(s, NULL);
    } while (result == NDB_E_CONFLICT);
    OK(result);
    if (n % 200 == 0) OK(ndb_sync(store));
  }
  ndb_session_close(s);
  return NULL;
}

static void *audit(void *argument) {
  ndb_session *s;
  char key[NDB_KEY_MAX];
  int len = name(key, "^account"), result;
  OK(ndb_session_open(store, &s));
  for (int round = 0; !atomic_load(&over); round++) {
    ndb_iter *it;
    ndb_items items;
    double sum = 0;
    OK(ndb_begin(s));
    OK(ndb_iter_open(s, key, (size_t)len, NDB_VALUES | (round % 2 ? NDB_REVERSE : 0), NULL, NULL, 0, &it));
    while ((result = ndb_iter_fill(it, &items)) == NDB_OK)
      for (uint32_t i = 0; i < items.count; i++) sum += items.value[i].number;
    IS(result, NDB_NONE);
    IS(sum, ACCOUNTS * BALANCE);
    ndb_iter_close(it);
    OK(ndb_rollback(s));
  }
  ndb_session_close(s);
  return argument;
}

static void *count_up(void *argument) {
  ndb_session *s;
  char key[NDB_KEY_MAX];
  int top = name(key, "^sum");
  OK(ndb_session_open(store, &s));
  for (int i = 0; i < SUMS; i++) {
    ndb_scalar one = number(1), v, words = {.type = NDB_STRING, .bytes = "words of different length", .len = 10 + (uint32_t)i % 15};
    OK(ndb_increment(s, key, (size_t)top, &one, &v));
    int mine = at(key, top, (double)(size_t)argument * 100 + i % 50);
    OK(ndb_set(s, key, (size_t)mine, &words));
    OK(ndb_get(s, key, (size_t)mine, &v));
    IS(v.len, words.len);
    if (i % 7 == 0) OK(ndb_kill(s, key, (size_t)mine));
    if (i % 100 == 0) OK(ndb_expire(s, key, (size_t)top, 1000000));
  }
  ndb_session_close(s);
  return NULL;
}

static void test_threads(void) {
  ndb_session *s;
  char key[NDB_KEY_MAX];
  ndb_scalar v = number(BALANCE);
  OK(ndb_session_open(store, &s));
  for (int i = 0; i < ACCOUNTS; i++) OK(ndb_set(s, key, (size_t)at(key, name(key, "^account"), i), &v));
  pthread_t auditor, workers[5];
  IS(pthread_create(&auditor, NULL, audit, NULL), 0);
  for (size_t i = 0; i < 5; i++) IS(pthread_create(&workers[i], NULL, i < 3 ? transfer : count_up, (void *)i), 0);
  for (int i = 0; i < 5; i++) pthread_join(workers[i], NULL);
  atomic_store(&over, 1);
  pthread_join(auditor, NULL);
  OK(ndb_get(s, key, (size_t)name(key, "^sum"), &v));
  IS(v.number, 2 * SUMS);
  ndb_session_close(s);
}

enum { DELTAS = 300, PER_DELTA = 40 };

static ndb_store *unit;
static ndb_delta *frozen[DELTAS];
static _Atomic int frozen_count, committed_count;

/* Sums the accounts of a session's transaction. */
static double sum_accounts(ndb_session *s, int flags) {
  ndb_iter *it;
  ndb_items items;
  char key[NDB_KEY_MAX];
  int len = name(key, "^account"), result;
  double sum = 0;
  OK(ndb_iter_open(s, key, (size_t)len, NDB_VALUES | flags, NULL, NULL, 0, &it));
  while ((result = ndb_iter_fill(it, &items)) == NDB_OK)
    for (uint32_t i = 0; i < items.count; i++) sum += items.value[i].number;
  IS(result, NDB_NONE);
  ndb_iter_close(it);
  return sum;
}

static void *commit_deltas(void *argument) {
  for (int i = 0; i < DELTAS; i++) {
    while (atomic_load(&frozen_count) <= i) usleep(50);
    size_t len;
    OK(ndb_delta_encoded(frozen[i], &len));
    char *bytes = malloc(len);
    ndb_delta_encode(frozen[i], bytes);
    free(bytes);
    OK(ndb_delta_commit(frozen[i], (uint64_t)i + 2, 0));
    atomic_store(&committed_count, i + 1);
  }
  return argument;
}

static void *view_committed(void *argument) {
  for (int round = 0; atomic_load(&committed_count) < DELTAS; round++) {
    ndb_session *s;
    ndb_scalar v;
    char key[NDB_KEY_MAX];
    OK(ndb_session_open(unit, &s));
    OK(ndb_begin_committed(s));
    IS(sum_accounts(s, round % 2 ? NDB_REVERSE : 0), ACCOUNTS * BALANCE);
    OK(ndb_rollback(s));
    OK(ndb_get(s, key, (size_t)at(key, name(key, "^account"), round % ACCOUNTS), &v));
    IS(ndb_set(s, key, (size_t)name(key, "^other"), &v), NDB_E_ARGUMENT);
    ndb_session_close(s);
  }
  return argument;
}

/* Moves amounts between accounts, in deltas over those that another thread commits. */
static void test_unit(const char *unit_folder) {
  ndb_options options = {.flush_ms = 2, .unit = 1, .slice_nodes = 16};
  char a[NDB_KEY_MAX], b[NDB_KEY_MAX];
  ndb_scalar v = number(BALANCE), more, less;
  ndb_delta *d;
  OK(ndb_open(unit_folder, &options, &unit));
  OK(ndb_delta_begin(unit, 1, &d));
  for (int i = 0; i < ACCOUNTS; i++) OK(ndb_set(ndb_delta_session(d), a, (size_t)at(a, name(a, "^account"), i), &v));
  OK(ndb_delta_freeze(d));
  OK(ndb_delta_commit(d, 1, 0));
  pthread_t committer, viewer;
  IS(pthread_create(&committer, NULL, commit_deltas, NULL), 0);
  IS(pthread_create(&viewer, NULL, view_committed, NULL), 0);
  unsigned seed = 1;
  for (int i = 0; i < DELTAS; i++) {
    while (i - atomic_load(&committed_count) >= 15) usleep(50);
    OK(ndb_delta_begin(unit, (uint64_t)i, &frozen[i]));
    ndb_session *s = ndb_delta_session(frozen[i]);
    for (int j = 0; j < PER_DELTA; j++) {
      uint64_t mark = ndb_mark(s);
      more = number(rand_r(&seed) % 50), less = number(-more.number);
      int a_len = at(a, name(a, "^account"), rand_r(&seed) % ACCOUNTS);
      OK(ndb_increment(s, a, (size_t)a_len, &more, NULL));
      if (j % 5 == 0) { /* an event that fails */
        OK(ndb_kill(s, a, (size_t)name(a, "^account")));
        OK(ndb_undo(s, mark));
        continue;
      }
      if (j % 11 == 0) { /* a kill in the delta, and the same values again */
        double was[ACCOUNTS];
        for (int k = 0; k < ACCOUNTS; k++) {
          OK(ndb_get(s, b, (size_t)at(b, name(b, "^account"), k), &v));
          was[k] = v.number;
        }
        OK(ndb_kill(s, b, (size_t)name(b, "^account")));
        for (int k = 0; k < ACCOUNTS; k++) {
          v = number(was[k]);
          OK(ndb_set(s, b, (size_t)at(b, name(b, "^account"), k), &v));
        }
      }
      OK(ndb_increment(s, b, (size_t)at(b, name(b, "^account"), rand_r(&seed) % ACCOUNTS), &less, NULL));
    }
    IS(sum_accounts(s, i % 2 ? NDB_REVERSE : 0), ACCOUNTS * BALANCE);
    OK(ndb_delta_freeze(frozen[i]));
    atomic_fetch_add(&frozen_count, 1);
  }
  pthread_join(committer, NULL);
  pthread_join(viewer, NULL);
  OK(ndb_check(unit, print, stderr));
  OK(ndb_delta_begin(unit, 1, &d));
  OK(ndb_close(unit));
  OK(ndb_open(unit_folder, &options, &unit));
  ndb_unit_statistics about;
  OK(ndb_unit_status(unit, &about));
  IS(about.applied, DELTAS + 1);
  OK(ndb_delta_begin(unit, 1, &d));
  IS(sum_accounts(ndb_delta_session(d), 0), ACCOUNTS * BALANCE);
  OK(ndb_close(unit));
}

static int print(void *user, const char *line) {
  fprintf(user, "%s\n", line);
  return 0;
}

int main(int argc, char **argv) {
  ndb_options options = {.flush_ms = 2};
  char copy[4096];
  if (argc != 2) return 2;
  folder = argv[1];
  OK(ndb_open(folder, &options, &store));
  test_nodes();
  test_growth();
  test_threads();
  OK(ndb_check(store, print, stderr));
  snprintf(copy, sizeof copy, "%s.copy", folder);
  OK(ndb_backup(store, copy));
  OK(ndb_close(store));
  OK(ndb_compact(folder));
  OK(ndb_compact(copy));
  OK(ndb_open(copy, &options, &store));
  OK(ndb_check(store, print, stderr));
  OK(ndb_close(store));
  snprintf(copy, sizeof copy, "%s.unit", folder);
  test_unit(copy);
  return 0;
}
