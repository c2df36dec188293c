package pipeline

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWalkOfOneBatch checks that the functions exist that the section "The walk of one batch" of
// the page on architecture names.
func TestWalkOfOneBatch(t *testing.T) {
	page, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## The walk of one batch\n")
	if !found {
		t.Fatal("docs/architecture.md has no section \"The walk of one batch\"")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	checked := 0
	for _, match := range regexp.MustCompile("`(?:([a-z]+)\\.)?([A-Za-z]+)`").FindAllStringSubmatch(section, -1) {
		folder, name := match[1], match[2]
		if name == "lanes" { // a key of the configuration
			continue
		}
		if folder == "" {
			folder = "pipeline"
		}
		checked++
		if !regexp.MustCompile(`\n(func|func \([^)]*\)|type) ` + name + `\b`).MatchString(sourceOf(t, folder)) {
			t.Errorf("the section names %s, got no such function or type in package %s", match[0], folder)
		}
	}
	if checked < 15 {
		t.Errorf("the section names %d functions, want at least 15", checked)
	}
}

// sourceOf returns the source of a package without its tests.
func sourceOf(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob("../" + folder + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(source)
	}
	return all.String()
}
