package powercut

import (
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A disk is everything that happened to the files below one folder.
type disk struct {
	folder   string
	leaveOut []string // names of files that are not followed
	root     *inode
	opened   map[descriptor]*description
	names    []nameChange
	said     []saying
	points   []int // lines at which something happened, of the last process

	// A copy of the folder as the replayed process left it and the next one found it; empty if
	// there was no other. It tells what calls did that had not returned when the process ended.
	left string
}

// An inode is a file or a folder, whatever its names.
type inode struct {
	isDir   bool
	before  []byte            // contents before the recording
	names   map[string]*inode // in a folder, before the recording
	changes []change          // of a file

	// As the process sees them now.
	size    int64
	entries map[string]*inode
}

// A span says when something happened, in lines of the trace.
type span struct {
	begin, end int
	durable    int // line from which on it survives a power cut
}

// Lines that do not come.
const (
	unsynced = math.MaxInt     // until a sync
	never    = math.MaxInt - 1 // whatever is synced
)

// A change is a write to a file, or a change of its size alone if data is nil.
type change struct {
	span
	offset int64
	data   []byte
	size   int64 // of the file afterwards
}

// A nameChange makes a name in a folder mean another inode, or none, and takes the name
// that the inode had before.
type nameChange struct {
	span
	dir      *inode
	name     string
	to       *inode
	fromDir  *inode // of a rename
	fromName string
}

// A descriptor is one of a process.
type descriptor struct {
	process string
	number  int
}

// A description is what one call of open has opened. Descriptors may share it.
type description struct {
	inode          *inode
	offset         int64
	append, synced bool // O_APPEND, O_SYNC or O_DSYNC
}

// A saying is what the process wrote to its standard output.
type saying struct {
	begin int
	text  string
}

// newDisk begins with what is in the folder before, which is durable.
func newDisk(folder, before string, leaveOut []string) (*disk, error) {
	root, err := readInode(before, leaveOut)
	return &disk{folder: folder, leaveOut: leaveOut, root: root}, err
}

func readInode(path string, leaveOut []string) (*inode, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		dir := newFolder()
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if slices.Contains(leaveOut, e.Name()) {
				continue
			}
			one, err := readInode(filepath.Join(path, e.Name()), leaveOut)
			if err != nil {
				return nil, err
			}
			dir.names[e.Name()], dir.entries[e.Name()] = one, one
		}
		return dir, nil
	}
	if info.Mode()&fs.ModeType != 0 {
		return nil, fmt.Errorf("%s is neither a file nor a folder", path)
	}
	data, err := os.ReadFile(path)
	return &inode{before: data, size: int64(len(data))}, err
}

func newFolder() *inode {
	return &inode{isDir: true, names: map[string]*inode{}, entries: map[string]*inode{}}
}

// inside returns the part of a path below the folder.
func (d *disk) inside(path string) (below string, ok bool) {
	path = filepath.Clean(path)
	if path == d.folder {
		return ".", true
	}
	return strings.CutPrefix(path, d.folder+"/")
}

// find returns the folder that a path is in, the last part of the path, and what it is
// now. The folder is nil if the path is not below the recorded one, or is left out.
func (d *disk) find(path string) (dir *inode, name string, is *inode) {
	below, ok := d.inside(path)
	if !ok || slices.Contains(d.leaveOut, filepath.Base(path)) {
		return nil, "", nil
	}
	if below == "." {
		return nil, "", d.root
	}
	dir = d.root
	parts := strings.Split(below, "/")
	for _, part := range parts[:len(parts)-1] {
		if dir = dir.entries[part]; dir == nil || !dir.isDir {
			return nil, "", nil
		}
	}
	name = parts[len(parts)-1]
	return dir, name, dir.entries[name]
}

// replay makes the trace of a process part of the disk, and returns the line after it.
func (d *disk) replay(trace []byte, first int) (end int, err error) {
	calls, end, err := parseTrace(trace, first)
	if err != nil {
		return 0, err
	}
	findProcesses(calls)
	// A descriptor may be given out again while the call that closes it has not returned.
	effect := func(c call) int {
		if c.name == "close" {
			return c.begin
		}
		return c.end
	}
	slices.SortStableFunc(calls, func(a, b call) int { return effect(a) - effect(b) })
	d.opened, d.points = map[descriptor]*description{}, nil
	for i := range calls {
		if err := d.apply(&calls[i]); err != nil {
			return 0, err
		}
	}
	return end, nil
}

// apply makes a call part of the disk.
func (d *disk) apply(c *call) error {
	if c.name == "close" {
		delete(d.opened, c.descriptor(0))
		return nil
	}
	if c.failed {
		d.applyFailed(c)
		return nil
	}
	if c.cut && strings.HasPrefix(c.name, "open") { // all that it may have made is empty
		return nil
	}
	if c.injected { // it answered that all is well, and was not executed
		return nil
	}
	switch c.name {
	case "open":
		return d.open(c, -1, 0, 1)
	case "openat":
		return d.open(c, 0, 1, 2)
	case "creat":
		c.args = append(c.args[:1], "O_CREAT|O_TRUNC")
		return d.open(c, -1, 0, 1)
	case "dup", "dup2", "dup3":
		d.duplicate(c)
	case "fcntl":
		if strings.HasPrefix(c.arg(1), "F_DUPFD") {
			d.duplicate(c)
		}
	case "read":
		if f := d.opened[c.descriptor(0)]; f != nil {
			f.offset += c.result
		}
	case "lseek":
		if f := d.opened[c.descriptor(0)]; f != nil {
			f.offset = c.result
		}
	case "write", "writev", "pwrite64", "pwritev":
		return d.write(c)
	case "truncate", "ftruncate", "fallocate":
		return d.resize(c)
	case "fsync", "fdatasync":
		if !c.cut {
			d.sync(c)
		}
	case "rename":
		return d.rename(c, -1, 0, -1, 1)
	case "renameat", "renameat2":
		return d.rename(c, 0, 1, 2, 3)
	case "link":
		return d.link(c, -1, 0, -1, 1)
	case "linkat":
		return d.link(c, 0, 1, 2, 3)
	case "unlink", "rmdir":
		return d.remove(c, -1, 0)
	case "unlinkat":
		return d.remove(c, 0, 1)
	case "mkdir":
		return d.makeFolder(c, -1, 0)
	case "mkdirat":
		return d.makeFolder(c, 0, 1)
	case "clone", "clone3", "fork", "vfork": // findProcesses has seen them
	case "pread64": // changes nothing; it is there if the run lets it fail
	case "sync", "syncfs", "sync_file_range": // promise nothing that a store should rely on
	default:
		return d.refuse(c)
	}
	return nil
}

// applyFailed is for a call that returned an error. After a sync that failed, the kernel
// takes the data that it could not write for written: a later sync does not make it
// durable. Names are in the journal, which has them or stops.
func (d *disk) applyFailed(c *call) {
	f := d.opened[c.descriptor(0)]
	if c.name == "fsync" || c.name == "fdatasync" {
		if f != nil && !f.inode.isDir {
			d.syncTo(c, never)
		}
	}
}

// refuse fails for a change of the folder that this package cannot follow.
func (d *disk) refuse(c *call) error {
	for i := range c.args {
		if d.opened[c.descriptor(i)] == nil {
			continue
		}
		shared := strings.Contains(c.arg(3), "MAP_SHARED") && strings.Contains(c.arg(2), "PROT_WRITE")
		if c.name != "mmap" || shared {
			return fmt.Errorf("%s changes a file in a way that is not recorded: %.200s", c.name, strings.Join(c.args, ", "))
		}
	}
	if strings.HasPrefix(c.name, "symlink") {
		return fmt.Errorf("%s is not recorded", c.name)
	}
	return nil
}

// happen records that something happened on the disk.
func (d *disk) happen(c *call) span {
	d.points = append(d.points, c.begin, c.end)
	return span{begin: c.begin, end: c.end, durable: unsynced}
}

func (d *disk) open(c *call, at, path, flags int) error {
	name, err := c.path(at, path)
	if err != nil {
		return nil // relative, and so not below the folder
	}
	dir, base, file := d.find(name)
	how := c.arg(flags)
	if file == nil && dir != nil && strings.Contains(how, "O_CREAT") {
		file = &inode{}
		dir.entries[base] = file
		d.names = append(d.names, nameChange{span: d.happen(c), dir: dir, name: base, to: file})
	}
	if file == nil {
		delete(d.opened, descriptor{c.process, int(c.result)})
		return nil
	}
	f := &description{inode: file, append: strings.Contains(how, "O_APPEND"), synced: isSynced(how)}
	d.opened[descriptor{c.process, int(c.result)}] = f
	if strings.Contains(how, "O_TRUNC") && file.size > 0 {
		d.change(c, f, change{})
	}
	return nil
}

// isSynced is true for flags with which each write is a sync of what it writes. The kernel has
// no O_RSYNC of its own, and O_ASYNC is about signals.
func isSynced(flags string) bool {
	each := strings.Split(flags, "|")
	return slices.Contains(each, "O_SYNC") || slices.Contains(each, "O_DSYNC")
}

func (d *disk) duplicate(c *call) {
	if f := d.opened[c.descriptor(0)]; f != nil {
		d.opened[descriptor{c.process, int(c.result)}] = f
	}
}

// change adds a change to a file. Without data it sets the file's size.
func (d *disk) change(c *call, f *description, now change) {
	now.span = d.happen(c)
	if f.synced && !c.cut {
		now.durable = c.end
	}
	f.inode.size = now.size
	f.inode.changes = append(f.inode.changes, now)
}

func (d *disk) write(c *call) error {
	f := d.opened[c.descriptor(0)]
	if says := c.isFirst && c.descriptor(0).number == 1; f == nil && !says {
		return nil
	}
	data, err := c.written()
	if err != nil {
		return err
	}
	if f == nil {
		d.points = append(d.points, c.begin, c.end)
		d.said = append(d.said, saying{c.begin, string(data)})
		return nil
	}
	positioned := strings.HasPrefix(c.name, "p")
	offset := f.offset
	if positioned {
		if offset, err = c.number(len(c.args) - 1); err != nil {
			return err
		}
	} else if f.append {
		offset = f.inode.size
	}
	end := offset + int64(len(data))
	if !positioned {
		f.offset = end
	}
	if c.cut && d.left != "" {
		path, err := c.openedPath(0)
		if err != nil || !d.isWritten(path, offset, data) {
			return err
		}
	}
	if len(data) > 0 {
		d.change(c, f, change{offset: offset, data: data, size: max(f.inode.size, end)})
	}
	return nil
}

// isWritten reports whether a file that the process left has data at an offset.
func (d *disk) isWritten(path string, offset int64, data []byte) bool {
	below, _ := d.inside(path)
	content, err := os.ReadFile(filepath.Join(d.left, below))
	return err == nil && offset <= int64(len(content)) && bytes.HasPrefix(content[offset:], data)
}

// isUndone reports whether a call that takes a name away was cut before it did.
func (d *disk) isUndone(c *call, path string) bool {
	below, ok := d.inside(path)
	if !c.cut || d.left == "" || !ok {
		return false
	}
	_, err := os.Lstat(filepath.Join(d.left, below))
	return err == nil
}

func (d *disk) resize(c *call) error {
	f := d.opened[c.descriptor(0)]
	if c.name == "truncate" {
		path, err := c.path(-1, 0)
		if err != nil {
			return nil
		}
		if _, _, file := d.find(path); file != nil {
			f = &description{inode: file}
		}
	}
	if f == nil {
		return nil
	}
	if c.name != "fallocate" {
		size, err := c.number(1)
		if err == nil && size != f.inode.size {
			d.change(c, f, change{size: size})
		}
		return err
	}
	offset, err := c.number(2)
	if err != nil {
		return err
	}
	length, err := c.number(3)
	if err != nil {
		return err
	}
	switch mode := c.arg(1); {
	case mode == "0":
		if end := offset + length; end > f.inode.size {
			d.change(c, f, change{size: end})
		}
	case strings.Contains(mode, "PUNCH_HOLE"):
		length = min(length, f.inode.size-offset)
		d.change(c, f, change{offset: offset, data: make([]byte, max(length, 0)), size: f.inode.size})
	case mode != "FALLOC_FL_KEEP_SIZE":
		return fmt.Errorf("fallocate with %s is not recorded", mode)
	}
	return nil
}

// sync makes what happened to a file before the call durable, or the names in a folder.
func (d *disk) sync(c *call) { d.syncTo(c, c.end) }

func (d *disk) syncTo(c *call, durable int) {
	f := d.opened[c.descriptor(0)]
	if f == nil {
		return
	}
	d.points = append(d.points, c.begin, c.end)
	cover := func(s *span) {
		if s.end < c.begin && s.durable == unsynced {
			s.durable = durable
		}
	}
	for i := range f.inode.changes {
		cover(&f.inode.changes[i].span)
	}
	for i := range d.names {
		if d.names[i].dir == f.inode {
			cover(&d.names[i].span)
		}
	}
}

func (d *disk) rename(c *call, fromAt, from, toAt, to int) error {
	oldPath, err := c.path(fromAt, from)
	if err != nil {
		return nil
	}
	newPath, err := c.path(toAt, to)
	if err != nil {
		return nil
	}
	if d.isUndone(c, oldPath) {
		return nil
	}
	fromDir, fromName, file := d.find(oldPath)
	dir, name, replaced := d.find(newPath)
	if fromDir == nil && dir == nil || file != nil && file == replaced {
		return nil
	}
	if fromDir == nil || dir == nil || file == nil {
		return fmt.Errorf("%s of %s to %s: one of the two is not recorded", c.name, oldPath, newPath)
	}
	delete(fromDir.entries, fromName)
	dir.entries[name] = file
	d.names = append(d.names, nameChange{span: d.happen(c), dir: dir, name: name, to: file, fromDir: fromDir, fromName: fromName})
	return nil
}

func (d *disk) link(c *call, fromAt, from, toAt, to int) error {
	oldPath, err := c.path(fromAt, from)
	if err != nil {
		return nil
	}
	newPath, err := c.path(toAt, to)
	if err != nil {
		return nil
	}
	_, _, file := d.find(oldPath)
	dir, name, _ := d.find(newPath)
	if dir == nil {
		return nil
	}
	if file == nil {
		return fmt.Errorf("%s of %s, which is not recorded", c.name, oldPath)
	}
	dir.entries[name] = file
	d.names = append(d.names, nameChange{span: d.happen(c), dir: dir, name: name, to: file})
	return nil
}

func (d *disk) remove(c *call, at, path int) error {
	name, err := c.path(at, path)
	if err != nil {
		return nil
	}
	if d.isUndone(c, name) {
		return nil
	}
	if dir, base, _ := d.find(name); dir != nil {
		delete(dir.entries, base)
		d.names = append(d.names, nameChange{span: d.happen(c), dir: dir, name: base})
	}
	return nil
}

func (d *disk) makeFolder(c *call, at, path int) error {
	name, err := c.path(at, path)
	if err != nil {
		return nil
	}
	if dir, base, _ := d.find(name); dir != nil {
		made := newFolder()
		dir.entries[base] = made
		d.names = append(d.names, nameChange{span: d.happen(c), dir: dir, name: base, to: made})
	}
	return nil
}
