package sqltext

import (
	"reflect"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	for text, want := range map[string][]Part{
		"":                            nil,
		" ; ;\n-- nothing\n;/* */":    nil,
		"SELECT 1":                    {{"SELECT 1", 1, 1}},
		" SELECT 1 ; ":                {{"SELECT 1", 1, 2}},
		"SELECT 1;\n  SELECT\n2;":     {{"SELECT 1", 1, 1}, {"SELECT\n2", 2, 3}},
		"SELECT ';''', \";\"\"\"; b":  {{`SELECT ';''', ";"""`, 1, 1}, {"b", 1, 22}},
		`SELECT '\'; b`:               {{`SELECT '\'`, 1, 1}, {"b", 1, 13}},
		`SELECT e'\';', E'\\'; b`:     {{`SELECT e'\';', E'\\'`, 1, 1}, {"b", 1, 23}},
		"-- a;\nSELECT 1 -- b;\n;c":   {{"SELECT 1", 2, 1}, {"c", 3, 2}},
		"/* a; /* ; */ ; */ b /*; */": {{"b", 1, 20}},
		"SELECT $$;$$; b":             {{"SELECT $$;$$", 1, 1}, {"b", 1, 15}},
		"SELECT $x$;$$;$x$; b":        {{"SELECT $x$;$$;$x$", 1, 1}, {"b", 1, 20}},
		"SELECT $1; SELECT $a; b":     {{"SELECT $1", 1, 1}, {"SELECT $a", 1, 12}, {"b", 1, 23}},
		"SELECT a$b$; SELECT c$b$; b": {{"SELECT a$b$", 1, 1}, {"SELECT c$b$", 1, 14}, {"b", 1, 27}},
		"SELECT '☾'; b":               {{"SELECT '☾'", 1, 1}, {"b", 1, 13}},
		"SELECT 'open; b":             {{"SELECT 'open; b", 1, 1}},
		"SELECT /* open; b":           {{"SELECT", 1, 1}},
	} {
		if got := Split(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestEnds(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "SELECT 1": false, "SELECT 1;": true, "SELECT 1 ; -- done\n": true, "SELECT 1; SELECT 2": false,
		"SELECT ';": false, "SELECT ';';": true, "-- ;": false, "SELECT 1 /* ; */": false, "SELECT 1;;": true,
	} {
		if got := Ends(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestSplitLosesNothing holds that what is between parts has no statement.
func TestSplitLosesNothing(t *testing.T) {
	text := "a; 'b;' ; c /* ; */ d;"
	var all []string
	for _, p := range Split(text) {
		all = append(all, p.SQL)
	}
	if got := strings.Join(all, "|"); got != "a|'b;'|c /* ; */ d" {
		t.Error(got)
	}
}
