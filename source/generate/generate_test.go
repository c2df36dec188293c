package generate_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/perigeedb/perigee/source"
	"github.com/perigeedb/perigee/source/generate"
	"github.com/perigeedb/perigee/source/sourcetest"
)

func TestContract(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, events int) sourcetest.Place {
		if events == 0 {
			t.Skip("a source without events is an error")
		}
		seed := uint64(7)
		p := sourcetest.Place{
			Open: func(t *testing.T, limits source.Limits) source.Source {
				return open(t, generate.Config{Events: uint64(events), Seed: seed}, limits)
			},
			Renew: func(*testing.T) { seed++ },
			// The first event is due after a second.
			Wait: func(t *testing.T, limits source.Limits) source.Source {
				return open(t, generate.Config{Events: 1 << 40, Seed: 7, Rate: 1}, limits)
			},
		}
		for i := range events {
			p.Events = append(p.Events, string(generate.Append(nil, 7, uint64(i))))
		}
		return p
	})
}

func open(t *testing.T, c generate.Config, limits source.Limits) source.Source {
	t.Helper()
	s, err := generate.New(source.Env{Limits: limits}, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNoEvents(t *testing.T) {
	if _, err := generate.New(source.Env{}, generate.Config{}); err == nil {
		t.Error("a source without events is accepted")
	}
}

func TestEventsAreRealistic(t *testing.T) {
	var buf []byte
	for i := range uint64(5000) {
		buf = generate.Append(buf[:0], 1, i)
		var e struct {
			ID        uint64 `json:"id"`
			Name      string `json:"event_name"`
			Email     string `json:"email"`
			Campaign  string `json:"campaign"`
			Time      string `json:"time"`
			IP        string `json:"ip"`
			UserAgent string `json:"user_agent"`
			URL       string `json:"url"`
			Meta      struct {
				Attempt int      `json:"attempt"`
				Device  string   `json:"device"`
				Score   float64  `json:"score"`
				Tags    []string `json:"tags"`
			} `json:"meta"`
		}
		d := json.NewDecoder(bytes.NewReader(buf))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			t.Fatalf("event %d: %v: %s", i, err, buf)
		}
		if e.ID != i+1 || e.IP == "" || e.URL == "" || e.UserAgent == "" || e.Campaign == "" || e.Meta.Attempt == 0 {
			t.Fatalf("event %d is %s", i, buf)
		}
		if len(buf) < 250 || len(buf) > 400 {
			t.Fatalf("event %d has %d bytes, want 250 to 400: %s", i, len(buf), buf)
		}
	}
}

func TestShares(t *testing.T) {
	const n = 100_000
	count := map[string]int{}
	var buf []byte
	for i := range uint64(n) {
		buf = generate.Append(buf[:0], 1, i)
		_, rest, _ := bytes.Cut(buf, []byte(`"event_name":"`))
		name, rest, _ := bytes.Cut(rest, []byte(`"`))
		count[string(name)]++
		if !bytes.Contains(rest, []byte("@")) {
			count["bad"]++
		}
	}
	for name, perMillion := range map[string]int{
		"sent": 620_000, "open": 250_000, "click": 80_000, "bounce": 35_000, "spam": 15_000, "bad": 17,
	} {
		want := perMillion * n / 1_000_000
		if off := count[name] - want; off*off > 25*want {
			t.Errorf("%d of %d events are %s, want about %d", count[name], n, name, want)
		}
	}
}

// TestEventsStayTheSame: a resumed run relies on the events.
func TestEventsStayTheSame(t *testing.T) {
	const want = `{"id":42,"event_name":"bounce","email":"ada.novak352@example.com","campaign":"survey-19",` +
		`"time":"2026-01-01T00:00:03.587Z","ip":"198.18.55.18",` +
		`"user_agent":"Mozilla/5.0 (Windows NT 10.0; Win64; x64) Gecko/20100101",` +
		`"url":"https://links.example.com/survey/c19?r=1nncdyf",` +
		`"meta":{"attempt":1,"device":"unknown","score":0.8,"tags":["a8"]}}`
	got := string(generate.Append(nil, 1, 41))
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if other := string(generate.Append(nil, 2, 41)); other == got {
		t.Error("another seed makes the same event")
	}
}

func TestTimes(t *testing.T) {
	for _, i := range []uint64{0, 59_271_999, 59_272_000, 1 << 30, 1 << 34} {
		var e struct{ Time time.Time }
		if err := json.Unmarshal(generate.Append(nil, 3, i), &e); err != nil {
			t.Fatal(err)
		}
		want := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i) * 86 * time.Millisecond)
		if off := e.Time.Sub(want); off < 0 || off >= 86*time.Millisecond {
			t.Errorf("event %d is at %v, want %v or little later", i, e.Time, want)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	var buf []byte
	for i := range b.N {
		buf = generate.Append(buf[:0], 1, uint64(i))
	}
	b.SetBytes(int64(len(buf)))
}

func TestKind(t *testing.T) { sourcetest.Kind(t, generate.Kind()) }
