package gopherlua

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/perigeedb/perigee/internal/document/pure"
	"github.com/perigeedb/perigee/script"
)

func newReader(text []byte) io.Reader { return bytes.NewReader(text) }

// newError returns an error of the script without a line.
func (m *machine) newError(format string, args ...any) error {
	return &script.Error{Script: m.file, Message: fmt.Sprintf(format, args...)}
}

func syntaxError(code script.Code, err error) *script.Error {
	fault := &script.Error{Script: code.Name, Message: err.Error()}
	var syntax *parse.Error
	var compile *lua.CompileError
	switch {
	case errors.As(err, &syntax) && syntax.Pos.Line == parse.EOF:
		fault.Line = bytes.Count(bytes.TrimRight(code.Text, "\n"), []byte("\n")) + 1
		fault.Message = "syntax error: the script ends too early"
	case errors.As(err, &syntax):
		fault.Line, fault.Column = syntax.Pos.Line, syntax.Pos.Column
		fault.Message = fmt.Sprintf("%s near %q", strings.TrimSpace(syntax.Message), syntax.Token)
	case errors.As(err, &compile):
		fault.Line, fault.Message = compile.Line, compile.Message
	}
	return fault
}

// scriptError converts the error of a call into one with file and line.
func (m *machine) scriptError(err error) *script.Error {
	var fault *script.Error
	if errors.As(err, &fault) {
		return fault
	}
	fault = &script.Error{Script: m.file, Message: err.Error()}
	var raised *lua.ApiError
	if errors.As(err, &raised) {
		fault.Message = m.raisedText(raised.Object)
		fault.Traceback = raised.StackTrace
	}
	m.splitPosition(fault)
	fault.Message = m.source.WithHint(fault.Script, fault.Line, plainWords(fault.Message))
	return fault
}

// raisedText returns the text of a value that error was called with. A table reads as
// JSON.
func (m *machine) raisedText(v lua.LValue) string {
	if v == nil {
		return "nil"
	}
	meta := m.state.GetMetaField(v, "__tostring")
	_, isTable := v.(*lua.LTable)
	if isTable && meta == lua.LNil || isProxy(v) {
		value, err := m.toJSON(v)
		if err == nil {
			text, failed := pure.AppendValue(nil, value)
			if err = failed; err == nil {
				return string(text)
			}
		}
		return "a table that is no JSON: " + err.Error()
	}
	text := "an object whose __tostring fails"
	l := m.state
	top := l.GetTop()
	defer l.SetTop(top)
	l.Push(l.NewFunction(func(l *lua.LState) int {
		l.Push(l.ToStringMeta(l.Get(1)))
		return 1
	}))
	l.Push(v)
	if l.PCall(1, 1, nil) == nil {
		text = l.Get(-1).String()
	}
	return text
}

// splitPosition moves file and line from the start of a message into the error.
func (m *machine) splitPosition(fault *script.Error) {
	file, found := m.fileOf(fault.Message)
	if !found {
		return
	}
	number, text, _ := strings.Cut(fault.Message[len(file)+1:], ": ")
	if line, err := strconv.Atoi(number); err == nil {
		fault.Script, fault.Line, fault.Message = file, line, text
	}
}

// fileOf returns the file that a position at the start of a text is in.
func (m *machine) fileOf(text string) (file string, found bool) {
	if strings.HasPrefix(text, m.file+":") {
		return m.file, true
	}
	for file := range m.files {
		if strings.HasPrefix(text, file+":") {
			return file, true
		}
	}
	return "", false
}

var (
	arithmetic = regexp.MustCompile(`cannot perform \w+ operation between (\w+) and (\w+)`)
	concat     = regexp.MustCompile(`cannot perform concat operation between (\w+) and (\w+)`)
	index      = regexp.MustCompile(`attempt to index a non-table object\((\w+)\) with key '(.*)'`)
)

// plainWords rewrites gopher-lua's messages as Lua words them.
func plainWords(message string) string {
	message = concat.ReplaceAllString(message, "attempt to concatenate $1 and $2")
	message = arithmetic.ReplaceAllString(message, "attempt to perform arithmetic on $1 and $2")
	return index.ReplaceAllString(message, "attempt to index a $1 value with the key '$2'")
}

// isPanic reports whether gopher-lua itself failed.
func isPanic(err error) bool {
	var raised *lua.ApiError
	return errors.As(err, &raised) && raised.Type == lua.ApiErrorPanic
}

// isPanicText is isPanic for an error that pcall returned.
func isPanicText(v lua.LValue) bool {
	text, ok := v.(lua.LString)
	return ok && strings.HasPrefix(string(text), "runtime error: ")
}

// lateError returns the error of a call that the deadline stopped. err tells where the
// script was.
func (m *machine) lateError(err error, limits script.Limits, ofBatch bool) *script.Error {
	fault := &script.Error{Script: m.file}
	var raised *script.Error
	if errors.As(err, &raised) {
		fault.Line, fault.Traceback = raised.Line, raised.Traceback
	}
	if fault.Line == 0 {
		fault.Line = m.tracedLine(fault.Traceback)
	}
	fault.Message = fmt.Sprintf("event time limit: it ran for more than %v", limits.EventTime)
	if m.deadline.isOver() {
		fault.Message = fmt.Sprintf("event time limit: it ran and waited for more than %v", limits.WallTime)
	}
	if ofBatch {
		fault.Message = fmt.Sprintf("batch time limit: it ran for more than %v", limits.BatchTime)
	}
	return fault
}

// tracedLine finds the innermost line of the script in a traceback.
func (m *machine) tracedLine(traceback string) int {
	for line := range strings.Lines(traceback) {
		at := strings.Index(line, m.file+":")
		if at < 0 {
			continue
		}
		number, _, _ := strings.Cut(line[at+len(m.file)+1:], ":")
		if n, err := strconv.Atoi(number); err == nil {
			return n
		}
	}
	return 0
}
