//go:build linux && cgo

package sqlworker

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

// A bloom file stands beside a Parquet file and has a filter for some of its columns: whether
// a value may occur in them. It is
//
//	perigee-bloom 1 CRC-32C of the rest, in hexadecimal \n
//	JSON of bloomHead \n
//	the filters, in the order of the head
//
// A filter is blocks of 32 bytes, as those of Parquet: a value has one block, and a bit in each
// of the block's eight words. Values are hashed as text with xxHash64.
const (
	bloomLine  = "perigee-bloom 1 %08x\n"
	bloomBlock = 32
	// bloomBits is how many bits a value has; less than 1 of 100 that does not occur is
	// taken for one that does.
	bloomBits = 12
	// bloomMax is the largest filter. A column with more values has none.
	bloomMax = 16 << 20
)

type bloomHead struct {
	Columns []bloomColumn
}

type bloomColumn struct {
	ID    int32
	Bytes int
}

// A bloomFilter is the filter of one column.
type bloomFilter []byte

// newBloomFilter returns a filter for so many different values.
func newBloomFilter(values int64) bloomFilter {
	blocks := values*bloomBits/(8*bloomBlock) + 1
	return make(bloomFilter, blocks*bloomBlock)
}

var bloomSalts = [8]uint32{0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31}

// bit returns the word of a value's block that has its ith bit, and the bit.
func (f bloomFilter) bit(hash uint64, i int) (word []byte, bit uint32) {
	block := (hash >> 32) * uint64(len(f)/bloomBlock) >> 32
	return f[block*bloomBlock+uint64(4*i):][:4], 1 << (uint32(hash) * bloomSalts[i] >> 27)
}

func (f bloomFilter) add(value string) {
	hash := xxhash.Sum64String(value)
	for i := range bloomSalts {
		word, bit := f.bit(hash, i)
		binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)|bit)
	}
}

// mayContain reports whether a value may have been added.
func (f bloomFilter) mayContain(value string) bool {
	hash := xxhash.Sum64String(value)
	for i := range bloomSalts {
		if word, bit := f.bit(hash, i); binary.LittleEndian.Uint32(word)&bit == 0 {
			return false
		}
	}
	return true
}

// bloomColumns returns the columns of a table that have filters.
func bloomColumns(t *manifest.Table) (columns []manifest.Column) {
	for _, c := range t.Current().Columns {
		wanted := slices.ContainsFunc(append([]string{t.Event}, t.Bloom...), func(name string) bool { return strings.EqualFold(name, c.Name) })
		if wanted && (c.Type == event.String || c.Type == event.Int64 || c.Type == event.Int32) {
			columns = append(columns, c)
		}
	}
	return columns
}

// writeBloom writes the filters of a Parquet file that is not in its place yet. It returns
// false if the file has none.
func (s *session) writeBloom(t *manifest.Table, parquet, path string) (written bool, err error) {
	var head bloomHead
	var filters []byte
	for _, c := range bloomColumns(t) {
		filter, err := s.buildFilter(parquet, c)
		if err != nil {
			return false, err
		}
		if filter != nil {
			head.Columns = append(head.Columns, bloomColumn{c.ID, len(filter)})
			filters = append(filters, filter...)
		}
	}
	if len(filters) == 0 {
		return false, nil
	}
	text, err := json.Marshal(head)
	if err != nil {
		return false, err
	}
	content := append(append(text, '\n'), filters...)
	temp := filepath.Join(s.worker.settings.temp(), filepath.Base(path))
	defer func() { _ = os.Remove(temp) }()
	line := fmt.Appendf(nil, bloomLine, crc32.Checksum(content, castagnoli))
	if err := os.WriteFile(temp, append(line, content...), 0o600); err != nil {
		return false, err
	}
	_, err = moveDurably(temp, path)
	return err == nil, err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// buildFilter reads a column of a file into a filter. It returns nil if that would be too large.
func (s *session) buildFilter(parquet string, c manifest.Column) (bloomFilter, error) {
	from := quote(c.Name) + " FROM read_parquet(" + literal(parquet) + ", hive_partitioning = false)"
	counted, err := s.conn.run("SELECT approx_count_distinct(" + strings.Replace(from, " FROM", ") FROM", 1))
	if err != nil {
		return nil, err
	}
	values, _ := counted[0][0].(int64)
	filter := newBloomFilter(values)
	if len(filter) > bloomMax {
		return nil, nil
	}
	err = s.conn.stream("SELECT CAST("+strings.Replace(from, " FROM", " AS VARCHAR) FROM", 1), func(texts *array.String) error {
		for i := range texts.Len() {
			if texts.IsValid(i) {
				filter.add(texts.Value(i))
			}
		}
		return context.Cause(s.ctx)
	})
	return filter, err
}

// blooms keeps bloom files mapped.
type blooms struct {
	mu    sync.Mutex
	files map[string]*bloomFile // by path; nil for one that cannot be used
}

// A bloomFile is a mapped bloom file.
type bloomFile struct {
	mapped  []byte
	filters map[int32]bloomFilter // by column
}

// without leaves out the files of a table that cannot have the values that a query wants.
func (b *blooms) without(folder string, t *manifest.Table, files []*manifest.File, wanted map[string][]string) []*manifest.File {
	values := map[int32][]string{}
	for _, c := range bloomColumns(t) {
		if texts, found := wanted[strings.ToLower(c.Name)]; found {
			values[c.ID] = texts
		}
	}
	if len(values) == 0 {
		return files
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(files), func(f *manifest.File) bool {
		if f.Bloom == "" {
			return false
		}
		file := b.open(t.Path(folder, f.Bloom))
		for id, texts := range values {
			if filter, found := file.filters[id]; found && !slices.ContainsFunc(texts, filter.mayContain) {
				return true
			}
		}
		return false
	})
}

// open returns a file's filters. One that cannot be read has none: the query then reads more.
func (b *blooms) open(path string) *bloomFile {
	if f := b.files[path]; f != nil {
		return f
	}
	f := &bloomFile{}
	if mapped, err := mapFile(path); err == nil {
		if f.filters, err = parseBloom(mapped); err != nil {
			_ = unix.Munmap(mapped)
		} else {
			f.mapped = mapped
		}
	}
	if b.files == nil {
		b.files = map[string]*bloomFile{}
	}
	b.files[path] = f
	return f
}

// keep closes the files that a manifest does not name.
func (b *blooms) keep(folder string, m *manifest.Manifest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	named := map[string]bool{}
	for _, t := range m.Tables {
		for _, f := range t.Files {
			named[t.Path(folder, f.Bloom)] = f.Bloom != ""
		}
	}
	for path, f := range b.files {
		if !named[path] {
			if f.mapped != nil {
				_ = unix.Munmap(f.mapped)
			}
			delete(b.files, path)
		}
	}
}

var errBloom = errors.New("not a bloom file")

func parseBloom(all []byte) (map[int32]bloomFilter, error) {
	line, content, _ := bytes.Cut(all, []byte("\n"))
	var sum uint32
	if n, _ := fmt.Sscanf(string(line)+"\n", bloomLine, &sum); n != 1 || crc32.Checksum(content, castagnoli) != sum {
		return nil, errBloom
	}
	text, content, _ := bytes.Cut(content, []byte("\n"))
	var head bloomHead
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, err
	}
	filters := map[int32]bloomFilter{}
	for _, c := range head.Columns {
		if c.Bytes < bloomBlock || c.Bytes%bloomBlock != 0 || c.Bytes > len(content) {
			return nil, errBloom
		}
		filters[c.ID], content = bloomFilter(content[:c.Bytes:c.Bytes]), content[c.Bytes:]
	}
	return filters, nil
}
