/* error.h: how the core reports an error (private).
 *
 *   return ndb_fail(NDB_E_ARGUMENT, "%u subscripts: at most %u are allowed", n, NDB_SUBSCRIPTS_MAX);
 *
 * The sentence names the offending value and what to do. It is kept per thread until the
 * next one; ndb_message() returns it. */
#ifndef NODEDB_ERROR_H
#define NODEDB_ERROR_H

/* Returns code. */
int ndb_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
