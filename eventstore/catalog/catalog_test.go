package catalog

import (
	"encoding/json"
	"testing"
	"time"
)

// TestJSON checks what users and scripts see of a table, with every field and with as few as
// possible.
func TestJSON(t *testing.T) {
	at := time.Date(2026, 11, 23, 9, 30, 0, 0, time.UTC)
	for _, test := range []struct {
		table Table
		want  string
	}{
		{
			Table{Name: "events", Files: []File{}, Columns: []Column{}, Deletes: []Delete{}, Schema: 1},
			`{"table":"events","rows":0,"log_rows":0,"files":[],"bytes":0,"schema":1,"columns":[],"deletes":[]}`,
		},
		{
			Table{
				Name: "events", Rows: 3, LogRows: 1, Bytes: 20, Oldest: at, Newest: at.Add(time.Hour), Event: "kind", Time: "at", Retention: Duration(720 * time.Hour),
				Files:   []File{{Name: "tables/events/a.parquet", Rows: 2, Bytes: 20, Oldest: at, Newest: at, Schema: 4, Recomputing: "total"}},
				Unique:  &UniqueState{Unique: Unique{Key: []string{"id"}, Window: Duration(24 * time.Hour), Memory: 1 << 20}, Keys: 5, Bytes: 90, Repeated: 6},
				Schema:  4,
				Columns: []Column{{"id", "BIGINT"}},
				Deletes: []Delete{{Number: 7, Table: "events", Where: "id = 1", RequestedAt: at, Error: "no answer", Hint: "start it"}, {Number: 6, Table: "events", Where: "id = 2", RequestedAt: at, Lake: "1 snapshot", Until: at}},
				Recomputes: []Recompute{
					{Number: 8, Table: "events", Column: "total", RequestedAt: at, Rows: 2, Failed: 1, Error: "too slow", Files: 3, Done: 2, InLog: true, Idle: true},
					{Number: 9, Table: "events", Column: "tax", RequestedAt: at, Ended: at, Stopped: true},
				},
			},
			`{"table":"events","rows":3,"log_rows":1,` +
				`"files":[{"file":"tables/events/a.parquet","rows":2,"bytes":20,"oldest":"2026-11-23T09:30:00Z","newest":"2026-11-23T09:30:00Z","schema":4,"recomputing":"total"}],` +
				`"bytes":20,"oldest":"2026-11-23T09:30:00Z","newest":"2026-11-23T10:30:00Z","event":"kind","time":"at","retention":"720h0m0s",` +
				`"unique":{"key":["id"],"window":"24h0m0s","memory":1048576,"keys":5,"bytes":90,"repeated_rows":6},` +
				`"schema":4,"columns":[{"name":"id","type":"BIGINT"}],"deletes":[{"number":7,"table":"events","where":"id = 1","asked":"2026-11-23T09:30:00Z","error":"no answer","hint":"start it"},{"number":6,"table":"events","where":"id = 2","asked":"2026-11-23T09:30:00Z","lake":"1 snapshot","until":"2026-11-23T09:30:00Z"}],` +
				`"recomputes":[{"number":8,"table":"events","column":"total","asked":"2026-11-23T09:30:00Z","rows":2,"failed_rows":1,"error":"too slow","files":3,"files_done":2,"in_log":true,"idle":true},` +
				`{"number":9,"table":"events","column":"tax","asked":"2026-11-23T09:30:00Z","ended":"2026-11-23T09:30:00Z","rows":0,"failed_rows":0,"stopped":true}]}`,
		},
	} {
		text, err := json.Marshal(test.table)
		if err != nil || string(text) != test.want {
			t.Errorf("got %s, %v\nwant %s", text, err, test.want)
		}
		var read Table
		if err := json.Unmarshal(text, &read); err != nil {
			t.Error(err)
		} else if again, _ := json.Marshal(read); string(again) != test.want {
			t.Errorf("read as %s\nwant %s", again, test.want)
		}
	}
}

// TestLakeShares compares settings of two tables that have the same name in the lake.
func TestLakeShares(t *testing.T) {
	for _, test := range []struct {
		warehouse, catalog   string
		warehouse2, catalog2 string
		want                 bool
	}{
		{"/lake", "", "/lake", "", true},
		{"/lake", "", "/./lake/", "", true},
		{"/lake", "", "/other", "", true}, // in the catalog of the engine
		{"/lake", "", "/lake", "sqlite:///lake.db", false},
		{"/lake", "sqlite:///lake.db", "/other", "sqlite:////lake.db", true},
		{"/lake", "sqlite:///lake.db", "/lake", "sqlite:///other.db", false},
		{"s3://a", "postgres://db/lake", "s3://b/c", "postgresql://DB/lake/", true},
		{"s3://a", "postgres://db/lake", "s3://a", "postgres://db/other", false},
		{"s3://a", "http://catalog:8181", "s3://a/", "http://Catalog:8181/", true},
		{"s3://a", "http://catalog:8181", "s3://b", "http://catalog:8181", false},
		{"s3://a", "http://catalog:8181/one", "s3://a", "http://catalog:8181/two", false},
	} {
		a, b := Lake{Warehouse: test.warehouse, Catalog: test.catalog, Table: "ns.t"}, Lake{Warehouse: test.warehouse2, Catalog: test.catalog2, Table: "NS.T"}
		if got := a.Shares(b); got != test.want || b.Shares(a) != got {
			t.Errorf("%+v shares %+v: got %v, want %v", a, b, got, test.want)
		}
		if b.Table = "ns.other"; a.Shares(b) {
			t.Errorf("%+v shares %+v, a table of another name", a, b)
		}
	}
}

func TestUnknown(t *testing.T) {
	for text, want := range map[string]Unknown{`""`: AddUnknown, `"add"`: AddUnknown, `"keep"`: KeepUnknown, `"drop"`: DropUnknown} {
		var got Unknown
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	got := KeepUnknown
	if err := got.UnmarshalText([]byte("kep")); err == nil || got != KeepUnknown {
		t.Errorf("kep: got %q, %v, want an error", got, err)
	}
}
