package suite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/engine/suite"
)

// TestMistakes holds what a wrong test file is told: the place of the mistake, and the right name or
// form.
func TestMistakes(t *testing.T) {
	one := func(keys string) string {
		return "env: {PASSWORD: pw}\ncases:\n  - name: a\n    events: [{kind: test}]\n" + keys
	}
	for name, test := range map[string]struct {
		text  string
		wants []string // one for each fault: place and message, then the hint
	}{
		"an empty file":              {"# nothing\n", []string{"1:1: the test file is empty|write at least:\ncases:"}},
		"a list":                     {"- name: a\n", []string{"1:1: the test file must be a mapping, not a list|"}},
		"a tab":                      {"cases:\n\t- name: a\n", []string{"2:1: the line is indented with a tab|indent with spaces"}},
		"a key between two columns":  {"cases:\n  - name: a\n   events: []\n", []string{"3:|cases:\n  - name: what it does"}},
		"a misspelt key of the file": {"case:\n  - name: a\n", []string{`1:1: unknown key "case" in the test file|did you mean "cases"?`}},
		"a misspelt key of a case":   {one("    row: {db: []}\n    dropped: 1\n"), []string{`5:5: unknown key "row" in case 1|did you mean "rows"?`}},
		"a key of another tool":      {one("    output: {db: []}\n    dropped: 1\n"), []string{`5:5: unknown key "output" in case 1|did you mean "rows"?`}},
		"no case":                    {"env: {PASSWORD: pw}\ncases: []\n", []string{"2:8: the test file has no case|write at least:"}},
		"a case without a name":      {"cases:\n  - {events: [{}], dropped: 1}\n", []string{`2:6: key "name" is missing in case 1|name of the case`}},
		"two cases of one name":      {"cases:\n  - {name: a, events: [{}], dropped: 1}\n  - {name: a, events: [{}], dropped: 1}\n", []string{`3:12: two cases are called "a", the first on line 2|give each case a name of its own`}},
		"a case without events":      {"cases:\n  - {name: a, dropped: 1}\n", []string{`2:6: case "a" has no events|write events: [{…}]`}},
		"events and each":            {one("    each: [{}]\n    dropped: 1\n"), []string{`5:11: case "a" has both events and each|make two cases`}},
		"events and steps":           {one("    steps: [{wait: 1s}]\n    dropped: 1\n"), []string{`5:12: case "a" has both events and steps|make two cases`}},
		"steps that are no list":     {"cases:\n  - name: a\n    steps: {wait: 1s}\n    dropped: 1\n", []string{`3:13: steps must be a list, not a mapping|write steps: [{events: [{…}]}, {wait: 30s}]`}},
		"no step":                    {"cases:\n  - name: a\n    steps: []\n    dropped: 1\n", []string{`3:12: case "a" has no step|write steps: [`}},
		"a step of both keys":        {"cases:\n  - name: a\n    steps: [{events: [{}], wait: 1s}]\n    dropped: 1\n", []string{`3:14: step 1 must have either events or wait|make a step of each`}},
		"a step of neither":          {"cases:\n  - name: a\n    steps: [{events: [{}]}, {}]\n    dropped: 1\n", []string{`3:29: step 2 must have either events or wait|make a step of each`}},
		"a step that is text":        {"cases:\n  - name: a\n    steps: [30s]\n    dropped: 1\n", []string{`3:13: step 1 must be a mapping, not "30s"|write {events: [{…}]} or {wait: 30s}`}},
		"a misspelt key of steps":    {"cases:\n  - name: a\n    steps: [{event: [{}]}]\n    dropped: 1\n", []string{`3:14: unknown key "event" in step 1|did you mean "events"?`}},
		"a wait without a unit":      {"cases:\n  - name: a\n    steps: [{wait: 30}]\n    dropped: 1\n", []string{`3:20: wait |`}},
		"a wait into the past":       {"cases:\n  - name: a\n    steps: [{wait: -1s}]\n    dropped: 1\n", []string{`3:20: wait |`}},
		"events of a step":           {"cases:\n  - name: a\n    steps: [{events: []}]\n    dropped: 1\n", []string{`3:22: events of case "a" has no event|`}},
		"nodes without a state":      {one("    state: {'^a': 1}\n"), []string{`5:13: pipeline mails has no state|write state: {name: NAME} in the pipeline`}},
		"a case that expects nothing": {one(""), []string{
			`3:5: case "a" expects nothing|say what must come out: rows, documents`}},
		"a file of events that is not there": {"cases:\n  - name: a\n    events: mail_tset.yaml\n    dropped: 1\n", []string{
			`3:13: events of case "a": |did you mean "mail_test.yaml"?`}},
		"events of the wrong shape": {"cases:\n  - name: a\n    events: {kind: test}\n    dropped: 1\n", []string{
			"3:14: events must be a list of events, or the path of a file, not a mapping|write events: [{…}]"}},
		"not a JSON number":       {"cases:\n  - name: a\n    events: [{n: 0x1F}]\n    dropped: 1\n", []string{"3:18: 0x1F is neither JSON nor text|in decimal digits"}},
		"a text for a number":     {one("    dropped: none\n"), []string{`5:14: dropped must be a whole number, not "none"|`}},
		"a negative number":       {one("    dropped: -1\n"), []string{"5:14: dropped must not be negative|"}},
		"a text for true":         {one("    dropped: 1\n    subset: yes\n"), []string{`6:13: subset must be true or false, not "yes"|`}},
		"an invalid time":         {one("    dropped: 1\n    now: yesterday\n"), []string{`6:10: now: invalid time "yesterday": use RFC 3339, such as 2026-|`}},
		"an invalid pattern":      {one("    dead: {message: 'a('}\n"), []string{`5:21: message: invalid regular expression, missing closing ): a(; write \ before|`}},
		"a pattern of the log":    {one("    log: ['*']\n"), []string{`5:11: invalid regular expression, missing argument to repetition operator: *|`}},
		"a misspelt sink":         {one("    rows: {bd: []}\n"), []string{`5:12: pipeline mails has no sink "bd"|did you mean "db"?`}},
		"a misspelt column":       {one("    rows: {db: [{emial: x}]}\n"), []string{`5:18: sink db has no column "emial"|did you mean "email"?`}},
		"rows without a sink":     {one("    rows: [{email: x}]\n"), []string{"5:11: rows must be a mapping of sinks, not a list|write rows: {db: [{…}]}"}},
		"a row that is text":      {one("    rows: {db: [x]}\n"), []string{`5:17: a row must be a mapping, not "x"|write {field: value}`}},
		"one row, not a list":     {one("    rows: {db: {email: x}}\n"), []string{"5:17: rows of db must be a list, not a mapping|write db: [{…}]"}},
		"a misspelt stage":        {one("    dead: [{stage: scirpt}]\n"), []string{`5:20: unknown stage "scirpt"|did you mean "script"?`}},
		"a misspelt key of dead":  {one("    dead: [{mesage: x}]\n"), []string{`5:13: unknown key "mesage" in a dead letter|did you mean "message"?`}},
		"a misspelt level":        {one("    log: [{level: wran, message: x}]\n"), []string{`5:19: unknown level "wran"|did you mean "warn"?`}},
		"a misspelt route":        {one("    routes: [audti]\n"), []string{`5:14: pipeline mails has no sink "audti"|did you mean "audit"?`}},
		"a route of text":         {one("    routes: {audit: many}\n"), []string{`5:21: routes of audit must be a number of rows, not "many"|`}},
		"a misspelt function":     {one("    with: {geo.lokup: DE}\n    dropped: 1\n"), []string{`5:12: module geo has no function lokup|did you mean "geo.lookup"?`}},
		"a function of the host":  {one("    with: {json.encode: x}\n    dropped: 1\n"), []string{`5:12: the functions of json cannot be replaced|`}},
		"a module without one":    {one("    with: {geo: DE}\n    dropped: 1\n"), []string{`5:12: geo of with names no function|write geo.FUNCTION: VALUE`}},
		"a misspelt pipeline":     {"env: {PASSWORD: pw}\npipeline: mail\n" + strings.TrimPrefix(one("    dropped: 1\n"), "env: {PASSWORD: pw}\n"), []string{`2:11: `, `pipeline.yaml has no pipeline "mail"|did you mean "mails"?`}},
		"a misspelt config":       {"config: pipline.yaml\n" + one("    dropped: 1\n"), []string{`1:9: no configuration pipline.yaml|did you mean "pipeline.yaml"?`}},
		"a call with rows":        {"cases:\n  - name: a\n    call: {function: f, returns: 1}\n    rows: {db: []}\n", []string{`4:12: rows needs events, and case "a" has a call|write returns or error below call`}},
		"a call without a result": {"cases:\n  - name: a\n    call: {function: f}\n", []string{`3:12: the call expects nothing|write returns: VALUE or error: PATTERN`}},
		"arguments of one value":  {"cases:\n  - name: a\n    call: {function: f, arguments: x, returns: 1}\n", []string{`3:36: arguments must be a list, not "x"|write arguments: [VALUE]`}},
		"two mistakes":            {one("    dropped: x\n    subset: 1\n"), []string{"5:14: dropped must be|", "6:13: subset must be|"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := project(t, test.text)
			_, err := suite.Run(t.Context(), path, settings())
			faults, ok := errors.AsType[config.Errors](err)
			if !ok {
				t.Fatalf("error %v is not of the file", err)
			}
			if name == "a misspelt pipeline" { // the message has the whole path
				test.wants = []string{fmt.Sprintf("%s%s/%s", test.wants[0], filepath.Dir(path), test.wants[1])}
			}
			if len(faults) != len(test.wants) {
				t.Fatalf("faults:\n%v\nwant %d", faults, len(test.wants))
			}
			for i, want := range test.wants {
				place, hint, _ := strings.Cut(want, "|")
				if got := strings.TrimPrefix(faults[i].Error(), path+":"); !strings.HasPrefix(got, place) || faults[i].File != path {
					t.Errorf("fault %q, want %q", got, place)
				}
				if !strings.Contains(faults[i].Hint, hint) {
					t.Errorf("hint %q, want %q", faults[i].Hint, hint)
				}
				if faults[i].Column < 1 || faults[i].Source == "" {
					t.Errorf("fault %q has column %d and the line %q", faults[i], faults[i].Column, faults[i].Source)
				}
			}
		})
	}
}

// TestLargeFile refuses a file that nobody wrote by hand, without reading it.
func TestLargeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large_test.yaml")
	file, err := os.Create(path)
	if err == nil {
		err = errors.Join(file.Truncate(1<<30), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := suite.Run(t.Context(), path, settings()); err == nil || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Errorf("error %v", err)
	}
}
