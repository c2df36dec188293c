package archtest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// privateWords are words that the project once used where the field has a term, and
// phrases that read as translated. Whole words of identifiers, comments, messages and
// docs are compared, without regard to case: "mend" is found in mendScript and
// MendScript, but not in recommend.
var privateWords = map[string]string{
	"a number is no":         "is not",
	"anew":                   "again",
	"comes again":            "retries",
	"crew":                   "supervisor",
	"desk":                   "buffer",
	"dismiss":                "stop",
	"eventsql":               "the engine's event store",
	"gives free":             "releases",
	"heed":                   "handle",
	"hire":                   "assign",
	"hired":                  "assigned",
	"homeless":               "rejected",
	"hurry":                  "a deadline, a request",
	"is to be had":           "is available",
	"it is tried again":      "will retry",
	"mend":                   "repair, fix",
	"mended":                 "repaired, fixed",
	"mends":                  "repairs, fixes",
	"minded":                 "rejected",
	"mistrust":               "fallback",
	"no type is no text":     "the zero Type marshals to empty text",
	"nobody has asked for a": "no … is pending",
	"nobody heard":           "unacknowledged",
	"nobody knows":           "unknown",
	"of its own stands":      "is kept in",
	"of no more use":         "closed, failed",
	"settling":               "delivery",
	"store of a backup":      "restore from a backup",
	"tenancy":                "lease",
	"tenure":                 "lease",
	"that is none":           "not a …",
	"there are not":          "unknown, missing",
	"there is not":           "unknown, missing",
	"trouble":                "retry, failure",
	"upkeep":                 "compactor",
	"vigil":                  "health check",
	"who waits":              "a noun",
	"whoever":                "a noun",
}

// privateForms are names and sentences that a list of words cannot tell from good ones. They
// are searched in files of the given kinds, except tests.
var privateForms = []struct {
	form    *regexp.Regexp
	kinds   string // extensions
	instead string
}{
	{regexp.MustCompile(`, of which\b`), ".go .c .h .lua .md .sh", "two sentences"},
	{regexp.MustCompile(`^\s*(//|--|#|/?\*+) (What|Who) `), ".go .c .h .lua .sh .yaml", "a noun as the subject"},
	{regexp.MustCompile(`[.;] (What|Who) [^?]*$`), ".go .c .h .lua .md .sh .yaml", "a noun as the subject"},
	{regexp.MustCompile(`[(,] ?most int(64)?\b|^\s*(const |var |if )?most :?= `), ".go", "max and a noun"},
	{regexp.MustCompile(`\berrInnocent\b|\bkeyGiven\b|\bnoteFrame\b|\bforgetLog\b`), ".go", "errWorkerLost, keyReleased, recordCommitted, dropSealedLog"},
	{regexp.MustCompile(`\bReached func\(`), ".go", "OnPoint"},
	{regexp.MustCompile(`\b[sS]ettle\(`), ".go", "Finish"},
	{regexp.MustCompile(`\bpg_`), ".c .h", "the prefix of the library"},
}

// privateFiles are names of test files that do not name the unit under test.
var privateFiles = []string{"added_test.go", "alike_test.go", "edges_test.go", "promises_test.go", "written_test.go"}

// wordFiles are the kinds of files that are searched.
var wordFiles = []string{".go", ".c", ".h", ".lua", ".md", ".sh", ".yaml"}

func TestNoPrivateWords(t *testing.T) {
	for _, name := range textFiles(t) {
		if slices.Contains(privateFiles, filepath.Base(name)) {
			t.Errorf("%s: name the file after the unit under test", name)
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			words := " " + strings.Join(splitWords(string(line)), " ") + " "
			for word, instead := range privateWords {
				if strings.Contains(words, " "+word+" ") {
					t.Errorf("%s:%d: %q is private vocabulary; use: %s", name, i+1, word, instead)
				}
			}
			if found, instead := privateForm(name, line); found != "" {
				t.Errorf("%s:%d: %q reads as translated; use: %s", name, i+1, found, instead)
			}
		}
	}
}

// privateForm returns the first private form in a line of a file, and what to write instead.
func privateForm(name string, line []byte) (found, instead string) {
	if strings.HasSuffix(name, "_test.go") {
		return "", ""
	}
	for _, p := range privateForms {
		if slices.Contains(strings.Fields(p.kinds), filepath.Ext(name)) && p.form.Match(line) {
			return string(p.form.Find(line)), p.instead
		}
	}
	return "", ""
}

func textFiles(t *testing.T) (names []string) {
	t.Helper()
	walk(t, func(name string, _ fs.DirEntry) {
		searched := slices.Contains(wordFiles, filepath.Ext(name)) && !strings.Contains(name, "/testdata/")
		if searched && name != "internal/archtest/words_test.go" {
			names = append(names, name)
		}
	})
	return names
}

var letters = regexp.MustCompile(`\pL+`)

// splitWords returns the words of a line in lower case: runs of letters, split where an
// identifier in mixed case begins a new word.
func splitWords(line string) (words []string) {
	for _, run := range letters.FindAllString(line, -1) {
		runes, from := []rune(run), 0
		for i := 1; i < len(runes); i++ {
			begins := unicode.IsUpper(runes[i]) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
			if begins {
				words = append(words, strings.ToLower(string(runes[from:i])))
				from = i
			}
		}
		words = append(words, strings.ToLower(string(runes[from:])))
	}
	return words
}

func TestSplitWords(t *testing.T) {
	got := splitWords("// mendScript: HTTPServer's vigil_time, recommended")
	want := []string{"mend", "script", "http", "server", "s", "vigil", "time", "recommended"}
	if !slices.Equal(got, want) {
		t.Errorf("split into %q, want %q", got, want)
	}
}

func TestPrivateForm(t *testing.T) {
	for _, test := range []struct {
		name, line string
		found      bool
	}{
		{"a.go", "// Two files, of which one is empty.", true},
		{"a.go", "// Two files. One of them is empty, which is a fault.", false},
		{"a.h", "/* What a reader searches. */", true},
		{"a.md", "# What differs", false},
		{"a.md", "The engine runs it. What it returns goes nowhere.", true},
		{"a.md", "It failed. What now?", false},
		{"a.go", "func get(name string, most int64) error {", true},
		{"a.go", "	const most = 3", true},
		{"a.go", "// at most int64 values", false},
		{"a_test.go", "	const most = 3", false},
		{"a.c", "int pg_open(void);", true},
		{"a.go", "rows, err := c.Query(ctx, `SELECT pg_backend_pid()`)", false},
	} {
		if found, _ := privateForm(test.name, []byte(test.line)); (found != "") != test.found {
			t.Errorf("%s: %s: found %q, want a form: %v", test.name, test.line, found, test.found)
		}
	}
}
