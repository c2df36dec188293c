package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var updatePages = flag.Bool("update-pages", false, "write the output of the commands into the pages")

// pageFolder is the folder in the output of a tutorial.
const pageFolder = "/home/ada/perigee"

// A page is a page of the documentation whose commands the test runs.
type page struct {
	path   string
	text   string
	folder string // working folder of the commands
	env    []string
	steps  int
	failed int
	out    strings.Builder // output of all commands
}

var (
	// pageBlock matches a block of commands, and their output if the page shows it.
	pageBlock = regexp.MustCompile("(?s)```sh\n(.*?)```\n(?:\n```text\n(.*?)```\n)?")
	hereDoc   = regexp.MustCompile(`<<'(\w+)'`)
	logLine   = regexp.MustCompile(`(?m)^time=\S+ level=\w+ msg=.*\n`)
	pageMasks = []struct {
		matches *regexp.Regexp
		mask    string
	}{
		{regexp.MustCompile(`[─ ]{2,}`), " "}, // widths of columns
		{regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?`), "TIME"},
		{regexp.MustCompile(`│ [a-z0-9]{10} │`), "│ ID │"}, // of a dead letter
		{regexp.MustCompile(`"?ttl_ms"?:\d+`), "TTL"},
		{regexp.MustCompile(`\d+(\.\d+)? ?(ns|µs|ms|s|B|kB|KB|MB|KiB|MiB|bytes)\b`), "AMOUNT"},
		{regexp.MustCompile(`\d+-\d+-\d+\.parquet|\d{6,}\S*\.parquet`), "FILE"},
		{regexp.MustCompile(`lua: .*`), "LUA"},
		{regexp.MustCompile(`owner, \S+:\d+:\w+`), "WORKER"},
	}
)

func openPage(t *testing.T, path string) *page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return &page{path: path, text: string(text), folder: newPageFolder(t)}
}

// newPageFolder returns a folder with a path as long as pageFolder, because tables shorten
// errors.
func newPageFolder(t *testing.T) string {
	t.Helper()
	folder := fmt.Sprintf("/tmp/page%08x", rand.Uint32())
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// play runs the commands of the page in order, and compares their output with the page.
func (p *page) play(t *testing.T) {
	t.Helper()
	written := pageBlock.ReplaceAllStringFunc(p.text, func(block string) string {
		parts := pageBlock.FindStringSubmatch(block)
		var printed strings.Builder
		for _, step := range splitSteps(parts[1]) {
			printed.WriteString(p.step(t, step))
		}
		shown := p.shown(printed.String())
		if *updatePages {
			if parts[2] = shown; shown == "" {
				return "```sh\n" + parts[1] + "```\n"
			}
			return "```sh\n" + parts[1] + "```\n\n```text\n" + shown + "```\n"
		}
		if masked(shown) != masked(parts[2]) {
			p.fails(t, "%s: the commands\n%s\nprint\n%s\nand the page shows\n%s\n(go test -update-pages writes it)", p.path, parts[1], shown, parts[2])
		}
		return block
	})
	if *updatePages {
		if err := os.WriteFile(filepath.Join("../..", p.path), []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// splitSteps returns the commands of a block: lines, or here-documents.
func splitSteps(block string) (steps []string) {
	end := ""
	for line := range strings.Lines(block) {
		switch {
		case end == "":
			steps = append(steps, line)
			if m := hereDoc.FindStringSubmatch(line); m != nil {
				end = m[1]
			}
		default:
			steps[len(steps)-1] += line
			if strings.TrimSpace(line) == end {
				end = ""
			}
		}
	}
	return steps
}

// step runs a command, which must succeed, and returns its output.
func (p *page) step(t *testing.T, command string) string {
	t.Helper()
	out, code := p.run(t, p.folder, command)
	if code != 0 {
		p.fails(t, "%s: exit code %d of\n%s\n%s", p.path, code, command, out)
	}
	return out
}

// run runs a command in a folder.
func (p *page) run(t *testing.T, folder, command string) (out string, code int) {
	t.Helper()
	p.steps++
	shell := exec.Command("sh", "-c", command)
	shell.Dir, shell.Env = folder, append(os.Environ(), p.env...)
	var both bytes.Buffer
	shell.Stdout, shell.Stderr = &both, &both
	if err := shell.Run(); shell.ProcessState == nil {
		t.Fatal(err)
	}
	p.out.Write(both.Bytes())
	return both.String(), shell.ProcessState.ExitCode()
}

func (p *page) fails(t *testing.T, format string, args ...any) {
	t.Helper()
	p.failed++
	t.Errorf(format, args...)
}

// shown returns an output in the form of a page: without the log, and with pageFolder.
func (p *page) shown(out string) string {
	paths := strings.NewReplacer(p.folder, pageFolder, url.PathEscape(p.folder), url.PathEscape(pageFolder))
	return paths.Replace(logLine.ReplaceAllString(out, ""))
}

// masked hides the parts of an output that differ between runs.
func masked(s string) string {
	for _, m := range pageMasks {
		s = m.matches.ReplaceAllString(s, m.mask)
	}
	return s
}
