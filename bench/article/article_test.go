package article

import (
	"strings"
	"testing"

	"github.com/perigeedb/perigee/source/generate"
)

var every = Table{Name: "events", Columns: AllColumns}

func TestInsertOfSomeColumns(t *testing.T) {
	table := Table{Name: "e", Columns: []string{"domain", "id", "retried", "campaign_number"}}
	insert, err := buildInsert(table.insertHead(), table.rowFormat(), []string{
		`{"id":7,"event_name":"open","email":"a@b.c","campaign":"c-1-12","time":"2026-01-01T00:00:00Z","meta":{"attempt":2}}`})
	if want := "INSERT INTO e (domain, id, retried, campaign_number) VALUES ('b.c',7,true,'12')"; insert != want || err != nil {
		t.Errorf("got %s, %v; want %s", insert, err, want)
	}
}

func TestInsertKeepsWhatTheScriptKeeps(t *testing.T) {
	var records []string
	kept := 0
	for i := range uint64(2000) {
		record := string(generate.Append(nil, 1, i))
		records = append(records, record)
		if !strings.Contains(record, `"event_name":"spam"`) && strings.Contains(record, "@") {
			kept++
		}
	}
	insert, err := buildInsert(every.insertHead(), every.rowFormat(), records)
	if err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(insert, "),(") + 1; rows != kept {
		t.Errorf("the statement has %d rows, want %d", rows, kept)
	}
}

func TestInsertOfNothing(t *testing.T) {
	insert, err := buildInsert(every.insertHead(), every.rowFormat(), []string{`{"id":1,"event_name":"spam","email":"a@b.c","campaign":"c-1","time":"2026-01-01T00:00:00Z"}`})
	if err != nil || insert != "" {
		t.Errorf("got %q, %v; want no statement", insert, err)
	}
}
