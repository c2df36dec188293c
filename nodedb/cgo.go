//go:build cgo && lmdb

package nodedb

// #cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -I${SRCDIR}/../.build/lmdb/include
// #cgo LDFLAGS: -L${SRCDIR}/../.build/lmdb/lib -llmdb -lpthread -lm
// #include "lmdb_build.h"
// #include "nodedb.h"
import "C"

// LMDBBuild names the build of LMDB that is linked.
const LMDBBuild = C.LMDB_BUILD
