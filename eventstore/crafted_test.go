//go:build linux && cgo

package eventstore

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/eventstore/output"
	"github.com/perigeedb/perigee/internal/frame"
	"github.com/perigeedb/perigee/internal/testseed"
)

// A craftedFile is a file of a backup, to be modified.
type craftedFile struct {
	name    string
	content []byte
}

// readArchive returns the files of a backup except its checksums.
func readArchive(t *testing.T, archive []byte) (files []craftedFile) {
	t.Helper()
	for in := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := in.Next()
		if err == io.EOF {
			return files
		}
		content, readErr := io.ReadAll(in)
		if err = errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		if header.Name != sumsName {
			files = append(files, craftedFile{header.Name, content})
		}
	}
}

// writeArchive builds a backup from files, with correct checksums.
func writeArchive(t *testing.T, files []craftedFile) []byte {
	t.Helper()
	var entries []tar.Header
	var sums strings.Builder
	for _, f := range files {
		entries = append(entries, tar.Header{Name: f.name, Typeflag: tar.TypeReg, Linkname: string(f.content)})
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(f.content), f.name)
	}
	return archiveOf(t, append(entries, tar.Header{Name: sumsName, Typeflag: tar.TypeReg, Linkname: sums.String()})...)
}

var (
	numberInJSON = regexp.MustCompile(`: -?\d+`)
	typeInJSON   = regexp.MustCompile(`"type": "\w+"`)
	textInJSON   = regexp.MustCompile(`"[a-z_0-9/.-]+"`)
)

// craftManifest changes a number, a type or a text of the manifest and corrects its checksum.
func craftManifest(r *rand.Rand, content []byte) []byte {
	_, body, _ := bytes.Cut(content, []byte("\n"))
	of, to := numberInJSON, []string{": 0", ": 1", ": 2", ": 3", ": -1", ": 4294967296", ": 9223372036854775807", ": 18446744073709551615"}
	switch r.IntN(3) {
	case 0:
		of, to = typeInJSON, nil
		for _, name := range []string{"bool", "int32", "int64", "float64", "decimal", "string", "timestamp", "json", "timestamp_ns", "bytes"} {
			to = append(to, `"type": "`+name+`"`)
		}
	case 1:
		of, to = textInJSON, []string{`""`, `"x"`, `"../x"`, `"id"`, `"text"`, `"\u0000"`, `"a'b\"c"`, `"_rest"`, `"1=1"`, `"` + strings.Repeat("y", 5000) + `"`}
	}
	places := of.FindAllIndex(body, -1)
	if len(places) == 0 {
		return content
	}
	place := places[r.IntN(len(places))]
	body = slices.Concat(body[:place[0]], []byte(to[r.IntN(len(to))]), body[place[1]:])
	sum := crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
	return append(fmt.Appendf(nil, "perigee-manifest 1 %08x\n", sum), body...)
}

// craftLog changes bytes of a log frame and corrects the checksums. Most changes hit the head
// and the columns' descriptions.
func craftLog(r *rand.Rand, content []byte) []byte {
	const trailer, descriptions = 32, 80 + 12*24
	content = bytes.Clone(content)
	var frames []int
	for at := int(wal.FirstFrame); at+frame.PrefixSize < len(content); {
		length := int(binary.LittleEndian.Uint32(content[at:]))
		if length == 0 || length > len(content)-at-frame.PrefixSize {
			break
		}
		frames = append(frames, at)
		at += frame.PrefixSize + length
	}
	if len(frames) == 0 {
		return content
	}
	f := content[frames[r.IntN(len(frames))]:]
	record := f[frame.PrefixSize:][:binary.LittleEndian.Uint32(f)]
	end := record[len(record)-trailer:]
	for range 1 + r.IntN(3) {
		at := r.IntN(min(len(record)-trailer, descriptions))
		if r.IntN(4) == 0 {
			at = r.IntN(len(record) - trailer)
		}
		record[at] = []byte{0, 1, 2, 3, 4, 5, 6, 8, 10, 0x7f, 0x80, 0xff, byte(r.Uint32())}[r.IntN(13)]
	}
	if r.IntN(3) == 0 { // a type with the same layout
		if column := 80 + 24*r.IntN(8); column+5 < len(record)-trailer {
			kind := [][2]byte{{1, 1}, {2, 1}, {3, 1}, {4, 2}, {5, 3}, {6, 3}, {7, 1}, {8, 3}, {9, 1}, {10, 3}}[r.IntN(10)]
			record[column+4], record[column+5] = kind[0], kind[1]
		}
	}
	sum := frame.Checksum(0, record[:len(record)-trailer])
	binary.LittleEndian.PutUint32(end[16:], sum)
	binary.LittleEndian.PutUint32(f[4:], frame.Checksum(sum, end))
	return content
}

// craftName returns another name for a file.
func craftName(r *rand.Rand, name string) string {
	return []string{
		strings.Replace(name, "/", "//", 1), name + "/x", "./" + name, "/" + name, "../" + name, name + "x", strings.ToUpper(name),
		strings.Repeat("tables/", 500) + name, "log/" + strconv.Itoa(r.IntN(3)), "log/00000000000000000009.log", "tables/events/x.bloom", "tables/events/keys-0000000001",
	}[r.IntN(12)]
}

// craft changes one or two of the files.
func craft(r *rand.Rand, files []craftedFile) []craftedFile {
	files = slices.Clone(files)
	for range 1 + r.IntN(2) {
		f := &files[r.IntN(len(files))]
		switch {
		case r.IntN(12) == 0:
			f.name = craftName(r, f.name)
		case f.name == manifest.Name:
			f.content = craftManifest(r, f.content)
		case strings.HasPrefix(f.name, "log/"):
			f.content = craftLog(r, f.content)
		case strings.HasSuffix(f.name, ".parquet"): // DuckDB's own reader reads it
			files[0].content = craftLog(r, files[0].content)
		default:
			f.content = bytes.Clone(f.content)
			if len(f.content) > 0 {
				f.content[r.IntN(len(f.content))] = byte(r.Uint32())
			}
		}
	}
	return files
}

// TestCraftedBackups changes a backup in ways that its checksums do not detect, restores it,
// and queries all rows. Each step must return an answer or an understandable error, and none
// may crash a process. make test-sql makes more changes.
func TestCraftedBackups(t *testing.T) {
	if testing.Short() {
		t.Skip("it is about the bytes of files")
	}
	r := testseed.New(t)
	s := openStore(t, t.TempDir())
	table := openTable(t, s, TableConfig{Event: "text", Time: "time"})
	p := take(t, table)
	doc := func(i int) string {
		return fmt.Sprintf(`{"id":%d,"text":"a text of many bytes %d","time":%d,"ok":%v,"x":%d.5,"meta":{"a":[%d]},"more %d":"%d"}`, i, i, 1767323046+i, i%2 == 0, i, i, i%3, i)
	}
	for i := range 20 {
		appendDocs(t, p, uint64(i), doc(i))
	}
	seal(t, s)
	for i := range 40 {
		appendDocs(t, p, uint64(20+i), doc(i))
	}
	var archive bytes.Buffer
	if err := s.Backup(t.Context(), &archive); err != nil {
		t.Fatal(err)
	}
	files := readArchive(t, archive.Bytes())
	if folder := filepath.Join(t.TempDir(), "events"); Restore(folder, bytes.NewReader(writeArchive(t, files))) != nil {
		t.Fatal("the backup is refused without a change")
	}
	rounds := countFrom(t, "PERIGEE_STORE_CRAFTED", 30)
	restored, answered := 0, 0
	for range rounds {
		folder := filepath.Join(t.TempDir(), "events")
		err := Restore(folder, bytes.NewReader(writeArchive(t, craft(r, files))))
		if err != nil {
			expectWords(t, "restore", err)
			continue
		}
		restored++
		if askAll(t, folder) {
			answered++
		}
	}
	t.Logf("%d restored, %d answered", restored, answered)
}

// expectWords fails the test if an error reports the end of a process.
func expectWords(t *testing.T, what string, err error) {
	t.Helper()
	if text := err.Error(); errors.Is(err, ErrCrashed) || strings.Contains(text, "SIG") || strings.Contains(text, "ended the process") || strings.Contains(text, "panic") {
		t.Errorf("%s: %v", what, err)
	}
}

// askAll opens a store, reads all of its tables, and reports whether each query succeeded.
func askAll(t *testing.T, folder string) (answered bool) {
	t.Helper()
	s, err := Open(folder, Options{})
	if err != nil {
		expectWords(t, "open", err)
		return false
	}
	defer s.Close()
	answered = true
	for _, name := range []string{"events", "x"} {
		for _, sql := range []string{"SELECT * FROM %s", "SELECT count(*), max(text), min(time), sum(id), max(x) FROM %s", "SELECT * FROM %s WHERE text = 'a' OR id = 3 ORDER BY time DESC LIMIT 3"} {
			if err := drain(s, fmt.Sprintf(sql, name)); err != nil {
				expectWords(t, sql, err)
				answered = answered && name == "x"
			}
		}
	}
	return answered
}

// drain reads all rows of a query.
func drain(s *Store, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	rows, err := s.Execute(ctx, Statement{SQL: sql, Format: FormatCSV})
	if err != nil {
		return err
	}
	defer rows.Close()
	return output.Write(io.Discard, rows)
}
