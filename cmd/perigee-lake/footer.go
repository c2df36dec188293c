package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/iceberg-go"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// A publishedFile is a file of the store as the lake sees it. Its data are those of the store's
// file; only the footer differs, which names and types the columns. Values are thus never
// written a second time.
type publishedFile struct {
	path    string // of the store's file
	size    int64  // of the data, before the footer
	footer  []byte // with its length and the magic number
	rows    int64
	columns []columnFacts
	offsets []int64 // of row groups
}

// columnFacts describe the values of a column.
type columnFacts struct {
	id                  int
	bytes, values, null int64
	least, greatest     []byte // as Iceberg encodes them; nil if unknown
}

// total returns the size of the file in the lake.
func (p *publishedFile) total() int64 { return p.size + int64(len(p.footer)) }

// open returns the contents of the file in the lake.
func (p *publishedFile) open() (io.ReadCloser, error) {
	f, err := os.Open(p.path)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.NewSectionReader(f, 0, p.size), bytes.NewReader(p.footer)), f}, nil
}

const magic = "PAR1"

// readPublished reads a file of the store, whose columns become those of the lake by their field
// IDs. Columns that the lake does not have are left out.
func readPublished(path string, columns []lake.Column) (*publishedFile, error) {
	size, err := dataSize(path)
	if err != nil {
		return nil, err
	}
	reader, err := file.OpenParquetFile(path, false)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	p := &publishedFile{path: path, size: size}
	meta := reader.MetaData()
	p.rows = meta.FileMetaData.NumRows
	kept, err := p.rename(meta, columns)
	if err != nil {
		return nil, err
	}
	p.describe(meta, kept)
	text, err := meta.Serialize(context.Background())
	if err != nil {
		return nil, err
	}
	p.footer = append(binary.LittleEndian.AppendUint32(text, uint32(len(text))), magic...)
	return p, nil
}

// dataSize returns the size of a file without its footer.
func dataSize(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	var end [8]byte
	if _, err := f.ReadAt(end[:], info.Size()-int64(len(end))); err != nil {
		return 0, err
	}
	size := info.Size() - int64(len(end)) - int64(binary.LittleEndian.Uint32(end[:]))
	if string(end[4:]) != magic || size < int64(len(magic)) {
		return 0, errors.New("it has no Parquet footer")
	}
	return size, nil
}

// rename changes the footer of the store into that of the lake, and returns the column of each
// kept column chunk.
func (p *publishedFile) rename(meta *metadata.FileMetaData, columns []lake.Column) ([]lake.Column, error) {
	m := meta.FileMetaData
	root, leaves := m.Schema[0], m.Schema[1:]
	m.Schema = m.Schema[:1]
	m.KeyValueMetadata = nil
	orders := m.ColumnOrders
	m.ColumnOrders = nil
	var kept []lake.Column
	var indexes []int
	has := map[int32]bool{}
	for _, leaf := range leaves {
		if leaf.FieldID != nil {
			has[*leaf.FieldID] = true
		}
	}
	byField := map[int32]lake.Column{}
	for _, c := range columns {
		id := c.ID
		if c.Fitted != 0 && has[c.Fitted] {
			id = c.Fitted
		}
		if _, taken := byField[id]; !taken {
			byField[id] = c
		}
	}
	for i, leaf := range leaves {
		if leaf.NumChildren != nil || leaf.Type == nil {
			return nil, fmt.Errorf("column %s has fields of its own", leaf.Name)
		}
		if leaf.FieldID == nil {
			continue
		}
		c, found := byField[*leaf.FieldID]
		if !found {
			continue
		}
		have := leafType(leaf.Type.String(), leaf.LogicalType != nil && leaf.LogicalType.TIMESTAMP != nil && leaf.LogicalType.TIMESTAMP.Unit.NANOS != nil, leaf.Precision, leaf.Scale)
		if !slices.Contains(have, c.Type) {
			return nil, fmt.Errorf("column %s has type %s, and the lake has %s", leaf.Name, have[0], c.Type)
		}
		leaf.Name = c.Name
		setPointer(&leaf.FieldID, c.Lake)
		switch c.Type {
		case lake.String:
			setPointer(&leaf.ConvertedType, convertedUTF8)
			if leaf.LogicalType == nil || leaf.LogicalType.STRING == nil {
				leaf.LogicalType = newLike(leaf.LogicalType)
				leaf.LogicalType.STRING = newLike(leaf.LogicalType.STRING)
			}
		case lake.Timestamptz:
			leaf.LogicalType.TIMESTAMP.IsAdjustedToUTC = true
			setPointer(&leaf.ConvertedType, convertedMicros)
		case lake.Int, lake.Long, lake.Binary:
			leaf.ConvertedType, leaf.LogicalType = nil, nil
		}
		m.Schema = append(m.Schema, leaf)
		if i < len(orders) {
			m.ColumnOrders = append(m.ColumnOrders, orders[i])
		}
		kept, indexes = append(kept, c), append(indexes, i)
	}
	setPointer(&root.NumChildren, int32(len(kept)))
	for _, group := range m.RowGroups {
		all := group.Columns
		group.Columns, group.TotalByteSize, group.SortingColumns = nil, 0, nil
		compressed := int64(0)
		for k, i := range indexes {
			chunk := all[i]
			for _, encoding := range chunk.MetaData.Encodings {
				if name := encoding.String(); strings.HasPrefix(name, "DELTA") {
					return nil, fmt.Errorf("column %s has the encoding %s, which not all engines read", kept[k].Name, name)
				}
			}
			chunk.MetaData.PathInSchema = []string{kept[k].Name}
			group.TotalByteSize += chunk.MetaData.TotalUncompressedSize
			compressed += chunk.MetaData.TotalCompressedSize
			group.Columns = append(group.Columns, chunk)
		}
		setPointer(&group.TotalCompressedSize, compressed)
	}
	return kept, nil
}

// The converted types of Parquet that a footer may need.
const (
	convertedUTF8   = 0
	convertedMicros = 10
)

// setPointer makes *p point to a value.
func setPointer[T ~int16 | ~int32 | ~int64, V ~int | ~int32 | ~int64](p **T, v V) {
	value := T(v)
	*p = &value
}

// newLike returns a new value of the type that p points to, which has no name outside its
// package.
func newLike[T any](*T) *T { return new(T) }

// leafType returns the types in the lake of a column in the store's file, the usual one first.
func leafType(physical string, nanoseconds bool, precision, scale *int32) []lake.Type {
	if precision != nil && *precision > 0 {
		digits := int32(0)
		if scale != nil {
			digits = *scale
		}
		return []lake.Type{lake.Type(fmt.Sprintf("decimal(%d,%d)", *precision, digits))}
	}
	switch physical {
	case "BOOLEAN":
		return []lake.Type{lake.Boolean}
	case "INT32":
		return []lake.Type{lake.Int}
	case "INT64":
		if nanoseconds {
			return []lake.Type{lake.Long}
		}
		return []lake.Type{lake.Long, lake.Timestamptz}
	case "DOUBLE":
		return []lake.Type{lake.Double}
	case "BYTE_ARRAY":
		return []lake.Type{lake.String, lake.Binary}
	}
	return []lake.Type{lake.Type(physical)}
}

// describe collects what a manifest of the lake has of the file.
func (p *publishedFile) describe(meta *metadata.FileMetaData, kept []lake.Column) {
	for k, c := range kept {
		facts := columnFacts{id: int(c.Lake)}
		bounded := true
		for _, group := range meta.FileMetaData.RowGroups {
			chunk := group.Columns[k].MetaData
			facts.bytes += chunk.TotalCompressedSize
			facts.values += chunk.NumValues
			s := chunk.Statistics
			if s == nil || s.NullCount == nil {
				bounded = false
				continue
			}
			facts.null += *s.NullCount
			if *s.NullCount == chunk.NumValues {
				continue
			}
			if s.MinValue == nil || s.MaxValue == nil || !comparable(c.Type, s.MinValue) || !comparable(c.Type, s.MaxValue) {
				bounded = false
				continue
			}
			if facts.least == nil || compare(c.Type, s.MinValue, facts.least) < 0 {
				facts.least = s.MinValue
			}
			if facts.greatest == nil || compare(c.Type, s.MaxValue, facts.greatest) > 0 {
				facts.greatest = s.MaxValue
			}
		}
		if !bounded || len(facts.least) > boundMax || len(facts.greatest) > boundMax {
			facts.least, facts.greatest = nil, nil
		}
		p.columns = append(p.columns, facts)
	}
	for _, group := range meta.FileMetaData.RowGroups {
		if offset := group.FileOffset; offset != nil {
			p.offsets = append(p.offsets, *offset)
		}
	}
	if len(p.offsets) < len(meta.FileMetaData.RowGroups) || !slices.IsSorted(p.offsets) || slices.Contains(p.offsets, 0) {
		p.offsets = nil
	}
}

// boundMax is the maximum size of a bound in a manifest: longer ones would make manifests
// larger than they save.
const boundMax = 64

// comparable reports whether a bound of a Parquet file is one of Iceberg too.
func comparable(t lake.Type, bound []byte) bool {
	switch t {
	case lake.Int:
		return len(bound) == 4
	case lake.Long, lake.Timestamptz:
		return len(bound) == 8
	case lake.Double:
		return len(bound) == 8 && !math.IsNaN(double(bound)) && double(bound) != 0 // of two zeros, the file has one
	case lake.String:
		return utf8.Valid(bound)
	case lake.Boolean:
		return len(bound) == 1
	}
	return false // binary, whose bound may be cut; decimal, which Iceberg encodes differently
}

func compare(t lake.Type, a, b []byte) int {
	switch t {
	case lake.Int:
		return cmp.Compare(int32(binary.LittleEndian.Uint32(a)), int32(binary.LittleEndian.Uint32(b)))
	case lake.Long, lake.Timestamptz:
		return cmp.Compare(int64(binary.LittleEndian.Uint64(a)), int64(binary.LittleEndian.Uint64(b)))
	case lake.Double:
		return cmp.Compare(double(a), double(b))
	}
	return bytes.Compare(a, b)
}

func double(bound []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(bound)) }

// entry returns the file's entry in a manifest of the lake.
func (p *publishedFile) entry(address string) (iceberg.DataFile, error) {
	b, err := iceberg.NewDataFileBuilder(*iceberg.UnpartitionedSpec, iceberg.EntryContentData, address, iceberg.ParquetFile, nil, nil, nil, p.rows, p.total())
	if err != nil {
		return nil, err
	}
	sizes, values, null := map[int]int64{}, map[int]int64{}, map[int]int64{}
	least, greatest := map[int][]byte{}, map[int][]byte{}
	for _, c := range p.columns {
		sizes[c.id], values[c.id], null[c.id] = c.bytes, c.values, c.null
		if c.least != nil {
			least[c.id], greatest[c.id] = c.least, c.greatest
		}
	}
	b.ColumnSizes(sizes).ValueCounts(values).NullValueCounts(null).LowerBoundValues(least).UpperBoundValues(greatest)
	if p.offsets != nil {
		b.SplitOffsets(p.offsets)
	}
	return b.Build(), nil
}
