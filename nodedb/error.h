/* error.h: reports errors inside the core (private).
 *
 *   return ndb_fail(NDB_E_ARGUMENT, "the path has more than %u subscripts", NDB_SUBSCRIPTS_MAX);
 *
 * A message names the invalid value and says what to do. Each thread keeps its last message, which
 * ndb_message() returns. */
#ifndef NODEDB_ERROR_H
#define NODEDB_ERROR_H

/* Returns code. */
int ndb_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
