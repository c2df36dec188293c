package protocol

import (
	"path/filepath"
	"strconv"
)

// WorkerVariable tells a process that it is a SQL worker, and holds its settings in JSON.
const WorkerVariable = "PERIGEE_SQL_WORKER"

// A Role is what a worker is for. Each has a process of its own: none takes the memory that
// another needs, and files of the log do not wait for a merge.
type Role string

const (
	QueryRole Role = "query"
	SealRole  Role = "seal"  // writes closed files of the log as Parquet files
	MergeRole Role = "merge" // merges and rewrites Parquet files
)

// Settings are what a worker needs to know from its start.
type Settings struct {
	Folder   string // of the store
	Number   int    // of the worker, among those that the client has started
	Role     Role
	Memory   int64  // bytes that all requests together may need
	Threads  int    // that one request may use
	RowGroup int    // rows of a row group that is written
	File     string // that it may read beside the store's; "" is none

	Functions []Function
}

// Temp is where a worker may write. The parent removes it when the worker has ended, when
// another may have taken its place.
func (s Settings) Temp() string {
	return filepath.Join(s.Folder, "temp", string(s.Role)+"-"+strconv.Itoa(s.Number))
}

// ControlFile is the descriptor of the socket that brings the sockets of requests.
const ControlFile = 3

// Environment returns the environment of a worker. In one that writes files, the C library
// gives large blocks back to the system when they are freed: the buffers of a row group are
// many, and each is needed for a moment. Those of zstd are smaller, and needed for each column again.
func (s Settings) Environment(text []byte) []string {
	variables := []string{WorkerVariable + "=" + string(text), "TZ=UTC"}
	if s.Role != QueryRole {
		variables = append(variables, "MALLOC_ARENA_MAX=1", "MALLOC_MMAP_THRESHOLD_=4194304", "MALLOC_TRIM_THRESHOLD_=4194304")
	}
	return variables
}

// RoleOf returns the role of the worker that a request is for.
func RoleOf(q *Request) Role {
	switch {
	case q.Segment != nil:
		return SealRole
	case q.Merge != nil, q.Recompute != nil:
		return MergeRole
	}
	return QueryRole
}
