/* memory.c: makes each allocation of each operation fail in turn. The operation must then have
 * done all of its work, or none. Linked with --wrap of malloc, calloc and realloc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../nodedb.h"

static _Thread_local long fail_in; /* the number of the allocation that fails; 0: none */
static _Thread_local int failed;

static int fails(void) {
  if (!fail_in || --fail_in) return 0;
  return failed = 1;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return fails() ? NULL : __real_realloc(p, n); }

static void check(int result, const char *what) {
  if (result >= 0) return;
  fprintf(stderr, "%s: %s\n", what, ndb_message());
  exit(1);
}

static ndb_scalar number(double n) { return (ndb_scalar){.type = NDB_NUMBER, .number = n}; }

static size_t path(char *key, const char *name, int a, int b) {
  int len = ndb_key_name(key, NDB_KEY_MAX, name, strlen(name));
  for (int i = 0; i < 2; i++) {
    ndb_scalar n = number(i ? b : a);
    if (n.number >= 0) len = ndb_key_append(key, (size_t)len, NDB_KEY_MAX, &n);
  }
  check(len, "path");
  return (size_t)len;
}

/* A digest of all nodes below two names, including their expiry. */
static unsigned long digest(ndb_session *s, const char *const names[2]) {
  unsigned long sum = 5381;
  for (int i = 0; i < 2; i++) {
    char key[NDB_KEY_MAX];
    size_t len = path(key, names[i], -1, -1);
    ndb_iter *it;
    ndb_items items;
    check(ndb_iter_open(s, key, len, NDB_DESCENDANTS | NDB_SELF | NDB_VALUES | NDB_KEYS, NULL, NULL, 0, &it), "open an iterator");
    int code;
    while ((code = ndb_iter_fill(it, &items)) == NDB_OK) {
      for (uint32_t k = 0; k < items.count; k++) {
        for (uint32_t b = 0; b < items.key_len[k]; b++) sum = sum * 33 + (unsigned char)items.key[k][b];
        sum = sum * 33 + (unsigned long)(long)items.value[k].number + items.value[k].len;
        uint64_t ttl;
        char node[NDB_KEY_MAX];
        memcpy(node, items.key[k], items.key_len[k]);
        sum = sum * 33 + (unsigned long)(ndb_ttl(s, node, items.key_len[k], &ttl) == NDB_OK);
      }
    }
    check(code, "walk");
    ndb_iter_close(it);
  }
  return sum;
}

enum { SET, KILL_VALUE, KILL, KILL_RANGE, KILL_CHILDREN, SET_ALL, MERGE, EXPIRE_TREE, INCREMENT, COMPARE, OPERATIONS };

static int operate(ndb_session *s, int what, const char *const names[2]) {
  char key[NDB_KEY_MAX], other[NDB_KEY_MAX], position[NDB_KEY_MAX];
  size_t position_len = 0, top = path(key, names[0], -1, -1);
  ndb_scalar from = number(20), to = number(60), value = number(-7), present = number(3003);
  switch (what) {
  case SET: return ndb_set(s, key, path(key, names[0], 33, 7), &value);
  case KILL_VALUE: return ndb_kill_value(s, key, path(key, names[0], 3, 3));
  case KILL: return ndb_kill(s, key, top);
  case KILL_RANGE: return ndb_kill_range(s, key, top, &from, &to, 0, position, &position_len);
  case KILL_CHILDREN: return ndb_kill(s, key, path(key, names[0], 50, -1));
  case SET_ALL: {
    ndb_pair pairs[20];
    char keys[20][NDB_KEY_MAX];
    for (int i = 0; i < 20; i++) pairs[i] = (ndb_pair){keys[i], path(keys[i], names[i & 1], i * 5, 99), number(i)};
    return ndb_set_all(s, pairs, 20);
  }
  case MERGE: return ndb_merge(s, other, path(other, names[1], 1, -1), key, top, 0, position, &position_len);
  case EXPIRE_TREE: return ndb_expire_tree(s, key, top, ndb_clock(s) + 3600000, 0, position, &position_len);
  case INCREMENT: return ndb_increment(s, key, path(key, names[0], 3, 3), &value, NULL);
  default: return ndb_compare_and_set(s, key, path(key, names[0], 3, 3), &present, &value);
  }
}

static void build(ndb_session *s, ndb_store *store, const char *const names[2]) {
  char key[NDB_KEY_MAX];
  for (int i = 0; i < 2; i++) check(ndb_kill(s, key, path(key, names[i], -1, -1)), "kill");
  for (int part = 0; part < 2; part++) {
    for (int i = part; i < 100; i += 2) {
      for (int k = 0; k < 6; k++) {
        ndb_scalar value = number(i * 1000 + k);
        check(ndb_set(s, key, path(key, names[0], i, k), &value), "set");
      }
    }
    if (part == 0) check(ndb_sync(store), "sync"); /* half of it is in the file */
  }
}

int main(int count, char **arguments) {
  static const char *const names[][2] = {{"^a", "^b"}, {"a", "b"}, {"^a", "b"}, {"a", "^b"}};
  ndb_options options = {.no_sync = 1, .flush_ms = 60000};
  ndb_store *store;
  ndb_session *s;
  if (count < 2) return 2;
  check(ndb_open(arguments[1], &options, &store), "open");
  check(ndb_session_open(store, &s), "session");
  int faults = 0, undone = 0;
  for (int which = 0; which < 4; which++) {
    for (int inside = 0; inside < 2; inside++) {
      for (int what = 0; what < OPERATIONS; what++) {
        for (long n = 1;; n += n < 40 ? 1 : n / 8) {
          build(s, store, names[which]);
          if (inside) check(ndb_begin(s), "begin");
          unsigned long before = digest(s, names[which]);
          failed = 0;
          fail_in = n;
          int result = operate(s, what, names[which]);
          fail_in = 0;
          /* A merge to a tree in memory is not atomic: it may stop between two nodes. */
          int whole = what != MERGE && what != EXPIRE_TREE && what != KILL_RANGE ? 1 : names[which][what == MERGE][0] == '^';
          if (failed && result < 0 && whole && digest(s, names[which]) != before) {
            fprintf(stderr, "operation %d on %s and %s, inside %d: allocation %ld fails, and half of it is done\n", what, names[which][0],
                    names[which][1], inside, n);
            faults++;
          }
          undone += failed && result < 0;
          if (inside && ndb_level(s)) check(ndb_rollback(s), "roll back");
          if (!failed) {
            check(result, "operate");
            break;
          }
        }
      }
    }
  }
  ndb_session_close(s);
  check(ndb_close(store), "close");
  printf("%d failures, %d of them left half a change\n", undone, faults);
  return faults || undone < 200;
}
