package catalog

import "time"

// A LakeState describes how far a table is published in its lake. It is also a row of the system
// table lakes.
type LakeState struct {
	Table     string `json:"table_name" sql:"VARCHAR" doc:"table of the event store"`
	LakeTable string `json:"lake_table" sql:"VARCHAR" doc:"namespace and name in the catalog"`
	Warehouse string `json:"warehouse" sql:"VARCHAR" doc:"folder, or address in S3"`
	Catalog   string `json:"catalog,omitempty" sql:"VARCHAR" doc:"address of the catalog; null if the warehouse folder is the catalog"`
	Metadata  string `json:"metadata,omitempty" sql:"VARCHAR" doc:"address of its newest metadata, as the last commit left it; null before the first"`
	// Ordered and Covered are steps of publishing.
	Ordered   uint64    `json:"ordered" sql:"UBIGINT" doc:"last step of publishing that was begun; 0 before the first"`
	Covered   uint64    `json:"covered" sql:"UBIGINT" doc:"last step that the lake has"`
	Committed time.Time `json:"committed,omitzero" sql:"TIMESTAMP" doc:"when the engine last confirmed that the lake has every ordered step; null before the first time"`
	// Waiting… is about files with rows that the lake does not have.
	WaitingFiles int       `json:"waiting_files" sql:"BIGINT" doc:"files with rows that the lake does not have; rows in the log are not counted"`
	WaitingRows  int64     `json:"waiting_rows" sql:"BIGINT" doc:"rows in these files"`
	WaitingBytes int64     `json:"waiting_bytes" sql:"BIGINT" doc:"bytes of these files"`
	WaitingSince time.Time `json:"waiting_since,omitzero" sql:"TIMESTAMP" doc:"when the oldest of these files got its newest row; null if none waits"`
	Gone         int       `json:"gone_files" sql:"BIGINT" doc:"files that another engine has removed from the lake or rewritten: they are never published again"`
	Misfits      int64     `json:"misfits" sql:"BIGINT" doc:"values that do not fit the type of their column in the lake, which has them in _rest"`
	Widening     string    `json:"widening,omitempty" sql:"VARCHAR" doc:"column being widened in the lake; null if none"`
	WidenedFiles int       `json:"widened_files" sql:"BIGINT" doc:"files already rewritten for it"`
	RemoteFiles  int       `json:"remote_files" sql:"BIGINT" doc:"files whose data have left the disk for the lake"`
	RemoteRows   int64     `json:"remote_rows" sql:"BIGINT" doc:"rows in these files"`
	RemoteBytes  int64     `json:"remote_bytes" sql:"BIGINT" doc:"bytes of these files"`
	DeleteFiles  int       `json:"delete_files" sql:"BIGINT" doc:"files by which other engines have deleted rows in the lake; while there are any, queries that need remote files are refused"`
	Error        string    `json:"error,omitempty" sql:"VARCHAR" doc:"why the last step failed, or why data could not be read within the last hour; null if neither"`
	Hint         string    `json:"hint,omitempty" sql:"VARCHAR" doc:"what to do about it"`
}
