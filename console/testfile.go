package console

import (
	"regexp"
	"strings"
)

// quote writes a text as a scalar of YAML, in single quotes if it has no line ends and no control
// characters.
func quote(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == 0xfffd || r == '\u2028' || r == '\u2029' || r == 0x85
	}) {
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < ' ' || r == 0x7f || r == 0x85 || r == '\u2028' || r == '\u2029':
			b.WriteString(`\u` + hex4(r))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func hex4(r rune) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15]})
}

// place is where an error says that it was raised, which differs between machines.
var place = regexp.MustCompile(`^\S+:\d+: `)

// pattern returns a regular expression that matches the first line of an error.
func pattern(text string) string {
	text, _, _ = strings.Cut(place.ReplaceAllString(text, ""), "\n")
	return regexp.QuoteMeta(text)
}
