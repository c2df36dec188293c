// Package sqltext reads what people write around SQL: a text of several statements, the
// names of parameters, sizes. It knows quotations and comments as DuckDB has them.
package sqltext

import (
	"strings"
	"unicode/utf8"
)

// A Part is one statement of a text that has several.
type Part struct {
	SQL          string // without the semicolon, and without space and comments around it
	Line, Column int    // where it begins in the text, counted from 1, in characters
}

// Split divides a text at the semicolons between its statements. An unfinished quotation or
// comment lasts until the end of the text. It returns no part without a statement.
func Split(text string) (parts []Part) {
	for at := 0; at < len(text); {
		begin, end, next := nextStatement(text, at)
		if begin < end {
			before := text[:begin]
			line := strings.Count(before, "\n") + 1
			column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
			parts = append(parts, Part{text[begin:end], line, column})
		}
		at = next
	}
	return parts
}

// Ends reports whether a semicolon ends the last statement of a text.
func Ends(text string) bool {
	ended := false
	for at := 0; at < len(text); {
		begin, end, next := nextStatement(text, at)
		if begin < end {
			ended = next > end && strings.HasSuffix(text[:next], ";")
		}
		at = next
	}
	return ended
}

// nextStatement finds the next statement: its first byte, the byte after its last, and where
// to look for the one after it.
func nextStatement(text string, at int) (begin, end, next int) {
	begin = -1
	for at < len(text) {
		token := tokenEnd(text, at)
		switch {
		case text[at] == ';':
			return max(begin, 0), end, token
		case isSpace(text[at]) || strings.HasPrefix(text[at:token], "--") || strings.HasPrefix(text[at:token], "/*"):
		default:
			if begin < 0 {
				begin = at
			}
			end = token
		}
		at = token
	}
	return max(begin, 0), end, at
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// tokenEnd returns where the quotation, the comment, the name or the single character ends
// that begins at at.
func tokenEnd(text string, at int) int {
	rest := text[at:]
	switch c := rest[0]; {
	case c == '\'' || c == '"':
		return at + quotationEnd(rest, c, false)
	case strings.HasPrefix(rest, "--"):
		if end := strings.IndexByte(rest, '\n'); end >= 0 {
			return at + end
		}
		return len(text)
	case strings.HasPrefix(rest, "/*"):
		return at + commentEnd(rest)
	case c == '$':
		return at + dollarEnd(rest)
	case (c == 'e' || c == 'E') && len(rest) > 1 && rest[1] == '\'':
		return at + 1 + quotationEnd(rest[1:], '\'', true)
	case isName(c):
		n := 1
		for n < len(rest) && (isName(rest[n]) || rest[n] == '$') {
			n++
		}
		return at + n
	}
	return at + 1
}

func isName(c byte) bool {
	return c == '_' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// quotationEnd returns the length of a quotation. A doubled quotation mark is one in it.
func quotationEnd(text string, mark byte, backslash bool) int {
	for i := 1; i < len(text); i++ {
		switch {
		case backslash && text[i] == '\\':
			i++
		case text[i] == mark:
			if i+1 < len(text) && text[i+1] == mark {
				i++
				continue
			}
			return i + 1
		}
	}
	return len(text)
}

// commentEnd returns the length of a comment, which may have others in it.
func commentEnd(text string) int {
	depth := 0
	for i := 0; i+1 < len(text); i++ {
		switch text[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// dollarEnd returns the length of $$ … $$ or $name$ … $name$, or 1 for a parameter.
func dollarEnd(text string) int {
	n := 1
	for n < len(text) && isName(text[n]) {
		n++
	}
	if n == len(text) || text[n] != '$' || n > 1 && text[1] >= '0' && text[1] <= '9' {
		return 1
	}
	mark := text[:n+1]
	if end := strings.Index(text[n+1:], mark); end >= 0 {
		return n + 1 + end + len(mark)
	}
	return len(text)
}

// Params returns the names of the parameters in a statement, in lower case: those after $.
func Params(sql string) map[string]bool {
	names := map[string]bool{}
	for at := 0; at < len(sql); {
		end := tokenEnd(sql, at)
		if sql[at] == '$' && end == at+1 {
			n := end
			for n < len(sql) && isName(sql[n]) {
				n++
			}
			if n > end {
				names[strings.ToLower(sql[end:n])] = true
			}
		}
		at = end
	}
	return names
}
