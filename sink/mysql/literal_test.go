package mysql

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perigeedb/perigee/event"
)

func TestTimeAsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.Int64Range(firstMicro, endMicro-1).Draw(t, "micros")
		text, err := appendTime(nil, micros)
		if err != nil {
			t.Fatal(err)
		}
		if want := time.UnixMicro(micros).UTC().Format("2006-01-02 15:04:05.000000"); string(text) != want {
			t.Fatalf("%d became %s, want %s", micros, text, want)
		}
	})
	for _, micros := range []int64{firstMicro - 1, endMicro, -1 << 63, 1<<63 - 1} {
		if text, err := appendTime(nil, micros); !errors.Is(err, errYear) {
			t.Errorf("%d became %s, %v", micros, text, err)
		}
	}
}

func TestScale(t *testing.T) {
	tests := []struct {
		number string
		scale  int
		ok     bool
	}{
		{"1.25", 2, true}, {"1.250000", 2, true}, {"1.251", 2, false}, {"100", 0, true},
		{"1.5", 0, false}, {"1.0", 0, true}, {"1.23456789e-3", 2, true}, {"1.251", -1, true},
	}
	for _, test := range tests {
		if err := checkScale([]byte(test.number), test.scale); (err == nil) != test.ok {
			t.Errorf("%s with %d digits after the point: %v", test.number, test.scale, err)
		}
	}
}

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
		rows.add(int64(i), text, text)
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
