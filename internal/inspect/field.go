package inspect

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/axiomhq/hyperloglog"
	"github.com/cespare/xxhash/v2"

	"github.com/perigeedb/perigee/internal/document/pure"
)

// A Kind is a kind of value.
type Kind int

// The kinds of values, in the order in which a report lists them.
const (
	Null    Kind = iota
	Bool         // true or false
	Int          // an integer of 64 bits
	BigInt       // an integer beyond 64 bits
	Float        // any other number that a double represents to its last digit
	Decimal      // a number with more digits than a double has
	String
	Object
	Array
	kindCount
)

var kindNames = [kindCount]string{"null", "bool", "int", "big int", "float", "decimal", "string", "object", "array"}

func (k Kind) String() string { return kindNames[k] }

// exactMax is the magnitude up to which a double represents every integer.
const exactMax = 1 << 53

// A field collects what is known about one field of the events.
type field struct {
	parent     *field
	key        string
	isElements bool // the elements of the array in parent
	order      int  // index in the children of parent
	children   []*field
	byKey      map[string]*field
	elements   *field

	last     uint64 // number of the last event that has the field
	events   uint64 // that have it
	repeated uint64 // values beyond one in an event, unless they are elements
	kinds    [kindCount]uint64

	beyondExact uint64 // integers that a double does not represent
	numerals    uint64 // texts that are numbers
	times       uint64 // texts that are times
	dates       uint64 // texts that are dates without a time
	longest     int    // characters of the longest text

	leastNumber, greatestNumber number
	leastText, greatestText     []byte // up to textBytesMax bytes
	common                      map[string]uint64
	uncommon                    bool // there are too many texts, or too long ones, to count them
	examples                    []string

	recent   [64]uint64 // hashes that distinct has already
	distinct *hyperloglog.Sketch
}

// A number is a number as it is spelled, up to textBytesMax bytes.
type number struct {
	text  []byte
	value float64
}

func (f *field) addChild(key string) *field {
	child := &field{parent: f, key: key, order: len(f.children)}
	if f.byKey == nil {
		f.byKey = make(map[string]*field)
	}
	f.children = append(f.children, child)
	f.byKey[key] = child
	return child
}

// childAt returns the child with an index if it has the key.
func (f *field) childAt(index int, key []byte) *field {
	if index < len(f.children) && f.children[index].key == string(key) {
		return f.children[index]
	}
	return nil
}

// count counts a value in an event.
func (f *field) count(event uint64) {
	if f.last == event {
		f.repeated++
		return
	}
	f.last = event
	f.events++
}

// addPlain adds the spelling of a value to the examples and the distinct values.
func (f *field) addPlain(text []byte) {
	f.addExample(text)
	f.addDistinct(xxhash.Sum64(text))
}

func (f *field) addExample(text []byte) {
	if len(f.examples) == examplesMax {
		return
	}
	shown := string(shorten(text))
	for _, other := range f.examples {
		if other == shown {
			return
		}
	}
	f.examples = append(f.examples, shown)
}

func (f *field) addDistinct(hash uint64) {
	seen := &f.recent[hash%uint64(len(f.recent))]
	if *seen == hash {
		return
	}
	if *seen = hash; f.distinct == nil {
		f.distinct = hyperloglog.New14()
	}
	f.distinct.InsertHash(hash)
}

func (f *field) addNumber(text []byte) {
	f.addPlain(text)
	kind, value := classify(text)
	f.kinds[kind]++
	if kind == BigInt || kind == Int && math.Abs(value) >= exactMax && !isExact(text) {
		f.beyondExact++
	}
	if f.leastNumber.text == nil || less(text, value, &f.leastNumber) {
		f.leastNumber.set(text, value)
	}
	if f.greatestNumber.text == nil || greater(text, value, &f.greatestNumber) {
		f.greatestNumber.set(text, value)
	}
}

func (n *number) set(text []byte, value float64) {
	n.text, n.value = append(n.text[:0], shorten(text)...), value
}

// less and greater compare doubles, and the spelling of what doubles do not distinguish.
func less(text []byte, value float64, than *number) bool {
	return value < than.value || value == than.value && math.Abs(value) >= exactMax && compare(text, than) < 0
}

func greater(text []byte, value float64, than *number) bool {
	return value > than.value || value == than.value && math.Abs(value) >= exactMax && compare(text, than) > 0
}

func compare(text []byte, with *number) int {
	if len(text) > textBytesMax || len(with.text) > textBytesMax {
		return 0
	}
	return pure.Compare(string(text), string(with.text))
}

const (
	intDigits   = 18 // of an integer that fits 64 bits in any case
	floatDigits = 15 // that a double always has
)

// classify returns the kind of a JSON number, and its value as a double.
func classify(text []byte) (Kind, float64) {
	digits := bytes.TrimPrefix(text, []byte("-"))
	value := int64(0)
	for _, c := range digits {
		if c < '0' || c > '9' || len(digits) > intDigits {
			return classifyOther(string(text))
		}
		value = 10*value + int64(c-'0')
	}
	if len(digits) < len(text) {
		value = -value
	}
	return Int, float64(value)
}

func classifyOther(text string) (Kind, float64) {
	value, _ := strconv.ParseFloat(text, 64)
	if len(text) <= floatDigits && value != math.Trunc(value) {
		return Float, value
	}
	_, fits, whole := pure.Int64(text)
	switch _, exact := pure.Exact(text); {
	case fits:
		return Int, value
	case whole:
		return BigInt, value
	case exact:
		return Float, value
	}
	return Decimal, value
}

// isExact reports whether a double represents an integer.
func isExact(text []byte) bool {
	_, exact := pure.Exact(string(text))
	return exact
}

func (f *field) addText(text []byte) {
	f.kinds[String]++
	f.addPlain(text)
	f.addCommon(text)
	f.longest = max(f.longest, utf8.RuneCount(text))
	f.recognize(text)
	begin, first := shorten(text), f.kinds[String] == 1
	if first || bytes.Compare(begin, f.leastText) < 0 {
		f.leastText = append(f.leastText[:0], begin...)
	}
	if first || bytes.Compare(begin, f.greatestText) > 0 {
		f.greatestText = append(f.greatestText[:0], begin...)
	}
}

// addCommon counts how often a text occurs, while there are few.
func (f *field) addCommon(text []byte) {
	if f.uncommon {
		return
	}
	if _, known := f.common[string(text)]; !known && (len(f.common) == commonMax || len(text) > textBytesMax) {
		f.common, f.uncommon = nil, true
		return
	}
	if f.common == nil {
		f.common = make(map[string]uint64)
	}
	f.common[string(text)]++
}

// recognize counts a text that is a number, a time or a date.
func (f *field) recognize(text []byte) {
	if len(text) == 0 || len(text) > 40 || (text[0] < '0' || text[0] > '9') && text[0] != '-' {
		return
	}
	const date = len("2006-01-02")
	switch {
	case len(text) >= date && text[4] == '-' && text[7] == '-':
		if len(text) == date && pure.IsTime(string(text)+"T00:00:00Z") {
			f.dates++
		} else if len(text) > date && pure.IsTime(string(text)) {
			f.times++
		}
	case isNumber(text):
		f.numerals++
	}
}

// isNumber reports whether a text is a JSON number.
func isNumber(text []byte) bool {
	v, err := pure.Parse(text)
	return err == nil && (v.Kind == pure.Number || v.Kind == pure.Big)
}

// shorten returns at most textBytesMax bytes of a text, in whole characters.
func shorten(text []byte) []byte {
	if len(text) <= textBytesMax {
		return text
	}
	end := textBytesMax
	for end > textBytesMax-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
