package powercut

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sectorBytes is what a disk writes whole or not at all.
const sectorBytes = 512

// A fate is what becomes of what is not synced when the power is cut.
type fate int

const (
	lost    fate = iota // all of it
	kept                // nothing is lost, as if only the process had ended
	byCall              // calls are lost or kept as a whole
	torn                // sectors, and single names, are lost or kept, each for itself
	ordered             // of names: those that changed first are kept, as a journal does
)

// A cut is a power cut at one moment, with what it does to unsynced data and names.
type cut struct {
	line        int // of the trace after which nothing happened any more
	random      *rand.Rand
	data, names fate
	keep        float64 // how likely one of several is kept
	only        loss    // lost, although the fates keep everything
}

// A loss is one change that is not synced.
type loss struct {
	name   *nameChange
	change *change // what it wrote; the file keeps its size
	file   *inode  // all changes of it
}

func (c *cut) String() string {
	switch l := c.only; {
	case l.name != nil:
		return fmt.Sprintf("line=%d/name=%s@%d", c.line, l.name.name, l.name.begin)
	case l.change != nil:
		return fmt.Sprintf("line=%d/write=%d", c.line, l.change.begin)
	}
	return fmt.Sprintf("line=%d/file", c.line)
}

// losses returns a cut after a line for each single change that is not synced then. It loses
// that change alone.
func (d *disk) losses(line int) (cuts []*cut) {
	unsynced := func(s span) bool { return s.begin <= line && s.durable > line }
	add := func(only loss) {
		cuts = append(cuts, &cut{line: line, data: kept, names: kept, only: only})
	}
	seen := map[*inode]bool{}
	files := slices.Collect(maps.Values(d.root.names))
	for i := range d.names {
		if unsynced(d.names[i].span) {
			add(loss{name: &d.names[i]})
		}
		files = append(files, d.names[i].to)
	}
	for ; len(files) > 0; files = files[1:] {
		f := files[0]
		if f == nil || seen[f] {
			continue
		}
		seen[f] = true
		files = slices.AppendSeq(files, maps.Values(f.names))
		changed := false
		for i := range f.changes {
			if ch := &f.changes[i]; unsynced(ch.span) {
				changed = true
				add(loss{change: ch})
			}
		}
		if changed {
			add(loss{file: f})
		}
	}
	return cuts
}

func newCut(seed uint64, points []int) *cut {
	r := rand.New(rand.NewPCG(seed, 0x706f776572637574))
	c := &cut{random: r, line: -1, keep: r.Float64()}
	if len(points) > 0 {
		c.line = points[r.IntN(len(points))]
	}
	c.data = []fate{lost, kept, byCall, byCall, torn, torn, torn}[r.IntN(7)]
	c.names = []fate{lost, lost, kept, torn, torn, ordered}[r.IntN(6)]
	return c
}

func (c *cut) happened(s span) bool { return s.begin <= c.line }
func (c *cut) durable(s span) bool  { return s.durable <= c.line }
func (c *cut) isKept() bool         { return c.random.Float64() < c.keep }

// said returns the whole lines that the process had begun to write.
func (c *cut) said(all []saying) (lines []string) {
	var text strings.Builder
	for _, s := range all {
		if s.begin <= c.line {
			text.WriteString(s.text)
		}
	}
	whole, _, found := cutLast(text.String(), "\n")
	if !found {
		return nil
	}
	return strings.Split(whole, "\n")
}

func cutLast(text, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(text, separator); i >= 0 {
		return text[:i], text[i+len(separator):], true
	}
	return text, "", false
}

// namesLeft returns what the names in each folder mean after the cut.
func (c *cut) namesLeft(d *disk) map[*inode]map[string]*inode {
	left := map[*inode]map[string]*inode{}
	in := func(dir *inode) map[string]*inode {
		if left[dir] == nil {
			left[dir] = maps.Clone(dir.names)
		}
		return left[dir]
	}
	stopped := false
	for i := range d.names {
		n := &d.names[i]
		if !c.happened(n.span) {
			continue
		}
		if !c.durable(n.span) {
			stopped = stopped || c.names == ordered && !c.isKept()
			if stopped || n == c.only.name || c.names == lost || c.names == torn && !c.isKept() {
				continue
			}
		}
		if n.fromDir != nil {
			delete(in(n.fromDir), n.fromName)
		}
		if n.to == nil {
			delete(in(n.dir), n.name)
		} else {
			in(n.dir)[n.name] = n.to
		}
	}
	return left
}

// contents returns what is in a file after the cut. Each sector has what it had at some
// moment since it was last synced, and so has the size; the moments are not the same.
func (c *cut) contents(f *inode) []byte {
	var changes []*change
	length := int64(len(f.before))
	sizes := []int64{length} // that the file may have
	must := map[int64]int{}  // by sector, the last change that is durable
	data := c.data
	if f == c.only.file {
		data = lost
	}
	for i := range f.changes {
		ch := &f.changes[i]
		if !c.happened(ch.span) {
			continue
		}
		if c.durable(ch.span) {
			sizes = sizes[:0]
		}
		sizes = append(sizes, ch.size)
		length = max(length, ch.size)
		changes = append(changes, ch)
	}
	for i, ch := range changes {
		if c.durable(ch.span) {
			first, end := ch.sectors(length)
			for s := first; s < end; s++ {
				must[s] = i + 1
			}
		}
	}
	content := make([]byte, length)
	copy(content, f.before)
	stopped := map[int64]bool{} // sectors whose later changes are lost
	for i, ch := range changes {
		keepCall := ch != c.only.change && (data == kept || data == byCall && c.isKept())
		first, end := ch.sectors(length)
		for s := first; s < end; s++ {
			if i >= must[s] && !stopped[s] && !keepCall && (data != torn || !c.isKept()) {
				stopped[s] = true
			}
			if !stopped[s] {
				ch.applyTo(content, s)
			}
		}
	}
	return content[:c.pickSize(sizes, data)]
}

func (c *cut) pickSize(sizes []int64, data fate) int64 {
	switch data {
	case lost:
		return sizes[0]
	case kept:
		return sizes[len(sizes)-1]
	}
	return sizes[c.random.IntN(len(sizes))]
}

// sectors returns the sectors that a change changes, of a file that had length bytes at
// most.
func (ch *change) sectors(length int64) (first, end int64) {
	if ch.data == nil {
		return ch.size / sectorBytes, (length + sectorBytes - 1) / sectorBytes
	}
	return ch.offset / sectorBytes, (ch.offset + int64(len(ch.data)) + sectorBytes - 1) / sectorBytes
}

// applyTo applies the change to one sector.
func (ch *change) applyTo(content []byte, sector int64) {
	from := sector * sectorBytes
	to := min(from+sectorBytes, int64(len(content)))
	if ch.data == nil {
		clear(content[min(max(from, ch.size), to):to])
		return
	}
	from, to = max(from, ch.offset), min(to, ch.offset+int64(len(ch.data)))
	copy(content[from:to], ch.data[from-ch.offset:])
}

// A left entry is one name that the disk has after a cut.
type leftEntry struct {
	path    string // below the folder, "." for the folder itself
	isDir   bool
	sameAs  string // path of the file that this is another name of
	content []byte
}

// entries returns what the disk has after the cut, each folder before what is in it.
func (c *cut) entries(d *disk) (all []leftEntry) {
	left := c.namesLeft(d)
	built := map[*inode]string{}
	var add func(path string, what *inode)
	add = func(path string, what *inode) {
		if !what.isDir {
			e := leftEntry{path: path, sameAs: built[what]}
			if e.sameAs == "" {
				built[what] = path
				e.content = c.contents(what)
			}
			all = append(all, e)
			return
		}
		all = append(all, leftEntry{path: path, isDir: true})
		names := left[what]
		if names == nil {
			names = what.names
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			add(filepath.Join(path, name), names[name])
		}
	}
	add(".", d.root)
	return all
}

// writeTo builds a folder of the entries.
func writeTo(folder string, entries []leftEntry) error {
	for _, e := range entries {
		path := filepath.Join(folder, e.path)
		var err error
		switch {
		case e.isDir:
			err = os.MkdirAll(path, 0o700)
		case e.sameAs != "":
			err = os.Link(filepath.Join(folder, e.sameAs), path)
		default:
			err = os.WriteFile(path, e.content, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sumOf returns a checksum of what a check is given.
func sumOf(entries []leftEntry, said []string) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, e := range entries {
		fmt.Fprintf(h, "%q %v %q %d\n", e.path, e.isDir, e.sameAs, len(e.content))
		h.Write(e.content)
	}
	fmt.Fprintf(h, "%q", said)
	h.Sum(sum[:0])
	return sum
}
