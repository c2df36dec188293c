package statement

import "testing"

const notOne = "the predicate must be one expression over the columns of events"

// predicateSamples are statements with the error of CheckPredicate for the table events.
var predicateSamples = []sample{
	{`SELECT 1 FROM events WHERE id = 7`, ""},
	{`SELECT 1 FROM events WHERE name LIKE 'x%' OR id IN (1, 2) -- why`, ""},
	{`SELECT 1 FROM events WHERE date_trunc('day', time) < '2026-01-01' AND lower(name) = 'x'`, ""},

	{`SELECT 1 FROM events`, notOne},
	{`SELECT 1 FROM events, events e WHERE true`, notOne},
	{`SELECT 1 FROM events WHERE id IN (SELECT id FROM events)`, notOne},
	{`SELECT 1 FROM events WHERE id = (SELECT 1)`, notOne},
	{`SELECT 1 FROM events WHERE row_number() OVER () = 1`, notOne},
	{`SELECT 1 FROM events WHERE id = ?`, notOne},
	{`SELECT 1 FROM events WHERE id = $id`, notOne},
	{`SELECT 1 FROM events WHERE true GROUP BY id`, notOne},
	{`SELECT 1 FROM events WHERE (true) GROUP BY ALL HAVING (true)`, notOne},
	{`SELECT 1 FROM events WHERE true QUALIFY true`, notOne},
	{`SELECT 1 FROM events WHERE true ORDER BY id`, notOne},
	{`SELECT 1 FROM events WHERE (true) LIMIT (1)`, notOne},
	{`SELECT 1 FROM events WHERE true USING SAMPLE 10`, notOne},
	{`SELECT 1 FROM events WHERE id = 7 UNION SELECT 1`, notOne},
	{`SELECT 1 FROM events WHERE id = 7 INTERSECT SELECT 1 FROM events WHERE true`, notOne},

	{`SELECT 1 FROM events WHERE time < now()`, "the predicate calls now, whose result changes"},
	{`SELECT 1 FROM events WHERE time < current_timestamp`, "the predicate calls current_timestamp, whose result changes"},
	{`SELECT 1 FROM events WHERE NOT (id = 1 OR "Random"() < 0.5)`, "the predicate calls random, whose result changes"},
	{`SELECT 1 FROM events WHERE time < today()`, "the predicate calls today, whose result changes"},
	{`SELECT 1 FROM events WHERE age(time) > INTERVAL 1 DAY`, "the predicate calls age, whose result changes"},
}

func TestCheckPredicate(t *testing.T) {
	parser := newRecordedParser(t)
	for _, test := range predicateSamples {
		s := parse(t, parser, test.sql)
		if s == nil {
			continue
		}
		got := ""
		if err := s.CheckPredicate("events"); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s\ngot error  %q\nwant error %q", test.sql, got, test.want)
		}
	}
}
