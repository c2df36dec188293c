package release

import (
	"bufio"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestOneVersion compares VERSION with the newest heading of the change log: of this version, or
// of changes that are not released yet.
func TestOneVersion(t *testing.T) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(Version) {
		t.Errorf("%q is not a semantic version", Version)
	}
	file, err := os.Open("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		heading, ok := strings.CutPrefix(lines.Text(), "## ")
		if !ok {
			continue
		}
		if version, _, _ := strings.Cut(heading, " "); version != Version {
			t.Errorf("the change log begins with version %s, and VERSION is %s", version, Version)
		}
		return
	}
	t.Errorf("no version in the change log: %v", lines.Err())
}
