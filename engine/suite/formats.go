package suite

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/perigeedb/perigee/internal/terminal"
)

// A junitWriter writes JUnit's XML, which most CI systems read.
type junitWriter struct {
	w      io.Writer
	suites []junitSuite
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name      string        `xml:"name,attr"`
	ClassName string        `xml:"classname,attr"`
	File      string        `xml:"file,attr"`
	Line      int           `xml:"line,attr,omitempty"`
	Time      string        `xml:"time,attr"`
	Failure   *junitFailure `xml:"failure"`
	Error     *junitFailure `xml:"error"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// Report implements Writer.
func (j *junitWriter) Report(r *Report) error {
	s := junitSuite{Name: r.File, Tests: len(r.Results), Failures: r.Failed(), Time: fmt.Sprintf("%.6f", r.Took.Seconds())}
	for i := range r.Results {
		c := &r.Results[i]
		one := junitCase{Name: c.Name, ClassName: c.File, File: c.File, Line: c.Line, Time: fmt.Sprintf("%.6f", c.Took.Seconds())}
		if c.Failed() {
			one.Failure = &junitFailure{Message: c.Differences[0].What, Text: fmt.Sprintf("%s:%d\n%s", c.File, c.Line, plainDifferences(c.Differences))}
		}
		s.Cases = append(s.Cases, one)
	}
	j.suites = append(j.suites, s)
	return nil
}

// Fault implements Writer.
func (j *junitWriter) Fault(file string, err error) error {
	j.suites = append(j.suites, junitSuite{Name: file, Tests: 1, Errors: 1, Time: "0", Cases: []junitCase{{
		Name: "load", ClassName: file, File: file, Time: "0", Error: &junitFailure{Message: "the tests did not run", Text: err.Error()},
	}}})
	return nil
}

// Close implements Writer.
func (j *junitWriter) Close() error {
	text, err := xml.MarshalIndent(struct {
		XMLName xml.Name `xml:"testsuites"`
		Suites  []junitSuite
	}{Suites: j.suites}, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(j.w, "%s%s\n", xml.Header, text)
	return err
}

// A tapWriter writes the Test Anything Protocol, version 14.
type tapWriter struct {
	w      io.Writer
	n      int
	failed error
}

func (t *tapWriter) printf(format string, args ...any) {
	if t.n == 0 {
		_, t.failed = io.WriteString(t.w, "TAP version 14\n")
	}
	t.n++
	if t.failed == nil {
		_, t.failed = fmt.Fprintf(t.w, format, args...)
	}
}

// tapName escapes a description.
func tapName(name string) string {
	return strings.NewReplacer("\\", "\\\\", "#", "\\#").Replace(terminal.EscapeLine(name))
}

// Report implements Writer.
func (t *tapWriter) Report(r *Report) error {
	for i := range r.Results {
		c := &r.Results[i]
		word, block := "ok", ""
		if c.Failed() {
			word = "not ok"
			quoted, _ := json.Marshal(plainDifferences(c.Differences))
			block = fmt.Sprintf("  ---\n  at: {file: %q, line: %d}\n  message: %s\n  ...\n", c.File, c.Line, quoted)
		}
		t.printf("%s %d - %s\n%s", word, t.n+1, tapName(c.File+": "+c.Name), block)
	}
	return t.failed
}

// Fault implements Writer.
func (t *tapWriter) Fault(file string, err error) error {
	quoted, _ := json.Marshal(err.Error())
	t.printf("not ok %d - %s\n  ---\n  message: %s\n  ...\n", t.n+1, tapName(file+": load"), quoted)
	return t.failed
}

// Close implements Writer.
func (t *tapWriter) Close() error {
	if t.n == 0 {
		_, t.failed = io.WriteString(t.w, "TAP version 14\n")
	}
	if t.failed == nil {
		_, t.failed = fmt.Fprintf(t.w, "1..%d\n", t.n)
	}
	return t.failed
}

// A jsonWriter writes one JSON object.
type jsonWriter struct {
	w     io.Writer
	whole struct {
		Passed int         `json:"passed"`
		Failed int         `json:"failed"`
		Cases  []jsonCase  `json:"cases"`
		Faults []jsonFault `json:"faults,omitempty"` // of files that did not run
	}
}

type jsonCase struct {
	*Result
	Passed  bool    `json:"passed"`
	Seconds float64 `json:"seconds"`
}

type jsonFault struct {
	File  string `json:"file"`
	Error string `json:"error"`
}

// Report implements Writer.
func (j *jsonWriter) Report(r *Report) error {
	j.whole.Failed += r.Failed()
	j.whole.Passed += len(r.Results) - r.Failed()
	for i := range r.Results {
		c := &r.Results[i]
		for k := range c.Differences {
			c.Differences[k].Got = validText(c.Differences[k].Got)
		}
		j.whole.Cases = append(j.whole.Cases, jsonCase{c, !c.Failed(), c.Took.Seconds()})
	}
	return nil
}

func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Fault implements Writer.
func (j *jsonWriter) Fault(file string, err error) error {
	j.whole.Faults = append(j.whole.Faults, jsonFault{file, err.Error()})
	return nil
}

// Close implements Writer.
func (j *jsonWriter) Close() error {
	if j.whole.Cases == nil {
		j.whole.Cases = []jsonCase{}
	}
	e := json.NewEncoder(j.w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(j.whole)
}
