package suite

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/engine/trial"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/luasyntax"
)

// Coverage is which lines of scripts ran, in all test files that ran with it. The zero value is
// empty.
type Coverage struct {
	files map[string]*coveredFile // by path, or by the name of code in a configuration
}

// A coveredFile is the code of one file.
type coveredFile struct {
	lines map[int]bool // that have code: whether it ran
}

// add adds the lines of a pipeline's code that ran.
func (c *Coverage) add(p *trial.Pipeline, ran *script.Coverage) {
	if c.files == nil {
		c.files = make(map[string]*coveredFile)
	}
	for _, file := range ran.Files() {
		if name, text := sourceOf(p.Codes, file); text != nil {
			c.addFile(name, text, ran.Lines(file))
		}
	}
}

// sourceOf returns the name and the text of code, or of a file that code requires.
func sourceOf(codes []script.Code, file string) (name string, text []byte) {
	for _, code := range codes {
		if code.Name == file {
			return file, code.Text
		}
	}
	for _, code := range codes {
		if code.Files == nil || !script.IsModulePath(file) {
			continue
		}
		if text, err := code.Files(file); err == nil {
			return filepath.Join(filepath.Dir(code.Name), filepath.FromSlash(file)), text
		}
	}
	return "", nil
}

func (c *Coverage) addFile(name string, text []byte, ran []int) {
	statements, err := luasyntax.Statements(bytes.NewReader(text), name)
	if err != nil {
		return // LuaJIT knows more syntax
	}
	file := c.files[name]
	if file == nil {
		file = &coveredFile{lines: make(map[int]bool)}
		c.files[name] = file
	}
	for _, s := range statements {
		// The code of a statement may be on any of its lines. If a statement within it ran, it did.
		at, _ := slices.BinarySearch(ran, s.First)
		covered := at < len(ran) && ran[at] <= s.Last
		file.lines[s.First] = file.lines[s.First] || covered
	}
}

// counts returns how many lines have code, and those that never ran.
func (f *coveredFile) counts() (all int, missing []int) {
	for line, ran := range f.lines {
		if !ran {
			missing = append(missing, line)
		}
	}
	slices.Sort(missing)
	return len(f.lines), missing
}

// WriteText writes a line for each file, with the lines that never ran.
func (c *Coverage) WriteText(w io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		all, missing := c.files[name].counts()
		text := fmt.Sprintf("coverage %s: %d of %d lines", relative(name), all-len(missing), all)
		if len(missing) > 0 {
			text += ", never ran: " + ranges(missing)
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

// WriteLCOV writes lcov's tracefile, which editors and CI systems read. It leaves out code in a
// configuration, which has no file of its own.
func (c *Coverage) WriteLCOV(w io.Writer) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		if !filepath.IsAbs(name) {
			continue
		}
		all, missing := c.files[name].counts()
		fmt.Fprintf(&b, "TN:\nSF:%s\n", relative(name))
		for _, line := range slices.Sorted(maps.Keys(c.files[name].lines)) {
			ran := 0
			if c.files[name].lines[line] {
				ran = 1
			}
			fmt.Fprintf(&b, "DA:%d,%d\n", line, ran)
		}
		fmt.Fprintf(&b, "LF:%d\nLH:%d\nend_of_record\n", all, all-len(missing))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// relative returns a path below the working folder as relative.
func relative(name string) string {
	folder, err := filepath.Abs(".")
	if err != nil || !filepath.IsAbs(name) {
		return name
	}
	path, err := filepath.Rel(folder, name)
	if err != nil || strings.HasPrefix(path, "..") {
		return name
	}
	return cmp.Or(path, name)
}

// ranges writes sorted numbers as 3, 5-8, 12.
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		if part := fmt.Sprint(numbers[i]); end == i {
			parts = append(parts, part)
		} else {
			parts = append(parts, fmt.Sprintf("%s-%d", part, numbers[end]))
		}
		i = end + 1
	}
	return strings.Join(parts, ", ")
}
