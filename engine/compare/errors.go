package compare

import (
	"regexp"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// errorTexts makes messages of dead letters comparable: where a script has failed changes with each
// line that is added above.
type errorTexts struct {
	place *regexp.Regexp // of the script's own code
	// last message, which is often that of the next event
	raw, text string
}

// placePattern is a place in a file that a script requires.
var placePattern = regexp.MustCompile(`([^\s:]+\.lua):\d+(:\d+)?: `)

func newErrorTexts(script string) errorTexts {
	return errorTexts{place: regexp.MustCompile(regexp.QuoteMeta(script) + `:\d+(:\d+)?: `)}
}

// textOf returns the message of a dead letter without places. It names the stage unless the message
// does, or it is the script's.
func (e *errorTexts) textOf(d *event.DeadLetter) string {
	raw := d.Error
	if d.Stage != "script" && !strings.HasPrefix(raw, d.Stage) {
		raw = d.Stage + ": " + raw
	}
	if raw != e.raw {
		e.raw = raw
		e.text = placePattern.ReplaceAllString(e.place.ReplaceAllString(raw, ""), "$1: ")
	}
	return e.text
}

// varying are the parts of messages that differ from event to event.
var varying = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|\d+`)

// kindOf returns a message without the parts that vary between events. Two messages are of one
// kind if the results are equal.
func kindOf(text string) string {
	if !strings.ContainsAny(text, `"'0123456789`) {
		return text
	}
	return varying.ReplaceAllString(text, "…")
}
