package sqlsink

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

func TestTimeAsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.Int64Range(firstMicro, endMicro-1).Draw(t, "micros")
		if err := CheckTime(micros); err != nil {
			t.Fatal(err)
		}
		text := AppendTime(nil, micros)
		if want := time.UnixMicro(micros).UTC().Format("2006-01-02 15:04:05.000000"); string(text) != want {
			t.Fatalf("%d became %s, want %s", micros, text, want)
		}
	})
	for _, micros := range []int64{firstMicro - 1, endMicro, -1 << 63, 1<<63 - 1} {
		if err := CheckTime(micros); !errors.Is(err, errYear) {
			t.Errorf("%d: %v", micros, err)
		}
	}
}

func TestScale(t *testing.T) {
	tests := []struct {
		number string
		scale  int
		ok     bool
	}{
		{"1.25", 2, true}, {"1.250000", 2, true}, {"1.251", 2, false}, {"100", 0, true},
		{"1.5", 0, false}, {"1.0", 0, true}, {"1.25e-3", 2, false}, {"1.25e-3", 5, true}, {"1.251", -1, true},
		{"1500e-2", 0, true}, {"1500E-3", 0, false}, {"1.23e+2", 0, true}, {"1.23e1", 0, false}, {"0e-9", 0, true},
		{"-0.001", 2, false}, {"1e-99999999999999999999", 2, false},
	}
	for _, test := range tests {
		if err := CheckScale([]byte(test.number), test.scale); (err == nil) != test.ok {
			t.Errorf("%s with %d digits after the point: %v", test.number, test.scale, err)
		}
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	secret := struct{ P Secret }{"s3cret"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if printed := fmt.Sprintf(verb, secret); strings.Contains(printed, "s3cret") {
			t.Errorf("%s printed %s", verb, printed)
		}
	}
}

func TestNamesOfTypesAndModes(t *testing.T) {
	var typ Type
	if err := typ.UnmarshalText([]byte("timestamp")); err != nil || event.Type(typ) != event.Timestamp {
		t.Errorf("timestamp: %v, %v", event.Type(typ), err)
	}
	if err := typ.UnmarshalText([]byte("integer")); err == nil || !strings.Contains(err.Error(), `"integer"; known: bool, int32`) {
		t.Errorf("integer: %v", err)
	}
	var mode Mode
	if err := mode.UnmarshalText([]byte("upsert")); err != nil || mode != Upsert {
		t.Errorf("upsert: %v, %v", mode, err)
	}
	if err := mode.UnmarshalText([]byte("replace")); err == nil || !strings.Contains(err.Error(), "insert, upsert, ignore") {
		t.Errorf("replace: %v", err)
	}
}

// TestValuesAreShown: messages hold a value as people write it, and no more
// than a line of it.
func TestValuesAreShown(t *testing.T) {
	columns := &event.Columns{
		Spec: []event.Column{{Name: "i", Type: event.Int64}, {Name: "f", Type: event.Float64}, {Name: "t", Type: event.Timestamp}, {Name: "s", Type: event.String}},
		Vectors: []event.Vector{
			{Null: []byte{0, 1}, Ints: []int64{-5, 0}}, {Null: []byte{0, 1}, Floats: []float64{1e300, 0}}, {Null: []byte{0, 0}, Ints: []int64{1, endMicro}},
			{Null: []byte{0, 0}, Bytes: []byte("a\x00b" + strings.Repeat("☾", 100)), Ends: []uint32{3, 303}},
		},
	}
	var got []string
	for row := range 2 {
		for c := range columns.Spec {
			got = append(got, formatValue(columns, c, row))
		}
	}
	want := []string{"-5", "1e+300", "'1970-01-01 00:00:00.000001'", `'a\u0000b'`, "NULL", "NULL", "253402300800000000",
		"'" + strings.Repeat("☾", 21) + "… (300 bytes)"}
	if !slices.Equal(got, want) {
		t.Errorf("shown\n%q\nwant\n%q", got, want)
	}
	if err := describeValue(errYear, columns, 0, 0); err.Error() != `column "i": the year is outside of 1 to 9999; the value is -5` || !errors.Is(err, errYear) {
		t.Errorf("explained as %v", err)
	}
}

// TestParseEntry reads rows of perigee_ranges, whole and spoilt.
func TestParseEntry(t *testing.T) {
	for _, test := range []struct {
		first, events, age, prints string
		valid                      bool
	}{
		{"7", "2", "60", "0100000002000000", true},
		{"7", "2", "60", "", true},
		{"18446744073709551615", "1", "0", "ffffffff", true},
		{"-1", "2", "60", "", false},
		{"7", "two", "60", "", false},
		{"7", "2", "1.5", "", false},
		{"7", "2", "60", "0100000002000000f", false}, // of an odd length
		{"7", "2", "60", "0100000002000000zz", false},
		{"7", "2", "60", "01000000", false}, // for one event
	} {
		e, err := parseEntry([][]byte{[]byte(test.first), []byte(test.events), []byte(test.age), []byte(test.prints)})
		if (err == nil) != test.valid {
			t.Errorf("%v became %v, %v", test, e, err)
		}
	}
	e, err := parseEntry([][]byte{[]byte("7"), []byte("2"), []byte("60"), []byte("0100000002000000")})
	want := positions.Entry{Range: event.Range{First: 7, Count: 2, Fingerprints: []uint32{1, 2}}, Age: time.Minute}
	if err != nil || !reflect.DeepEqual(e, want) {
		t.Errorf("got %v, %v, want %v", e, err, want)
	}
}
