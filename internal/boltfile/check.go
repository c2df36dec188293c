package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// ErrDamaged says that the pages of a file do not belong together, as after a power cut on a
// disk that says it has synced what it has not. bbolt would panic on them, or write over others.
var ErrDamaged = errors.New("the file is damaged; restore it from a copy, or move it away and lose what it holds")

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

// check returns ErrDamaged unless the file's pages belong together: each page that the newest
// meta page leads to is there, is used once and is not free, and its keys are in order and in
// the range of the page above it. Values are not looked at. No other process changes the file
// meanwhile.
func check(path string, options bolt.Options) error {
	if info, err := os.Stat(path); err == nil && info.Size() == 0 { // bbolt would begin a new one
		return fmt.Errorf("it is empty: %w", ErrDamaged)
	}
	options.ReadOnly = true // it looks at nothing but the meta pages
	db, err := bolt.Open(path, 0o600, &options)
	if errors.Is(err, berrors.ErrInvalid) || errors.Is(err, berrors.ErrVersionMismatch) || errors.Is(err, berrors.ErrChecksum) {
		return fmt.Errorf("%w: %w", err, ErrDamaged)
	}
	if err != nil {
		return err
	}
	return errors.Join(checkPages(path, db.Info().PageSize), db.Close())
}

func checkPages(path string, pageSize int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	c := &pageCheck{file: f, size: pageSize, used: map[uint64]bool{}}
	meta := c.newestMeta()
	if meta == nil {
		return ErrDamaged
	}
	c.end = binary.LittleEndian.Uint64(meta[metaEnd:])
	if err := c.checkTree(binary.LittleEndian.Uint64(meta[metaRoot:]), nil, nil); err != nil {
		return err
	}
	return c.checkFreelist(binary.LittleEndian.Uint64(meta[metaFreelist:]))
}

type pageCheck struct {
	file *os.File
	size int
	end  uint64
	used map[uint64]bool
}

// newestMeta returns the meta page of the last commit, or nil.
func (c *pageCheck) newestMeta() (newest []byte) {
	for i := range int64(metaPages) {
		page := make([]byte, pageHeader+metaSum+8)
		if _, err := c.file.ReadAt(page, i*int64(c.size)); err != nil {
			continue
		}
		meta := page[pageHeader:]
		sum := fnv.New64a()
		sum.Write(meta[:metaSum])
		if binary.LittleEndian.Uint32(meta) != metaMagic || sum.Sum64() != binary.LittleEndian.Uint64(meta[metaSum:]) {
			continue
		}
		if newest == nil || binary.LittleEndian.Uint64(meta[metaTx:]) > binary.LittleEndian.Uint64(newest[metaTx:]) {
			newest = meta
		}
	}
	return newest
}

// readPage returns a page and those that belong to it, which nothing else may use.
func (c *pageCheck) readPage(number uint64) ([]byte, error) {
	var header [pageHeader]byte
	if number < metaPages || number >= c.end {
		return nil, fmt.Errorf("page %d of %d: %w", number, c.end, ErrDamaged)
	}
	_, err := c.file.ReadAt(header[:], int64(number)*int64(c.size))
	more := uint64(binary.LittleEndian.Uint32(header[12:]))
	if err != nil || binary.LittleEndian.Uint64(header[:]) != number || more >= c.end-number {
		return nil, fmt.Errorf("page %d: %w", number, ErrDamaged)
	}
	for i := number; i <= number+more; i++ {
		if c.used[i] {
			return nil, fmt.Errorf("page %d is used twice: %w", i, ErrDamaged)
		}
		c.used[i] = true
	}
	page := make([]byte, (more+1)*uint64(c.size))
	if _, err := c.file.ReadAt(page, int64(number)*int64(c.size)); err != nil {
		return nil, fmt.Errorf("page %d: %w", number, ErrDamaged)
	}
	return page, nil
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
	key, value []byte
	child      uint64 // of a branch
	isBucket   bool
}

// checkElements checks a branch or leaf whose keys lie in [from, to), and the pages below it.
// nil is no bound.
func (c *pageCheck) checkElements(page, from, to []byte) error {
	isBranch := binary.LittleEndian.Uint16(page[8:]) == branchFlag
	if !isBranch && binary.LittleEndian.Uint16(page[8:]) != leafFlag {
		return fmt.Errorf("a page that is neither branch nor leaf: %w", ErrDamaged)
	}
	count := int(binary.LittleEndian.Uint16(page[10:]))
	if isBranch && count == 0 {
		return fmt.Errorf("an empty branch: %w", ErrDamaged)
	}
	elements := make([]element, count)
	for i := range elements {
		e, ok := parseElement(page, i, isBranch)
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
			err = c.checkBucket(e.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func parseElement(page []byte, i int, isBranch bool) (e element, ok bool) {
	begin := uint64(pageHeader + i*elementSize)
	if begin+elementSize > uint64(len(page)) {
		return e, false
	}
	var n [4]uint64
	for k := range n {
		n[k] = uint64(binary.LittleEndian.Uint32(page[begin+uint64(4*k):]))
	}
	if isBranch {
		e.child = n[2] | n[3]<<32
		n = [4]uint64{0, n[0], n[1], 0}
	}
	key := begin + n[1]
	if n[2] == 0 || key+n[2]+n[3] > uint64(len(page)) {
		return e, false
	}
	e.key, e.value, e.isBucket = page[key:key+n[2]], page[key+n[2]:key+n[2]+n[3]], n[0]&bucketFlag != 0
	return e, true
}

func (c *pageCheck) checkBucket(value []byte) error {
	if len(value) < bucketHeader {
		return fmt.Errorf("a bucket: %w", ErrDamaged)
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return c.checkTree(root, nil, nil)
	}
	if len(value) < bucketHeader+pageHeader {
		return fmt.Errorf("a bucket: %w", ErrDamaged)
	}
	return c.checkElements(value[bucketHeader:], nil, nil)
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
	count, list := int(binary.LittleEndian.Uint16(page[10:])), page[pageHeader:]
	if count == 0xFFFF && binary.LittleEndian.Uint16(page[8:]) == freelistFlag { // the first number counts
		count, list = int(binary.LittleEndian.Uint64(list)), list[8:]
	}
	if binary.LittleEndian.Uint16(page[8:]) != freelistFlag || count < 0 || count > len(list)/8 {
		return fmt.Errorf("the list of free pages: %w", ErrDamaged)
	}
	for i := range count {
		free := binary.LittleEndian.Uint64(list[8*i:])
		if free < metaPages || free >= c.end || c.used[free] {
			return fmt.Errorf("page %d is used and free: %w", free, ErrDamaged)
		}
		c.used[free] = true
	}
	return nil
}
