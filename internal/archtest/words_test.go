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
	"anew":            "again",
	"comes again":     "retries",
	"crew":            "supervisor",
	"desk":            "buffer",
	"dismiss":         "stop",
	"heed":            "handle",
	"hire":            "assign",
	"hired":           "assigned",
	"homeless":        "rejected",
	"mend":            "repair, fix",
	"mended":          "repaired, fixed",
	"mends":           "repairs, fixes",
	"mistrust":        "fallback",
	"nobody heard of": "unacknowledged",
	"of no more use":  "closed, failed",
	"settling":        "delivery",
	"tenancy":         "lease",
	"tenure":          "lease",
	"there are not":   "unknown, missing",
	"there is not":    "unknown, missing",
	"trouble":         "retry, failure",
	"vigil":           "health check",
	"whoever":         "a noun",
}

// wordFiles are the kinds of files that are searched.
var wordFiles = []string{".go", ".c", ".h", ".lua", ".md", ".sh", ".yaml"}

func TestNoPrivateWords(t *testing.T) {
	for _, name := range textFiles(t) {
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
		}
	}
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
