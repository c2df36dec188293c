//go:build cgo

package main

import (
	"iter"
	"strings"

	"github.com/perigeedb/perigee/eventstore"
	"github.com/perigeedb/perigee/pipeline/deadletter"
)

// lettersName is the table of dead letters in SQL.
const lettersName = "dead_letters"

func namesLetters(sql string) bool { return strings.Contains(strings.ToLower(sql), lettersName) }

// lend makes the letters a table in SQL. It comes before the store is opened.
func (s *eventStore) lend(letters *deadletter.Store) { s.letters = letters }

// options are those that the store is opened with.
func (s *eventStore) options() (o eventstore.Options) {
	if s.letters != nil {
		o.Foreign = []eventstore.Foreign{{Name: lettersName, Columns: letterColumns(), Rows: rowsOfLetters(s.letters)}}
	}
	return o
}

// letterColumns are named as the keys of a letter in JSON. An event that is not
// UTF-8 has replacement characters in it: "perigee dlq show --raw" has its bytes.
func letterColumns() (columns []eventstore.ColumnInfo) {
	for _, column := range []string{
		"id VARCHAR", "pipeline VARCHAR", "partition VARCHAR", "position UBIGINT", "sink VARCHAR", "number UINTEGER",
		"stage VARCHAR", "error VARCHAR", "traceback VARCHAR", "script VARCHAR", "first TIMESTAMP", "time TIMESTAMP",
		"retried INTEGER", "unsettled BOOLEAN", "original VARCHAR",
	} {
		name, kind, _ := strings.Cut(column, " ")
		columns = append(columns, eventstore.ColumnInfo{Name: name, Type: kind})
	}
	return columns
}

func rowsOfLetters(letters *deadletter.Store) func() iter.Seq2[any, error] {
	return func() iter.Seq2[any, error] {
		return func(yield func(any, error) bool) {
			for l, err := range letters.List(deadletter.Filter{}) {
				row := newLetter(l)
				row.Original = string(l.Original)
				if !yield(row, err) || err != nil {
					return
				}
			}
		}
	}
}
