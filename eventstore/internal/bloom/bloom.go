//go:build linux && cgo

// Package bloom writes and reads the bloom filters of Parquet files, by which a query skips files
// and row groups that cannot have a value. A Cache is safe for concurrent use.
package bloom

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/cespare/xxhash/v2"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/duckdb"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/tablesql"
	"github.com/perigeedb/perigee/internal/durable"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// A bloom file accompanies a Parquet file. For some columns it holds a filter per row group,
// which tells whether a value may occur there. Its format is
//
//	perigee-bloom 2 CRC-32C of the rest, in hexadecimal \n
//	JSON of bloomHead \n
//	the filters: all row groups of the first column of the head, then of the next
//
// A filter is a split block bloom filter as in Parquet: a value selects one block of 32 bytes
// and sets a bit in each of its eight words. Values are hashed as text with xxHash64.
const (
	bloomLine  = "perigee-bloom 2 %08x\n"
	bloomBlock = 32
	// bloomBits is the number of bits per distinct value of a row group. The false
	// positive rate is 1 in 6,000; 50 million rows have 3,000 row groups. A column of
	// unique values costs 3 bytes per row, a column of few values almost nothing.
	bloomBits = 24
)

type bloomHead struct {
	Groups  []int64 // rows of each row group
	Columns []bloomColumn
}

type bloomColumn struct {
	ID    int32
	Bytes []int // sizes of the filters, per row group
}

// A bloomFilter is the filter of one column of a row group.
type bloomFilter []byte

// newBloomFilter returns a filter sized for the given number of distinct values.
func newBloomFilter(values int) bloomFilter {
	blocks := values*bloomBits/(8*bloomBlock) + 1
	return make(bloomFilter, blocks*bloomBlock)
}

// Hash returns the hash of a value in filters.
func Hash(text string) uint64 { return xxhash.Sum64String(text) }

var bloomSalts = [8]uint32{0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31}

// bit returns the word of the value's block that holds its ith bit, and the bit's mask.
func (f bloomFilter) bit(hash uint64, i int) (word []byte, bit uint32) {
	block := (hash >> 32) * uint64(len(f)/bloomBlock) >> 32
	return f[block*bloomBlock+uint64(4*i):][:4], 1 << (uint32(hash) * bloomSalts[i] >> 27)
}

func (f bloomFilter) add(hash uint64) {
	for i := range bloomSalts {
		word, bit := f.bit(hash, i)
		binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)|bit)
	}
}

// mayContain reports whether a value with the given hash may have been added.
func (f bloomFilter) mayContain(hash uint64) bool {
	for i := range bloomSalts {
		if word, bit := f.bit(hash, i); binary.LittleEndian.Uint32(word)&bit == 0 {
			return false
		}
	}
	return true
}

// Columns returns the columns of a table that have filters.
func Columns(t *manifest.Table) (columns []manifest.Column) {
	for _, c := range t.Current().Columns {
		wanted := slices.ContainsFunc(append([]string{t.Event}, t.Bloom...), func(name string) bool { return strings.EqualFold(name, c.Name) })
		if wanted && (c.Type == event.String || c.Type == event.Int64 || c.Type == event.Int32) {
			columns = append(columns, c)
		}
	}
	return columns
}

// Write writes the bloom file of a Parquet file, next to it. It returns the path, or ""
// if no column has a filter.
func Write(ctx context.Context, conn *duckdb.Conn, t *manifest.Table, parquet string) (path string, err error) {
	columns := Columns(t)
	hidden := slices.ContainsFunc(t.Current().Columns, func(c manifest.Column) bool { return strings.EqualFold(c.Name, tablesql.FileRowNumber) })
	if len(columns) == 0 || hidden {
		return "", nil
	}
	head, filters := bloomHead{}, []byte{}
	if head.Groups, err = rowGroups(conn, parquet); err != nil {
		return "", err
	}
	for _, c := range columns {
		groups, err := buildFilters(ctx, conn, parquet, c, head.Groups)
		if err != nil {
			return "", err
		}
		column := bloomColumn{ID: c.ID}
		for _, filter := range groups {
			column.Bytes, filters = append(column.Bytes, len(filter)), append(filters, filter...)
		}
		head.Columns = append(head.Columns, column)
	}
	text, err := json.Marshal(head)
	if err != nil {
		return "", err
	}
	content := append(append(text, '\n'), filters...)
	line := fmt.Appendf(nil, bloomLine, crc32.Checksum(content, castagnoli))
	path = manifest.BloomName(parquet)
	return path, os.WriteFile(path, append(line, content...), 0o600)
}

// rowGroups returns the number of rows in each row group of a file.
func rowGroups(conn *duckdb.Conn, parquet string) (groups []int64, err error) {
	rows, err := conn.Run("SELECT row_group_id, any_value(row_group_num_rows) FROM parquet_metadata(" + sqltext.Literal(parquet) + ") GROUP BY 1 ORDER BY 1")
	for _, row := range rows {
		groups = append(groups, row[1].(int64))
	}
	return groups, err
}

// buildFilters reads a column of a file and builds a filter for each row group.
func buildFilters(ctx context.Context, conn *duckdb.Conn, parquet string, c manifest.Column, groups []int64) (filters []bloomFilter, err error) {
	var hashes []uint64 // of the current row group
	row, end := int64(0), groups[0]
	finish := func() {
		slices.Sort(hashes)
		hashes = slices.Compact(hashes)
		filter := newBloomFilter(len(hashes))
		for _, hash := range hashes {
			filter.add(hash)
		}
		filters, hashes = append(filters, filter), hashes[:0]
	}
	sql := fmt.Sprintf("SELECT CAST(%s AS VARCHAR), %s FROM read_parquet(%s, hive_partitioning = false)", sqltext.QuoteName(c.Name), tablesql.FileRowNumber, sqltext.Literal(parquet))
	err = conn.Stream(sql, func(batch arrow.RecordBatch) error {
		texts, numbers := batch.Column(0).(*array.String), batch.Column(1).(*array.Int64)
		for i := range texts.Len() {
			if numbers.Value(i) != row {
				return fmt.Errorf("got row %d of %s, want row %d", numbers.Value(i), parquet, row)
			}
			if row == end && len(filters)+1 < len(groups) {
				finish()
				end += groups[len(filters)]
			}
			row++
			if texts.IsNull(i) {
				continue
			}
			hash := Hash(texts.Value(i))
			if n := len(hashes); n == 0 || hashes[n-1] != hash { // consecutive duplicates are common in sorted files
				hashes = append(hashes, hash)
			}
		}
		return context.Cause(ctx)
	})
	finish()
	if err == nil && (row != end || len(filters) != len(groups)) {
		err = fmt.Errorf("%s has %d rows in %d row groups of %d", parquet, row, len(filters), len(groups))
	}
	return filters, err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Cache keeps bloom files mapped.
type Cache struct {
	mu    sync.Mutex
	files map[string]*bloomFile // by path; nil for an unusable file
}

// A bloomFile is a mapped bloom file.
type bloomFile struct {
	mapped  []byte
	groups  []int64                 // rows of each row group
	filters map[int32][]bloomFilter // by column, then per row group
}

// A RowRange is the rows [begin, end) of a file.
type RowRange struct{ Begin, End int64 }

// find returns the row groups that may have one of the values of each column, merged into as
// few row ranges as possible.
func (f *bloomFile) find(hashes map[int32][]uint64) (ranges []RowRange) {
	begin := int64(0)
	for i, rows := range f.groups {
		end := begin + rows
		if f.mayContain(i, hashes) {
			if n := len(ranges); n > 0 && ranges[n-1].End == begin {
				ranges[n-1].End = end
			} else {
				ranges = append(ranges, RowRange{begin, end})
			}
		}
		begin = end
	}
	return ranges
}

func (f *bloomFile) mayContain(group int, hashes map[int32][]uint64) bool {
	for id, values := range hashes {
		if filters, found := f.filters[id]; found && !slices.ContainsFunc(values, filters[group].mayContain) {
			return false
		}
	}
	return true
}

// Ranges returns the row ranges of a Parquet file that may have one of the values of each
// column, given by their hashes. known is false if the bloom file at path is not usable.
func (b *Cache) Ranges(path string, hashes map[int32][]uint64) (ranges []RowRange, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.open(path)
	if len(f.groups) == 0 {
		return nil, false
	}
	return f.find(hashes), true
}

// open returns a file's filters: none of an unreadable file. The caller holds mu.
func (b *Cache) open(path string) *bloomFile {
	if f := b.files[path]; f != nil {
		return f
	}
	f := &bloomFile{}
	if mapped, err := durable.Map(path); err == nil {
		if f.groups, f.filters, err = parseBloom(mapped); err != nil {
			f.groups = nil
			_ = syscall.Munmap(mapped)
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

// Keep closes the files that are not in the manifest.
func (b *Cache) Keep(folder string, m *manifest.Manifest) {
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
				_ = syscall.Munmap(f.mapped)
			}
			delete(b.files, path)
		}
	}
}

var errBloom = errors.New("not a bloom file")

func parseBloom(all []byte) (groups []int64, filters map[int32][]bloomFilter, err error) {
	line, content, _ := bytes.Cut(all, []byte("\n"))
	var sum uint32
	if n, _ := fmt.Sscanf(string(line)+"\n", bloomLine, &sum); n != 1 || crc32.Checksum(content, castagnoli) != sum {
		return nil, nil, errBloom
	}
	text, content, _ := bytes.Cut(content, []byte("\n"))
	var head bloomHead
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, nil, err
	}
	filters = map[int32][]bloomFilter{}
	for _, c := range head.Columns {
		if len(c.Bytes) != len(head.Groups) {
			return nil, nil, errBloom
		}
		for _, size := range c.Bytes {
			if size < bloomBlock || size%bloomBlock != 0 || size > len(content) {
				return nil, nil, errBloom
			}
			filters[c.ID], content = append(filters[c.ID], bloomFilter(content[:size:size])), content[size:]
		}
	}
	return head.Groups, filters, nil
}
