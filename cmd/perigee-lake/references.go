package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/flate"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"

	"github.com/apache/iceberg-go"
	iceio "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// readersMax is the maximum number of manifests that are read at once.
const readersMax = 8

// A location is a table's location, normalized for comparison. Metadata may spell one object in
// several ways: s3 and s3a, with and without file:.
type location string

func locationOf(t *table.Table) location {
	return location(plainAddress(strings.TrimSuffix(t.Location(), "/")) + "/")
}

func plainAddress(address string) string {
	if scheme, rest, found := strings.Cut(address, "://"); found && (scheme == "s3a" || scheme == "s3n") {
		return "s3://" + rest
	}
	if rest, found := strings.CutPrefix(address, "file:"); found {
		return "/" + strings.TrimLeft(rest, "/")
	}
	return address
}

// name returns the name of an object below the location. It is empty for one elsewhere.
func (l location) name(address string) string {
	name, found := strings.CutPrefix(plainAddress(address), string(l))
	if !found {
		return ""
	}
	return name
}

// nameOrAddress returns the name of an object below the location, or the address of another one.
func (l location) nameOrAddress(address string) string {
	return cmp.Or(l.name(address), address)
}

// dataFile returns the name of a data file as in lake.State. One elsewhere may be of the store, too:
// somebody has given the table another location.
func dataFile(name string) (file string, found bool) {
	if file, found = strings.CutPrefix(name, lake.DataFolder); found {
		return file, true
	}
	if at := strings.LastIndex(name, "/"+lake.DataFolder); at >= 0 && (strings.HasPrefix(name, "/") || strings.Contains(name, ":")) {
		return name[at+1+len(lake.DataFolder):], true
	}
	return "", false
}

// A manifest is the content of one Iceberg manifest.
type manifest struct {
	file iceberg.ManifestFile
	live []string // names of files below the location, or whole addresses
	gone []string // files that it records as deleted: it has bounds of their values
	// others are data files that no store has written, one for each sequence number with
	// which such files were added, and othersGone those that it records as deleted.
	others, othersGone map[int64]string
}

// references is what a table's metadata names.
type references struct {
	location  location
	named     map[string]bool                   // objects below the location
	manifests map[string]*manifest              // by address
	snapshots map[int64][]*manifest             // those of each snapshot
	lists     map[string][]iceberg.ManifestFile // of manifests, by address
}

// readReferences reads what a table names, without the lists and manifests that known, which may be
// nil, has read already: they never change. It fails if it cannot read any part of it.
func readReferences(ctx context.Context, t *table.Table, known *references) (*references, error) {
	fs, err := t.FS(ctx)
	if err != nil {
		return nil, err
	}
	r := &references{location: locationOf(t), named: map[string]bool{}, manifests: map[string]*manifest{}, snapshots: map[int64][]*manifest{}, lists: map[string][]iceberg.ManifestFile{}}
	if known == nil {
		known = &references{}
	}
	meta := t.Metadata()
	r.add(t.MetadataLocation())
	for entry := range meta.PreviousFiles() {
		r.add(entry.MetadataFile)
	}
	for entry := range meta.Statistics() {
		r.add(entry.StatisticsPath)
	}
	for entry := range meta.PartitionStatistics() {
		r.add(entry.StatisticsPath)
	}
	snapshots := meta.Snapshots()
	lists := make([][]iceberg.ManifestFile, len(snapshots))
	if err := inParallel(ctx, len(snapshots), func(i int) (err error) {
		if list, found := known.lists[snapshots[i].ManifestList]; found {
			lists[i] = list
			return nil
		}
		lists[i], err = snapshots[i].Manifests(fs)
		return err
	}); err != nil {
		return nil, fmt.Errorf("read the snapshots of the table: %w", err)
	}
	var unread []*manifest
	for i, s := range snapshots {
		r.add(s.ManifestList)
		if s.ManifestList != "" {
			r.lists[s.ManifestList] = lists[i]
		}
		for _, file := range lists[i] {
			address := file.FilePath()
			m := r.manifests[address]
			if m == nil {
				if m = known.manifests[address]; m == nil {
					m = &manifest{file: file}
					unread = append(unread, m)
				}
				r.manifests[address] = m
				r.add(address)
			}
			r.snapshots[s.SnapshotID] = append(r.snapshots[s.SnapshotID], m)
		}
	}
	if err := inParallel(ctx, len(unread), func(i int) error { return unread[i].read(fs, r.location) }); err != nil {
		return nil, err
	}
	for _, m := range r.manifests {
		for _, name := range m.live {
			r.keep(name)
		}
	}
	return r, nil
}

func (r *references) add(address string) {
	if name := r.location.name(address); name != "" {
		r.keep(name)
	}
}

// keep protects an object, under any spelling of its name.
func (r *references) keep(name string) {
	r.named[name] = true
	if plain, err := url.PathUnescape(name); err == nil {
		r.named[plain] = true
	}
}

// read reads the entries of a manifest.
func (m *manifest) read(fs iceio.IO, l location) error {
	entries, err := m.file.FetchEntries(fs, false)
	if err != nil {
		return fmt.Errorf("read manifest %s: %w", m.file.FilePath(), err)
	}
	m.fill(entries, l)
	return nil
}

func (m *manifest) fill(entries []iceberg.ManifestEntry, l location) {
	m.others, m.othersGone = map[int64]string{}, map[int64]string{}
	for _, entry := range entries {
		f := entry.DataFile()
		if file, _ := dataFile(l.nameOrAddress(f.FilePath())); f.ContentType() == iceberg.EntryContentData && lake.IncarnationOf(file) == "" {
			sequence := int64(0)
			if number := entry.FileSequenceNum(); number != nil {
				sequence = *number
			}
			others := m.others
			if entry.Status() == iceberg.EntryStatusDELETED {
				others = m.othersGone
			}
			others[sequence] = f.FilePath()
		}
		for _, address := range []string{f.FilePath(), deref(f.ReferencedDataFile())} {
			if address == "" {
				continue
			}
			name := l.nameOrAddress(address)
			if entry.Status() == iceberg.EntryStatusDELETED {
				m.gone = append(m.gone, name)
			} else {
				m.live = append(m.live, name)
			}
		}
	}
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// errTorn reports an object that is neither a manifest nor a list of manifests, such as one that was
// not written to its end.
var errTorn = errors.New("neither a manifest nor a list of manifests")

// readOrphan reads an object that may be a manifest that no snapshot has. It returns nil for a
// list of manifests.
func readOrphan(fs iceio.IO, address string, l location) (*manifest, error) {
	f, err := fs.Open(address)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	m := &manifest{file: iceberg.NewManifestFile(2, address, int64(len(text)), 0, 0).Build()}
	entries, err := iceberg.ReadManifest(m.file, bytes.NewReader(text), false)
	if err != nil {
		if _, err := iceberg.ReadManifestList(bytes.NewReader(text)); err != nil {
			return nil, errTorn
		}
		return nil, nil
	}
	m.fill(entries, l)
	return m, nil
}

// readUUID reads the UUID of the table whose metadata an object has, which is near its beginning. It is
// empty if the object has none, such as one that was not written to its end.
func readUUID(fs iceio.IO, address string) (uuid string, err error) {
	f, err := fs.Open(address)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buffered := bufio.NewReader(f)
	text := io.Reader(buffered)
	if head, _ := buffered.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		text, err = gzip.NewReader(buffered)
	}
	if err == nil {
		uuid, err = decodeUUID(json.NewDecoder(text))
	}
	_, isTorn := errors.AsType[*json.SyntaxError](err)
	_, isCorrupt := errors.AsType[flate.CorruptInputError](err)
	if isTorn || isCorrupt || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) {
		return "", nil
	}
	return uuid, err
}

func decodeUUID(metadata *json.Decoder) (uuid string, err error) {
	if start, err := metadata.Token(); err != nil || start != json.Delim('{') {
		return "", err
	}
	for metadata.More() {
		var value json.RawMessage
		key, err := metadata.Token()
		if err == nil {
			err = metadata.Decode(&value)
		}
		if err != nil {
			return "", err
		}
		if key == "table-uuid" {
			_ = json.Unmarshal(value, &uuid) // a value that is not a string is ignored
			return uuid, nil
		}
	}
	_, err = metadata.Token() // the end, or what the decoder could not read
	return "", err
}

// purgedBy tells which purges must remove files that a manifest names, or knows values of.
func (m *manifest) purgedBy(w *lake.Owner) lake.PurgedBy {
	return min(purgedBy(w, m.live), purgedBy(w, m.gone))
}

// purgedBy tells which purges must remove any of the files.
func purgedBy(w *lake.Owner, names []string) lake.PurgedBy {
	least := lake.NoPurge
	for _, name := range names {
		if file, found := dataFile(name); found {
			least = min(least, w.PurgedBy(file))
		}
	}
	return least
}

// inParallel calls do with the numbers below n, some at once, and returns their errors. Each call
// without an error is progress of the publication; none begins after its end.
func inParallel(ctx context.Context, n int, do func(i int) error) error {
	var all sync.WaitGroup
	slots, failed := make(chan struct{}, readersMax), make([]error, n)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			if failed[i] = context.Cause(ctx); failed[i] == nil {
				failed[i] = do(i)
			}
			if failed[i] == nil {
				progress(ctx)
			}
			<-slots
		})
	}
	all.Wait()
	return errors.Join(failed...)
}
