package manifest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeedb/perigee/event"
)

// TestLoadRefuses loads manifests with a correct checksum and invalid contents.
func TestLoadRefuses(t *testing.T) {
	whole, err := sample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(whole), "\n")
	for name, test := range map[string]struct {
		body, want string
		damage     bool
	}{
		"a field of a newer program": {strings.Replace(body, `"version"`, `"newer": 1, "version"`, 1), `unknown field "newer"`, false},
		"a contradiction":            {strings.Replace(body, `"name": "Events"`, `"name": ".."`, 1), `invalid table name ".."`, true},
		"not JSON":                   {"{", "unexpected EOF", false},
	} {
		folder := t.TempDir()
		text := fmt.Sprintf(head, wholeFormat, crc32.Checksum([]byte(test.body), castagnoli)) + test.body
		if err := os.WriteFile(filepath.Join(folder, Name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(folder)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), filepath.Join(folder, Name)) {
			t.Errorf("%s: %v", name, err)
		}
		if _, damage := errors.AsType[*DamageError](err); damage != test.damage {
			t.Errorf("%s: %T", name, err)
		}
	}
}

// TestMoreContradictions extends TestContradictions with several cases of each kind.
func TestMoreContradictions(t *testing.T) {
	column := func(m *Manifest) *Column { return &m.Tables[0].Schemas[1].Columns[1] }
	for i, test := range []struct {
		want  string
		spoil func(*Manifest)
	}{
		{"it has no valid store ID", func(m *Manifest) { m.Store += "0" }},
		{"invalid table name", func(m *Manifest) { m.Tables[0].Name = "" }},
		{"invalid table name", func(m *Manifest) { m.Tables[0].Name = ".hidden" }},
		{"invalid table name", func(m *Manifest) { m.Tables[0].Name = "a/b" }},
		{"has an invalid or duplicate ID 0", func(m *Manifest) { m.Tables[0].ID = 0 }},
		{"has an invalid or duplicate ID 2", func(m *Manifest) {
			m.Tables = append(m.Tables, &Table{ID: 2, Name: "other"})
		}},
		{"column x of schema version 4 has an invalid or duplicate ID 2", func(m *Manifest) { column(m).ID = 2 }},
		{"column x of schema version 4 has an invalid or duplicate ID 4", func(m *Manifest) { column(m).ID = 4 }},
		{"not newer than the one before", func(m *Manifest) { m.Tables[0].Schemas[0].Version = 4 }},
		{"invalid or repeated file", func(m *Manifest) { m.Tables[0].Files = append(m.Tables[0].Files, m.Tables[0].Files[0]) }},
		{"number that is not assigned", func(m *Manifest) { m.Tables[0].Files[0].Segment = 10 }},
		{"delete 2 has a number that is not assigned yet", func(m *Manifest) { m.NextDelete = 2 }},
		{"incarnation \"x\" is invalid or repeated", func(m *Manifest) { m.Incarnations = []Incarnation{{ID: "x"}} }},
		{"is invalid or repeated", func(m *Manifest) { m.Incarnations = []Incarnation{{ID: "0123456789abcdef"}, {ID: "0123456789abcdef"}} }},
		{"begins with a number that is not assigned yet", func(m *Manifest) { m.Incarnations = []Incarnation{{ID: "0123456789abcdef", Segment: 10}} }},
		{"begins with a number that is not assigned yet", func(m *Manifest) { m.Incarnations = []Incarnation{{ID: "0123456789abcdef", Step: 2}} }},
		{"out of order", func(m *Manifest) {
			m.Incarnations = []Incarnation{{ID: "0123456789abcdef", Segment: 4}, {ID: "1123456789abcdef", Segment: 3}}
		}},
		{"rows of log file 6", func(m *Manifest) { m.Tables[0].Files[0].Log = 6 }},
		{"partition a b of pipeline p has a range of 1 events", func(m *Manifest) { m.Tables[0].Partitions[0].Ranges[1] = [2]uint64{1<<64 - 1, 1} }},
	} {
		m := sample()
		test.spoil(m)
		if _, err := m.Encode(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d: got %v, want %q", i, err, test.want)
		}
	}
	for i, allowed := range []func(*Manifest){
		func(m *Manifest) { m.Tables[0].ID, m.NextTable = 1, 2 },
		func(m *Manifest) { column(m).ID, m.Tables[0].NextColumn = 9, 10 },
		func(m *Manifest) { m.NextDelete = 4 },
		func(m *Manifest) { m.Incarnations = []Incarnation{{ID: "0123456789abcdef", Segment: 9, Step: 1}} },
		func(m *Manifest) {
			m.Tables = append(m.Tables, &Table{ID: 1, Name: "other", Schemas: []*Schema{{Version: 1}}})
		},
		func(m *Manifest) { m.Tables[0].Partitions[0].Ranges[1] = [2]uint64{1<<64 - 2, 1} },
		func(m *Manifest) { m.Tables[0].Files[0].Log, m.LogStart = 5, 6 },
	} {
		m := sample()
		allowed(m)
		if _, err := m.Encode(); err != nil {
			t.Errorf("%d of those that are allowed: %v", i, err)
		}
	}
}

func TestNames(t *testing.T) {
	m := sample()
	table := m.Tables[0]
	for _, c := range []struct{ got, want any }{
		{m.Table("EVENTS"), table}, {m.Table("event"), (*Table)(nil)},
		{m.TableByID(2), table}, {m.TableByID(1), (*Table)(nil)},
		{table.Current(), table.Schemas[1]}, {table.Schema(1), table.Schemas[0]}, {table.Schema(4), table.Schemas[1]}, {table.Schema(2), (*Schema)(nil)},
		{FileName("2026-11-23", 1, 2), "2026-11-23/0000000001-2.parquet"}, {FileName("", 3, 0), "undated/0000000003-0.parquet"},
		{BloomName("undated/0000000003-0.parquet"), "undated/0000000003-0.bloom"},
		{FingerprintsName(5), "ranges-0000000005"}, {KeysName(12), "keys-0000000012"},
		{table.Path("f", "a/b"), filepath.Join("f", "tables", "Events", "a", "b")}, {LogFolder("f"), filepath.Join("f", "log")},
	} {
		if c.got != c.want {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
	for _, c := range []struct {
		column Column
		want   string
	}{
		{Column{}, "JSON"}, {Column{Type: event.Bool}, "BOOLEAN"}, {Column{Type: event.Int32}, "INTEGER"}, {Column{Type: event.Int64}, "BIGINT"},
		{Column{Type: event.Float64}, "DOUBLE"}, {Column{Type: event.String}, "VARCHAR"}, {Column{Type: event.Timestamp}, "TIMESTAMP"},
		{Column{Type: event.TimestampNS}, "TIMESTAMP_NS"}, {Column{Type: event.Bytes}, "BLOB"}, {Column{Type: event.JSON}, "JSON"},
		{Column{Type: event.Decimal}, "JSON"}, {Column{Type: event.Decimal, Digits: event.Digits{Precision: 10, Scale: 2}}, "DECIMAL(10,2)"},
	} {
		if got := c.column.SQLType(); got != c.want {
			t.Errorf("%v is %s in SQL, want %s", c.column.Type, got, c.want)
		}
	}
}

// TestKeys writes keys, and reads them from the whole file and from truncated files.
func TestKeys(t *testing.T) {
	folder, table := t.TempDir(), sample().Tables[0]
	keys := []Key{{KeyHash{1, 2, 3}, 1795392000}, {KeyHash{1<<32 - 1, 0, 1 << 31}, 1795392007}, {KeyHash{4, 5, 6}, 1795392001}}
	entry, err := WriteKeys(folder, table, 9, keys)
	if err != nil || entry.Number != 9 || !entry.Newest.Equal(time.Date(2026, 11, 23, 0, 0, 7, 0, time.UTC)) {
		t.Fatalf("wrote %+v, %v", entry, err)
	}
	read := func() (all []Key, err error) {
		err = ReadKeys(folder, table, 9, func(k Key) { all = append(all, k) })
		return all, err
	}
	if got, err := read(); err != nil || !cmp.Equal(keys, got) {
		t.Fatalf("read %v, %v", got, err)
	}
	path := table.Path(folder, KeysName(9))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(name string) {
		t.Helper()
		got, err := read()
		if damage, ok := errors.AsType[*DamageError](err); !ok || damage.File != path || len(got) > 0 {
			t.Errorf("%s: read %v, %v", name, got, err)
		}
	}
	for i := range whole {
		write(whole[:i])
		refused(fmt.Sprint("cut off at ", i))
		changed := append([]byte(nil), whole...)
		changed[i] ^= 1
		write(changed)
		refused(fmt.Sprint("with another byte at ", i))
	}
	half := whole[:len(keysMagic)+keySize+8] // with a correct checksum
	write(binary.LittleEndian.AppendUint32(append([]byte(nil), half...), crc32.Checksum(half, castagnoli)))
	refused("with half a key")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	refused("missing")
	if _, err := WriteKeys(folder, table, 9, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := read(); err != nil || len(got) > 0 {
		t.Errorf("of no keys: read %v, %v", got, err)
	}
}

// TestDecodeChanges decodes complete and damaged entries of a fingerprint file.
func TestDecodeChanges(t *testing.T) {
	for text, want := range map[string][]RangeChange{
		"":                             {},
		"\x01p\x00\x00\x05\x02\x00":    {{Pipeline: "p", Range: event.Range{First: 5, Count: 2}}},
		"\x00\x02ab\x01\x00\x07\x00":   {{Partition: "ab", Reset: true, Range: event.Range{Count: 7}}},
		"\x00\x00\x02\x00\x07\x00":     {{Range: event.Range{Count: 7}}}, // only 1 is a reset
		"\x00\x00\x00\x05\x01\x01abcd": {{Range: event.Range{First: 5, Count: 1, Fingerprints: []uint32{0x64636261}}}},
		"\x00\x00\x00\x05\x02\x02abcdefgh\x00\x00\x01\x00\x09\x00": {
			{Range: event.Range{First: 5, Count: 2, Fingerprints: []uint32{0x64636261, 0x68676665}}}, {Reset: true, Range: event.Range{Count: 9}},
		},
		"\x00\x00\x00\x05\x02\x01abcd":     nil, // either every event has a fingerprint, or none has
		"\x00\x00\x00\x05\x01\x02abcdefgh": nil,
		"\x00\x00\x00\x05\x01\x01abc":      nil,
		"\x00\x00\x00\x05\x01\x01":         nil,
		"\x00\x00\x00\x05\x01":             nil,
		"\x00\x00\x00\x05":                 nil,
		"\x00\x00\x00":                     nil,
		"\x00\x00":                         nil,
		"\x00":                             nil,
		"\x02p":                            nil,
		"\x00\x02p":                        nil,
		"\x00\x00\x00\x05\x02\x00\x05":     nil,
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01":         nil, // more than 64 bits
		"\x00\x00\x00\x05\xff\xff\xff\xff\x0f\xff\xff\xff\xff\x0f": nil, // 2^32 missing fingerprints
	} {
		got, ok := decodeChanges([]byte(text))
		if ok != (want != nil) || ok && len(got)+len(want) > 0 && !cmp.Equal(want, got) {
			t.Errorf("%q is %+v, %v; want %+v", text, got, ok, want)
		}
	}
}

// TestPrintsOfAnother reads files that have a correct checksum and are not fingerprint files.
func TestFingerprintsOfAnother(t *testing.T) {
	folder, table := t.TempDir(), sample().Tables[0]
	if _, err := WriteFingerprints(folder, table, 9, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFingerprints(folder, table, 9); err != nil || len(got) > 0 {
		t.Errorf("of no changes: read %v, %v", got, err)
	}
	for content, want := range map[string]string{
		"perigee-ranges 2\n": "its checksum is wrong", "perigee-ranges 1": "its checksum is wrong", "": "its checksum is wrong",
		"perigee-ranges 1\n\x05": "an entry is cut off",
	} {
		data := binary.LittleEndian.AppendUint32([]byte(content), crc32.Checksum([]byte(content), castagnoli))
		if err := os.WriteFile(table.Path(folder, FingerprintsName(9)), data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadFingerprints(folder, table, 9)
		if damage, ok := errors.AsType[*DamageError](err); !ok || damage.Reason != want {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
}

// TestFilesInTheWay verifies and removes files when other objects have their names.
func TestFilesInTheWay(t *testing.T) {
	folder, m := t.TempDir(), sample()
	if err := m.RemoveOthers(folder); err != nil {
		t.Errorf("without a folder of tables: %v", err)
	}
	table := m.Tables[0]
	if err := os.MkdirAll(table.Path(folder, "2026-11-24/x/y"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := table.RemoveFile(folder, "2026-11-24/x"); err == nil {
		t.Error("a folder with files was removed")
	}
	if err := os.WriteFile(table.Path(folder, "2026-11-23"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(folder); err == nil || !strings.Contains(err.Error(), "0000000008-0.parquet is damaged: stat ") {
		t.Errorf("a file where a folder should be: %v", err)
	}
	for _, name := range []string{"ranges-0000000008", "keys-0000000008"} {
		if err := os.MkdirAll(table.Path(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	_, fingerprintsErr := ReadFingerprints(folder, table, 8)
	for _, err := range []error{fingerprintsErr, ReadKeys(folder, table, 8, nil)} {
		if _, damage := errors.AsType[*DamageError](err); err == nil || damage {
			t.Errorf("a file that cannot be read: %v", err)
		}
	}
}

// TestFolderThatCannotBe writes and removes below a name that is invalid on every file
// system.
func TestFolderThatCannotBe(t *testing.T) {
	folder, m := filepath.Join(t.TempDir(), strings.Repeat("x", 300)), sample()
	table := m.Tables[0]
	_, fingerprintsErr := WriteFingerprints(folder, table, 1, nil)
	_, keysErr := WriteKeys(folder, table, 1, nil)
	for what, err := range map[string]error{
		"Save": NewWriter(folder).Save(m), "RemoveOthers": m.RemoveOthers(folder), "RemoveFile": table.RemoveFile(folder, "x"), "WriteFingerprints": fingerprintsErr, "WriteKeys": keysErr,
	} {
		if !errors.Is(err, syscall.ENAMETOOLONG) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestEachDamageOnce checks that Verify names each file once, even an empty one.
func TestEachDamageOnce(t *testing.T) {
	m := sample()
	m.Tables[0].Files[0].Bytes = 0
	if got := strings.Count(fmt.Sprint(m.Verify(t.TempDir())), "it is missing"); got != 3 { // rows, bloom filters, fingerprints
		t.Errorf("of 3 files, %d are missing", got)
	}
}
