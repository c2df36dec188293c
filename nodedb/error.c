//go:build cgo && lmdb

/* error.c: the message of each thread's last error, and the names of error codes. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

#include "nodedb.h"

static _Thread_local char message[512];

int ndb_fail(int code, const char *format, ...) {
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(message, sizeof message, format, arguments);
	va_end(arguments);
	return code;
}

const char *ndb_message(void) { return message; }

const char *ndb_code_name(int code) {
	switch (code) {
	case NDB_OK: return "NDB_OK";
	case NDB_MORE: return "NDB_MORE";
	case NDB_NONE: return "NDB_NONE";
	case NDB_E_ARGUMENT: return "NDB_E_ARGUMENT";
	case NDB_E_KEY: return "NDB_E_KEY";
	case NDB_E_VALUE: return "NDB_E_VALUE";
	case NDB_E_FULL: return "NDB_E_FULL";
	case NDB_E_CONFLICT: return "NDB_E_CONFLICT";
	case NDB_E_TIMEOUT: return "NDB_E_TIMEOUT";
	case NDB_E_LEVEL: return "NDB_E_LEVEL";
	case NDB_E_DISK: return "NDB_E_DISK";
	case NDB_E_CORRUPT: return "NDB_E_CORRUPT";
	case NDB_E_MEMORY: return "NDB_E_MEMORY";
	case NDB_E_SUPERSEDED: return "NDB_E_SUPERSEDED";
	case NDB_E_MERGE: return "NDB_E_MERGE";
	case NDB_E_NUMBER: return "NDB_E_NUMBER";
	case NDB_E_LOCKS: return "NDB_E_LOCKS";
	case NDB_E_IN_USE: return "NDB_E_IN_USE";
	case NDB_E_INCOMPLETE: return "NDB_E_INCOMPLETE";
	case NDB_E_NEWER: return "NDB_E_NEWER";
	}
	return "unknown code";
}
