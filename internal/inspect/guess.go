package inspect

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Names of fields. A name is split where its case changes and at what is not a letter.
var (
	timeName  = regexp.MustCompile(`(?i)(^|[^a-z])(time|timestamp|ts|date|datetime|at|when|epoch|created|updated|occurred|received|sent|seen)([^a-z]|$)`)
	eventName = regexp.MustCompile(`(?i)^(event|event[_-]?(name|type|kind)|type|kind|action|name|topic|verb|op|operation)$`)
	nameText  = regexp.MustCompile(`^[\pL_][\pL\d_.:/ -]*$`)
	idName    = regexp.MustCompile(`(?i)(^|[^a-z])(id|key|uid|uuid|phone|number|no|count|size|bytes|price|amount|total)([^a-z]|$)`)
	caseBreak = regexp.MustCompile(`(\p{Ll})(\p{Lu})`)
)

// A timeUnit is a unit of numbers since 1970.
type timeUnit struct {
	name   string
	second float64
}

var timeUnits = []timeUnit{{"s", 1}, {"ms", 1e3}, {"us", 1e6}, {"ns", 1e9}}

// Times of events are expected between these years. If the name of the field does not say that it
// is a time, the years are fewer, because any number may be in them.
var (
	yearsOfTimes   = years(1990, 2100)
	yearsOfNumbers = years(2015, 2036)
)

type span struct{ from, to float64 } // seconds since 1970

func years(from, to int) span {
	at := func(year int) float64 { return float64(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix()) }
	return span{at(from), at(to)}
}

// timeUnit returns the unit of the values if they look like times, or "".
func (f *field) timeUnit() string {
	present := f.values() - f.kinds[Null]
	switch {
	case present == 0:
		return ""
	case f.times == present:
		return "text"
	case f.kinds[Int]+f.kinds[Float] != present:
		return ""
	}
	name, expected := f.name(), yearsOfNumbers
	switch {
	case timeName.MatchString(name):
		expected = yearsOfTimes
	case idName.MatchString(name) || f.kinds[Float] > 0:
		return ""
	}
	for _, unit := range timeUnits {
		if f.leastNumber.value >= expected.from*unit.second && f.greatestNumber.value < expected.to*unit.second {
			return unit.name
		}
	}
	return ""
}

// name returns the key with a space where its case changes.
func (f *field) name() string { return caseBreak.ReplaceAllString(f.key, "$1 $2") }

// isEventName reports whether the values look like names of events: few short words in a field
// whose name fits.
func (f *field) isEventName(distinct uint64) bool {
	if f.kinds[String] == 0 || f.kinds[String] != f.values()-f.kinds[Null] || !eventName.MatchString(f.key) || f.inArray() {
		return false
	}
	if distinct > 100 || f.kinds[String] > 20 && distinct > f.kinds[String]/4 {
		return false
	}
	for _, example := range f.examples {
		if !nameText.MatchString(example) {
			return false
		}
	}
	return true
}

// timeScore says how likely a field is the time of the event: one at the top that every event has,
// whose name says no more than that it is a time.
func timeScore(f *Field, events uint64) int {
	if f.TimeUnit == "" || f.InArray {
		return 0
	}
	score := 1
	switch strings.ToLower(f.Keys[len(f.Keys)-1]) {
	case "time", "timestamp", "ts", "event_time", "eventtime", "@timestamp":
		score += 4
	default:
		if timeName.MatchString(caseBreak.ReplaceAllString(f.Path, "$1 $2")) {
			score += 2
		}
	}
	return score + scoreOfPlace(f, events)
}

// eventScore says how likely a field is the name of the event.
func eventScore(f *Field, events uint64) int {
	if !f.EventName {
		return 0
	}
	score := 1
	switch name := strings.ToLower(f.Keys[len(f.Keys)-1]); {
	case strings.HasPrefix(name, "event"):
		score += 6
	case name == "type" || name == "kind" || name == "action":
		score += 3
	}
	return score + scoreOfPlace(f, events)
}

// scoreOfPlace prefers fields at the top, and those that every event has.
func scoreOfPlace(f *Field, events uint64) (score int) {
	if len(f.Keys) == 1 {
		score += 2
	}
	if f.Present == events && f.Null == 0 {
		score += 2
	}
	return score
}

// oddities returns sentences about values that may surprise.
func (f *field) oddities() (odd []string) {
	add := func(n, total uint64, what string) {
		if n > 0 {
			odd = append(odd, fmt.Sprintf("%d of %d %s", n, total, what))
		}
	}
	if f.isMixed() {
		odd = append(odd, "mixed types: "+f.listKinds())
	}
	add(f.numerals, f.kinds[String], "texts are numbers")
	add(f.dates, f.kinds[String], "texts are dates without a time")
	if f.times < f.kinds[String] {
		add(f.times, f.kinds[String], "texts are times")
	}
	add(f.beyondExact, f.values(), "values are integers beyond 2^53, which a double changes")
	add(f.kinds[BigInt], f.values(), "values are integers beyond 64 bits, which need a column of type decimal")
	add(f.kinds[Decimal], f.values(), "values are numbers with more digits than a double has")
	if !f.inArray() {
		add(f.repeated, f.values(), "values are of a key that its object has twice")
	}
	return odd
}

// listKinds lists the kinds of values with their numbers.
func (f *field) listKinds() string {
	var parts []string
	for kind, n := range f.kinds {
		if n > 0 && Kind(kind) != Null {
			parts = append(parts, fmt.Sprintf("%d %s", n, Kind(kind)))
		}
	}
	return strings.Join(parts, ", ")
}
