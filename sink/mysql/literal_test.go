package mysql

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/perigeedb/perigee/event"
)

// strings that escaping may get wrong
var awkward = []string{
	"", "'", "''", `\`, `\'`, `'\`, `\\`, "\x00", "a\x00b", "\n\r\t\x1a", `"`, "`", "%_", "--", "/*", ";", "\\0",
	"☾ 漢字 🚀", "'; DROP TABLE events; --", " trailing  ",
}

func TestTextSurvivesTheServer(t *testing.T) {
	g := newTarget(t,
		Column{Name: "id", Type: Type(event.Int64)},
		Column{Name: "text", Type: Type(event.String)},
		Column{Name: "bytes", Type: Type(event.String), SQL: "LONGBLOB"})
	w := g.open()
	texts := append([]string(nil), awkward...)
	for range 100 {
		texts = append(texts, rapid.StringMatching(`['\\\x00a-c☾]{0,40}`).Example(len(texts)))
	}
	rows := newRows(w)
	for i, text := range texts {
		rows.Add(int64(i), text, text)
	}
	rows.write(t, w)
	result, err := g.db.Query("SELECT id, text, bytes FROM events")
	if err != nil {
		t.Fatal(err)
	}
	defer result.Close()
	n := 0
	for ; result.Next(); n++ {
		var id int
		var text, bytes string
		if err := result.Scan(&id, &text, &bytes); err != nil {
			t.Fatal(err)
		}
		if text != texts[id] || bytes != texts[id] {
			t.Errorf("%q became %q and %q", texts[id], text, bytes)
		}
	}
	if n != len(texts) {
		t.Errorf("%d rows, want %d", n, len(texts))
	}
}
