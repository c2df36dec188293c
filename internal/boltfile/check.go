package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"syscall"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/perigeedb/perigee/internal/durable"
)

// ErrDamaged says that the pages of a file do not belong together, as after a power cut on a
// disk that says it has synced what it has not. bbolt would panic on them, or write over others.
var ErrDamaged = errors.New("the file is damaged; restore it from a copy, or move it away and lose its contents")

// Layout of a bbolt file. A page begins with its number (8 bytes), flags (2), the number of its
// elements (2) and of the pages behind it that belong to it (4). A branch's element has the
// offset and size of a key (4 each) and the number of a page (8); a leaf's has flags, and offset
// and sizes of a key and its value (4 each), which is a bucket: the number of its first page (8),
// a sequence (8), and if that number is 0, its only page. Offsets count from the element.
const (
	pageHeader  = 16
	elementSize = 16
	metaPages   = 2

	branchFlag   = 1
	leafFlag     = 2
	freelistFlag = 16
	bucketFlag   = 1 // of a leaf's element

	bucketHeader = 16
	noFreelist   = ^uint64(0)

	// Of a meta page, behind the page's header.
	metaMagic    = 0xED0CDAED
	metaRoot     = 16
	metaFreelist = 32
	metaEnd      = 40 // number behind the last page
	metaTx       = 48
	metaSum      = 56
)

// order is that of the machine's bytes, as bbolt stores its numbers.
var order = binary.NativeEndian

// check returns ErrDamaged unless the file's pages belong together: each page that the newest
// meta page leads to is there, is used once and is not free, and its keys are in order and in
// the range of the page above it. Values are not read. No other process changes the file
// meanwhile.
func check(path string, options bolt.Options) error {
	if info, err := os.Stat(path); err == nil && info.Size() == 0 { // bbolt would begin a new one
		return fmt.Errorf("it is empty: %w", ErrDamaged)
	}
	options.ReadOnly = true // it looks at nothing but the meta pages
	db, err := bolt.Open(path, 0o600, &options)
	if err != nil && !errors.Is(err, berrors.ErrTimeout) && !isSystemError(err) {
		return fmt.Errorf("%w: %w", err, ErrDamaged)
	}
	if err != nil {
		return err
	}
	return errors.Join(checkPages(path, db.Info().PageSize), db.Close())
}

// isSystemError reports whether err is of a system call, not of a file's content.
func isSystemError(err error) bool {
	var inPath *fs.PathError
	var number syscall.Errno // of a lock or a mapping
	return errors.As(err, &inPath) || errors.As(err, &number)
}

func checkPages(path string, pageSize int) error {
	f, err := durable.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	c := &pageCheck{file: f, size: uint64(pageSize), pages: uint64(info.Size()) / uint64(pageSize)}
	c.used = make([]uint64, c.pages/64+1)
	meta := c.newestMeta()
	if meta == nil {
		return ErrDamaged
	}
	c.end = order.Uint64(meta[metaEnd:])
	if err := c.checkTree(order.Uint64(meta[metaRoot:]), nil, nil); err != nil {
		return err
	}
	return c.checkFreelist(order.Uint64(meta[metaFreelist:]))
}

type pageCheck struct {
	file  *os.File
	size  uint64   // of a page
	pages uint64   // in the file
	end   uint64   // number behind the last page; more than pages if the file was cut
	used  []uint64 // a bit for each of pages
}

// use reports whether a page that is in the file was unused, and marks it as used.
func (c *pageCheck) use(number uint64) bool {
	word, bit := &c.used[number/64], uint64(1)<<(number%64)
	unused := *word&bit == 0
	*word |= bit
	return unused
}

// newestMeta returns the meta page of the last commit, or nil.
func (c *pageCheck) newestMeta() (newest []byte) {
	for i := range int64(metaPages) {
		page := make([]byte, pageHeader+metaSum+8)
		if _, err := c.file.ReadAt(page, i*int64(c.size)); err != nil {
			continue
		}
		meta := page[pageHeader:]
		if !isMeta(meta) {
			continue
		}
		if newest == nil || order.Uint64(meta[metaTx:]) > order.Uint64(newest[metaTx:]) {
			newest = meta
		}
	}
	return newest
}

// metaChecksum returns the checksum that a meta page has.
func metaChecksum(meta []byte) uint64 {
	sum := fnv.New64a()
	sum.Write(meta[:metaSum])
	return sum.Sum64()
}

func isMeta(meta []byte) bool {
	return order.Uint32(meta) == metaMagic && metaChecksum(meta) == order.Uint64(meta[metaSum:])
}

// restoreMeta makes a damaged one of the two meta pages say what the other says, as of the commit
// before. Two that are whole stay as they are.
func restoreMeta(pages []byte) {
	size := len(pages) / metaPages
	for i := range metaPages {
		damaged, whole := pages[i*size:][:size], pages[(1-i)*size:][:size]
		if isMeta(damaged[pageHeader:]) || !isMeta(whole[pageHeader:]) {
			continue
		}
		copy(damaged, whole)
		order.PutUint64(damaged, uint64(i))
		meta := damaged[pageHeader:]
		before := order.Uint64(meta[metaTx:]) - 1
		if before == ^uint64(0) { // page 1 of a new file has the number 1
			before = 1
		}
		order.PutUint64(meta[metaTx:], before)
		order.PutUint64(meta[metaSum:], metaChecksum(meta))
	}
}

// A pageRun is a page and those that belong to it, or the page in a bucket's value.
type pageRun struct {
	check *pageCheck
	at    int64  // in the file
	size  uint64 // of all pages
	head  []byte // what was read of it
}

// bytes returns n bytes of a run from an offset on. It reads no others behind its head.
func (r *pageRun) bytes(from, n uint64) (b []byte, ok bool) {
	switch {
	case from > r.size || n > r.size-from:
		return nil, false
	case from+n <= uint64(len(r.head)):
		return r.head[from : from+n], true
	}
	b = make([]byte, n)
	_, err := r.check.file.ReadAt(b, r.at+int64(from))
	return b, err == nil
}

// readPage reads a page. Nothing else may use it and those that belong to it.
func (c *pageCheck) readPage(number uint64) (*pageRun, error) {
	if number < metaPages || number >= min(c.end, c.pages) {
		return nil, fmt.Errorf("page %d of %d: %w", number, c.end, ErrDamaged)
	}
	r := &pageRun{check: c, at: int64(number * c.size), head: make([]byte, c.size)}
	_, err := c.file.ReadAt(r.head, r.at)
	more := uint64(order.Uint32(r.head[12:]))
	if err != nil || order.Uint64(r.head) != number || more >= min(c.end, c.pages)-number {
		return nil, fmt.Errorf("page %d: %w", number, ErrDamaged)
	}
	r.size = (more + 1) * c.size
	for i := number; i <= number+more; i++ {
		if !c.use(i) {
			return nil, fmt.Errorf("page %d is used twice: %w", i, ErrDamaged)
		}
	}
	return r, nil
}

func (c *pageCheck) checkTree(number uint64, from, to []byte) error {
	page, err := c.readPage(number)
	if err != nil {
		return err
	}
	return c.checkElements(page, from, to)
}

// An element is one of a branch or leaf.
type element struct {
	key             []byte
	child           uint64 // of a branch
	isBucket        bool
	value, valueLen uint64 // offset and size
}

// checkElements checks a branch or leaf whose keys lie in [from, to), and the pages below it.
// nil is no bound.
func (c *pageCheck) checkElements(page *pageRun, from, to []byte) error {
	flags := order.Uint16(page.head[8:])
	isBranch := flags == branchFlag
	if !isBranch && flags != leafFlag {
		return fmt.Errorf("a page that is neither branch nor leaf: %w", ErrDamaged)
	}
	count := int(order.Uint16(page.head[10:]))
	table, ok := page.bytes(pageHeader, uint64(count*elementSize))
	if !ok {
		return fmt.Errorf("%d elements: %w", count, ErrDamaged)
	}
	if isBranch && count == 0 {
		return fmt.Errorf("an empty branch: %w", ErrDamaged)
	}
	elements := make([]element, count)
	for i := range elements {
		e, ok := parseElement(page, table, i, isBranch)
		if !ok || i > 0 && bytes.Compare(elements[i-1].key, e.key) >= 0 ||
			from != nil && bytes.Compare(e.key, from) < 0 || to != nil && bytes.Compare(e.key, to) >= 0 {
			return fmt.Errorf("element %d: %w", i, ErrDamaged)
		}
		elements[i] = e
	}
	for i, e := range elements {
		var err error
		switch {
		case isBranch && i+1 < count:
			err = c.checkTree(e.child, e.key, elements[i+1].key)
		case isBranch:
			err = c.checkTree(e.child, e.key, to)
		case e.isBucket:
			err = c.checkBucket(page, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func parseElement(page *pageRun, table []byte, i int, isBranch bool) (e element, ok bool) {
	var n [4]uint64
	for k := range n {
		n[k] = uint64(order.Uint32(table[i*elementSize+4*k:]))
	}
	if isBranch {
		e.child = order.Uint64(table[i*elementSize+8:])
		n = [4]uint64{0, n[0], n[1], 0}
	}
	key := pageHeader + uint64(i*elementSize) + n[1]
	e.isBucket, e.value, e.valueLen = n[0]&bucketFlag != 0, key+n[2], n[3]
	if n[2] == 0 || n[2] > bolt.MaxKeySize || e.value+e.valueLen > page.size {
		return e, false
	}
	e.key, ok = page.bytes(key, n[2])
	return e, ok
}

func (c *pageCheck) checkBucket(page *pageRun, e element) error {
	header, ok := page.bytes(e.value, bucketHeader)
	if !ok || e.valueLen < bucketHeader {
		return fmt.Errorf("a bucket: %w", ErrDamaged)
	}
	if root := order.Uint64(header); root != 0 {
		return c.checkTree(root, nil, nil)
	}
	value, ok := page.bytes(e.value+bucketHeader, e.valueLen-bucketHeader)
	if !ok || len(value) < pageHeader {
		return fmt.Errorf("a bucket: %w", ErrDamaged)
	}
	return c.checkElements(&pageRun{check: c, size: uint64(len(value)), head: value}, nil, nil)
}

// checkFreelist checks that no free page is used.
func (c *pageCheck) checkFreelist(number uint64) error {
	if number == noFreelist {
		return nil
	}
	page, err := c.readPage(number)
	if err != nil {
		return err
	}
	flags, count, list := order.Uint16(page.head[8:]), uint64(order.Uint16(page.head[10:])), uint64(pageHeader)
	if count == 0xFFFF && flags == freelistFlag { // the first number counts
		count, list = order.Uint64(page.head[list:]), list+8
	}
	numbers, ok := page.bytes(list, 8*min(count, page.size))
	if flags != freelistFlag || !ok {
		return fmt.Errorf("the list of free pages: %w", ErrDamaged)
	}
	for ; len(numbers) > 0; numbers = numbers[8:] {
		free := order.Uint64(numbers)
		if free < metaPages || free >= c.end || free < c.pages && !c.use(free) {
			return fmt.Errorf("page %d is used and free: %w", free, ErrDamaged)
		}
	}
	return nil
}
