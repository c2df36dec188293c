package protocol

import (
	"path/filepath"
	"strconv"
)

// WorkerVariable is the environment variable that marks a process as a SQL worker. It holds
// the worker's settings in JSON.
const WorkerVariable = "PERIGEE_SQL_WORKER"

// A Role is the task of a worker. Each role has its own process, so that roles do not compete
// for memory and sealing does not wait for a merge.
type Role string

const (
	QueryRole Role = "query"
	SealRole  Role = "seal"  // writes closed log files as Parquet files
	MergeRole Role = "merge" // merges and rewrites Parquet files
)

// Settings are the settings of a worker, passed when it starts.
type Settings struct {
	Folder  string // folder of the store
	Number  int    // sequence number among the workers that the client started
	Role    Role
	Memory  int64  // memory of all requests together, in bytes
	Threads int    // threads per request
	File    string // additional file that it may read; may be empty

	Functions []Function
}

// MemorySlack is the address space that a worker may map beyond Settings.Memory before
// allocations fail: thread stacks, Go's heap, free memory of allocators. The worker itself
// keeps its resident memory within Settings.Memory.
const MemorySlack = 1 << 30

// Temp returns the folder where a worker may write. The parent removes it after the worker
// has ended; by then another worker may have started.
func (s Settings) Temp() string {
	return filepath.Join(s.Folder, "temp", string(s.Role)+"-"+strconv.Itoa(s.Number))
}

// Environment returns the environment of a worker. In a worker that writes files, the C
// library returns large blocks to the system when they are freed: a row group needs many
// buffers, each only briefly. The buffers of zstd are smaller and are reused for each column.
func (s Settings) Environment(text []byte) []string {
	variables := []string{WorkerVariable + "=" + string(text), "TZ=UTC"}
	if s.Role != QueryRole {
		variables = append(variables, "MALLOC_ARENA_MAX=1", "MALLOC_MMAP_THRESHOLD_=4194304", "MALLOC_TRIM_THRESHOLD_=4194304")
	}
	return variables
}

// RoleOf returns the role of the worker that handles a request.
func RoleOf(q *Request) Role {
	switch {
	case q.Segment != nil:
		return SealRole
	case q.Merge != nil, q.Recompute != nil:
		return MergeRole
	}
	return QueryRole
}
