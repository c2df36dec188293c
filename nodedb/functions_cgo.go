//go:build cgo && lmdb

package nodedb

/*
#include "functions.h"

#define SESSION_ADDRESS(result, name, parameters, arguments) .name = ndb_##name,
#define OTHER_ADDRESS(result, name, parameters) .name = ndb_##name,
static const ndb_functions functions = {
	NDB_SESSION_FUNCTIONS(SESSION_ADDRESS)
	NDB_OTHER_FUNCTIONS(OTHER_ADDRESS)
};
static void *address(void) { return (void *)&functions; }
*/
import "C"

import "unsafe"

// Functions returns a table of the core's functions, an ndb_functions of functions.h, for C code in
// another package. It returns nil in a build without the core.
func Functions() unsafe.Pointer { return C.address() }
