// Package terminal escapes text of events, scripts and servers, so that it cannot control a
// terminal: move its cursor, change its title, or reverse the direction of text.
package terminal

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}

// Guard returns w, or a Writer that escapes for w if w is a terminal.
func Guard(w io.Writer) io.Writer {
	if Is(w) {
		return NewWriter(w)
	}
	return w
}

// Escape returns text with control characters (C0, except line breaks and tabs, DEL and
// C1), characters that change the direction of text, and bytes that are not UTF-8 in
// hexadecimal. Valid JSON stays valid JSON.
func Escape(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, steers) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case !steers(r):
			b.WriteString(text[:size])
		case r < 0x20:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		text = text[size:]
	}
	return b.String()
}

// EscapeLine is like Escape, for a text that must stay on one line.
func EscapeLine(text string) string {
	return strings.NewReplacer("\n", `\n`, "\t", " ").Replace(Escape(text))
}

// steers reports whether a character controls a terminal. The line and paragraph separators
// end a line in some terminals.
func steers(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// A Writer escapes the text written to it. It is not safe for concurrent use.
type Writer struct {
	w       io.Writer
	partial []byte // the first bytes of a character that the next Write completes
}

// NewWriter returns a writer that escapes for w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Unwrap returns the underlying writer, which does not escape.
func (t *Writer) Unwrap() io.Writer { return t.w }

// Fd returns the file descriptor of the underlying writer, which must have one.
func (t *Writer) Fd() uintptr { return t.w.(interface{ Fd() uintptr }).Fd() }

func (t *Writer) Write(p []byte) (int, error) {
	whole := append(t.partial, p...)
	end := len(whole) - partialBytes(whole)
	t.partial = append([]byte(nil), whole[end:]...)
	if _, err := io.WriteString(t.w, Escape(string(whole[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes the bytes of an incomplete character.
func (t *Writer) Flush() error {
	_, err := io.WriteString(t.w, Escape(string(t.partial)))
	t.partial = nil
	return err
}

// partialBytes returns the number of bytes at the end of p that begin a character.
func partialBytes(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if last := p[len(p)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}
