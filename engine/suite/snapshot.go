package suite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// snapshot returns all that came out as lines: rows by sink, dead letters, and log lines.
func (r *runner) snapshot(o *outcome) []string {
	var lines []string
	for i, rows := range o.rows {
		for _, row := range rows {
			lines = append(lines, fmt.Sprintf("row %s: %s", r.pipeline.Sinks[i].Config.Name, row.value))
		}
	}
	for i := range o.dead {
		of := "event"
		if o.dead[i].timer {
			of = "timer"
		}
		lines = append(lines, fmt.Sprintf("dead %s %d: %s", of, o.dead[i].Position+1, oneLine(describeDead(&o.dead[i].DeadLetter))))
	}
	for _, line := range o.lines {
		lines = append(lines, "log "+oneLine(describeLine(line)))
	}
	return append(lines, fmt.Sprintf("dropped: %d", o.dropped))
}

func oneLine(text string) string { return strings.ReplaceAll(text, "\n", `\n`) }

// compareSnapshot compares what came out with a snapshot, or writes it.
func (j *judge) compareSnapshot(path string, o *outcome) {
	line := j.at.Get("snapshot").Line()
	got := j.snapshot(o)
	text, err := os.ReadFile(path)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing && j.opts.Frozen && !j.opts.Update:
		j.differ("snapshot "+j.settings.Snapshot, line, "", "the file does not exist: run the tests without CI set in the environment, and commit the file")
		return
	case missing || err == nil && j.opts.Update:
		j.writeSnapshot(path, string(text), got)
		return
	case err != nil:
		j.differ("snapshot "+j.settings.Snapshot, line, "", err.Error())
		return
	}
	want := strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n"), "\n")
	for _, d := range differences(want, got) {
		j.differ("snapshot "+j.settings.Snapshot+d.What, line, d.Want, d.Got)
	}
}

func (j *judge) writeSnapshot(path, before string, lines []string) {
	text := strings.Join(lines, "\n") + "\n"
	if text == before {
		return
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		j.differ("snapshot "+j.settings.Snapshot, 0, "", err.Error())
		return
	}
	j.result.Note = "wrote snapshot " + j.settings.Snapshot
}

// differences compares lines from the first that differs up to the last one.
func differences(want, got []string) (all []Difference) {
	first := 0
	for first < min(len(want), len(got)) && want[first] == got[first] {
		first++
	}
	want, got = want[first:], got[first:]
	for len(want) > 0 && len(got) > 0 && want[len(want)-1] == got[len(got)-1] {
		want, got = want[:len(want)-1], got[:len(got)-1]
	}
	for i := range max(len(want), len(got)) {
		d := Difference{What: fmt.Sprintf(", line %d", first+i+1)}
		if i < len(want) {
			d.Want = want[i]
		}
		if i < len(got) {
			d.Got = got[i]
		}
		all = append(all, d)
	}
	return all
}
