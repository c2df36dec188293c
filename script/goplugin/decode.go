package goplugin

import (
	"encoding/json"
	"strconv"

	"github.com/perigeedb/perigee/internal/document/pure"
)

// A decoder decodes JSON documents that are known to be valid. It remembers the keys of
// documents and their number.
type decoder struct {
	text   []byte
	at     int
	keys   map[string]string
	fields int
}

// keysMax bounds the keys that are remembered.
const keysMax = 1024

// decode returns a document as a row, without losing digits.
func (d *decoder) decode(doc []byte) map[string]any {
	d.text, d.at = doc, 0
	d.next()
	row := make(map[string]any, d.fields)
	d.members(row)
	d.fields = len(row)
	return row
}

// next skips white space and returns the byte that follows.
func (d *decoder) next() byte {
	for {
		switch c := d.text[d.at]; c {
		case ' ', '\t', '\r', '\n':
			d.at++
		default:
			return c
		}
	}
}

func (d *decoder) value() any {
	switch d.next() {
	case '{':
		row := map[string]any{}
		d.members(row)
		return row
	case '[':
		return d.array()
	case '"':
		return d.string()
	case 't':
		d.at += len("true")
		return true
	case 'f':
		d.at += len("false")
		return false
	case 'n':
		d.at += len("null")
		return nil
	}
	return d.number()
}

// members fills row with the object that starts here.
func (d *decoder) members(row map[string]any) {
	for d.more('}') {
		key := d.key()
		d.next()
		d.at++ // the colon
		row[key] = d.value()
	}
}

func (d *decoder) key() string {
	spelled, escaped := d.quoted()
	if known, ok := d.keys[string(spelled)]; ok {
		return known
	}
	key := plain(spelled, escaped)
	if d.keys == nil {
		d.keys = make(map[string]string)
	}
	if len(d.keys) < keysMax {
		d.keys[string(spelled)] = key
	}
	return key
}

func (d *decoder) array() []any {
	list := []any{}
	for d.more(']') {
		list = append(list, d.value())
	}
	return list
}

// more goes past the opening bracket or a comma to the next child, or past the
// closing bracket.
func (d *decoder) more(closing byte) bool {
	if d.next() == closing {
		d.at++
		return false
	}
	d.at++
	if d.next() == closing { // of an empty object or array
		d.at++
		return false
	}
	return true
}

func (d *decoder) string() string { return plain(d.quoted()) }

// quoted goes past a string and returns it as it is spelled, with its quotes.
func (d *decoder) quoted() (spelled []byte, escaped bool) {
	start := d.at
	for d.at++; d.text[d.at] != '"'; d.at++ {
		if d.text[d.at] == '\\' {
			escaped = true
			d.at++
		}
	}
	d.at++
	return d.text[start:d.at], escaped
}

func plain(spelled []byte, escaped bool) string {
	if !escaped {
		return string(spelled[1 : len(spelled)-1])
	}
	var s string
	_ = json.Unmarshal(spelled, &s) // the text is good
	return s
}

// digitsMax is how many digits a float64 always keeps.
const digitsMax = 15

func (d *decoder) number() any {
	start, integral, scaled := d.at, true, false
	for ; d.at < len(d.text); d.at++ {
		switch c := d.text[d.at]; {
		case c == '-' || c-'0' < 10:
			continue
		case c == '.':
			integral = false
			continue
		case c == '+' || c|0x20 == 'e':
			integral, scaled = false, true
			continue
		}
		break
	}
	return numberOf(string(d.text[start:d.at]), integral, scaled)
}

// numberOf returns the Go value that holds a number exactly.
func numberOf(text string, integral, scaled bool) any {
	if integral {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	}
	if !scaled && len(text) <= digitsMax {
		x, _ := strconv.ParseFloat(text, 64)
		return x
	}
	if x, exact := pure.Exact(text); exact {
		return x
	}
	return json.Number(text)
}
