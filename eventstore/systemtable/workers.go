package systemtable

import "time"

// A Worker is a row of the system table workers.
type Worker struct {
	PID           int       `json:"pid" sql:"BIGINT" doc:"number of the process"`
	Role          string    `json:"role" sql:"VARCHAR" doc:"query: it answers queries; seal: it writes closed files of the log as Parquet files; merge: it merges and rewrites those"`
	State         string    `json:"state" sql:"VARCHAR" doc:"running, or retired: it gets no more requests and ends with those it has"`
	Started       time.Time `json:"started" sql:"TIMESTAMP" doc:"when it was started"`
	Memory        int64     `json:"memory" sql:"BIGINT" doc:"bytes of memory that it has for itself"`
	Limit         int64     `json:"memory_limit" sql:"BIGINT" doc:"bytes that all its requests together may need"`
	Requests      int       `json:"requests" sql:"BIGINT" doc:"running requests, including this query"`
	RequestsTotal int       `json:"requests_total" sql:"BIGINT" doc:"requests since it was started"`
}
