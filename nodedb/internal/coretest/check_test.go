//go:build cgo && lmdb

package coretest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeedb/perigee/internal/testseed"
	"github.com/perigeedb/perigee/internal/testsize"
	"github.com/perigeedb/perigee/nodedb"
)

const damagedNodes = 1500

// damageSource writes a store with all structures that a file can contain: a deep tree, values with
// pages of their own, nodes that expire, free pages.
func damageSource(t *testing.T, folder string) {
	t.Helper()
	store, err := nodedb.Open(folder, nodedb.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 4 {
		err := store.Update(t.Context(), func(tx *nodedb.Tx) error {
			for i := range damagedNodes {
				if err := tx.Set(nodedb.Name("^d").At(i), fmt.Sprint(i, strings.Repeat("x", (i*7919+round)%300))); err != nil {
					return err
				}
				if err := tx.Set(nodedb.Name("^d").At(i).At("name"), i*i); err != nil {
					return err
				}
				if i%100 == 0 {
					if err := tx.Set(nodedb.Name("^big").At(i), strings.Repeat(fmt.Sprint(i, " "), 2000)); err != nil {
						return err
					}
				}
				if i%10 == 0 {
					p := nodedb.Name("^e").At(i)
					if err := tx.Set(p, "expires"); err != nil {
						return err
					}
					if _, err := tx.Expire(p, 1000*time.Hour); err != nil {
						return err
					}
				}
				if i%3 == round {
					if err := tx.Set(nodedb.Name("^gone").At(i), strings.Repeat("g", 200)); err != nil {
						return err
					}
				}
			}
			return tx.Kill(nodedb.Name("^gone").At(round * 10))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Update(t.Context(), func(tx *nodedb.Tx) error { return tx.Kill(nodedb.Name("^gone")) }); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

// readDamaged reads all nodes, one by one and in walks, and returns a hash of what it read.
func readDamaged(store *nodedb.Store) (uint64, error) {
	hash := fnv.New64a()
	session, err := store.Session()
	if err != nil {
		return 0, err
	}
	defer session.Close()
	ctx := context.Background()
	var first error
	note := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	for i := range damagedNodes {
		for _, p := range []nodedb.Path{nodedb.Name("^d").At(i), nodedb.Name("^d").At(i).At("name"), nodedb.Name("^big").At(i), nodedb.Name("^e").At(i)} {
			v, err := session.Get(p)
			note(err)
			fmt.Fprintln(hash, v)
		}
	}
	for child, err := range session.Children(ctx, nodedb.Name("^d"), nodedb.Range{Reverse: true}) {
		note(err)
		fmt.Fprintln(hash, child.Subscript, child.Value)
	}
	for child, err := range session.Children(ctx, nodedb.Name("^e"), nodedb.Range{}) {
		note(err)
		fmt.Fprintln(hash, child.Subscript, child.Value)
	}
	for node, err := range session.Walk(ctx, nodedb.Path{}, nodedb.Range{}) {
		note(err)
		fmt.Fprintln(hash, node.Path.String(), node.Value)
	}
	return hash.Sum64(), first
}

func init() {
	// damaged FOLDER BACKUP HASH: performs every operation on a store. The last line is "done",
	// followed by "silent" if it read wrong data without an error and check found no fault.
	childWork["damaged"] = func(arguments []string) error {
		options := nodedb.Options{NoSync: true}
		read, err := nodedb.Open(arguments[0], nodedb.Options{ReadOnly: true})
		if err == nil {
			_, err = readDamaged(read)
			fmt.Println("read only:", err)
			fmt.Println("restore:", read.Backup(arguments[1]+".restored"))
			read.Close()
		}
		store, err := nodedb.Open(arguments[0], options)
		if err != nil {
			fmt.Println("open:", err)
			if !errors.Is(err, nodedb.ErrCorrupt) && !errors.Is(err, nodedb.ErrDisk) && !errors.Is(err, nodedb.ErrArgument) && !errors.Is(err, nodedb.ErrMemory) {
				return err
			}
			fmt.Println("done")
			return nil
		}
		hash, err := readDamaged(store)
		fmt.Println("read:", err)
		silent := err == nil && fmt.Sprint(hash) != arguments[2]
		stat, err := store.Stat()
		fmt.Println("stat:", stat, err)
		err = store.Dump(context.Background(), io.Discard, nil)
		fmt.Println("dump:", err)
		faults, err := store.Check(func(fault string) { fmt.Println("check:", fault) })
		fmt.Println("check:", faults, err)
		silent = silent && err == nil && faults == 0
		fmt.Println("backup:", store.Backup(arguments[1]))
		for round := range 3 {
			var text strings.Builder
			for i := range damagedNodes / 10 {
				fmt.Fprintf(&text, "^d(%d)=\"loaded %d\"\n^new(%d)=%d\n", i*7, round, i, i)
			}
			_, err = store.Load(context.Background(), strings.NewReader(text.String()), nil)
			fmt.Println("load:", err)
			err = store.Update(context.Background(), func(tx *nodedb.Tx) error {
				return errors.Join(tx.Kill(nodedb.Name("^big")), tx.Kill(nodedb.Name("^e")), tx.Set(nodedb.Name("^big").At(1), strings.Repeat("y", 20_000)))
			})
			fmt.Println("kill:", err)
		}
		fmt.Println("close:", store.Close())
		if silent {
			fmt.Println("silent")
		}
		fmt.Println("done")
		return nil
	}
}

const (
	damagePage = 4096
	leafFlag   = 2 // of a page's head, at byte 10

	// offsets in a meta page
	metaMapSize  = 32
	metaRoot     = 80 // of the free pages
	metaSum      = 88 // 4 bytes
	metaLastPage = 136
	metaNumber   = 144 // of the commit
)

func metaField(file []byte, page, at int) uint64 {
	return binary.NativeEndian.Uint64(file[page*damagePage+at:])
}

func setMeta(file []byte, page, at int, value uint64) {
	binary.NativeEndian.PutUint64(file[page*damagePage+at:], value)
}

// clearMetaSums makes a file one of a version without checksums of meta pages.
func clearMetaSums(file []byte) {
	for page := range 2 {
		clear(file[page*damagePage+metaSum:][:4])
	}
}

// lastMeta returns the meta page of the last commit.
func lastMeta(file []byte) int {
	if metaField(file, 1, metaNumber) > metaField(file, 0, metaNumber) {
		return 1
	}
	return 0
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// overwriteFile replaces the content of a file, which a store may have mapped meanwhile.
func overwriteFile(t *testing.T, path string, content []byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteAt(content, 0)
		err = errors.Join(err, file.Truncate(int64(len(content))), file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// swapPages swaps two pages of a file but keeps the numbers in their headers, so that only the
// order of the keys is wrong.
func swapPages(file []byte, x, y int) {
	a, b := file[x*damagePage:][:damagePage], file[y*damagePage:][:damagePage]
	was := slices.Clone(a)
	copy(a, b)
	copy(b, was)
	binary.NativeEndian.PutUint64(a, uint64(x))
	binary.NativeEndian.PutUint64(b, uint64(y))
}

// damages are ways to damage a file. Each changes the bytes and returns them.
var damages = []struct {
	name string
	do   func(r *rand.Rand, file []byte) []byte
}{
	{"bytes", func(r *rand.Rand, file []byte) []byte {
		for range 1 + r.IntN(64) {
			file[r.IntN(len(file))] = byte(r.Uint32())
		}
		return file
	}},
	{"bits of a page", func(r *rand.Rand, file []byte) []byte {
		page := file[r.IntN(len(file)/damagePage)*damagePage:][:damagePage]
		for range 1 + r.IntN(8) {
			page[r.IntN(len(page))] ^= 1 << r.IntN(8)
		}
		return file
	}},
	{"head of a page", func(r *rand.Rand, file []byte) []byte {
		page := file[r.IntN(len(file)/damagePage)*damagePage:][:damagePage]
		for range 1 + r.IntN(8) {
			page[r.IntN(64)] = byte(r.Uint32())
		}
		return file
	}},
	{"zeros", func(r *rand.Rand, file []byte) []byte {
		clear(file[(2+r.IntN(len(file)/damagePage-2))*damagePage:][:damagePage])
		return file
	}},
	{"noise", func(r *rand.Rand, file []byte) []byte {
		page := file[(2+r.IntN(len(file)/damagePage-2))*damagePage:][:damagePage]
		for i := range page {
			page[i] = byte(r.Uint32())
		}
		return file
	}},
	{"truncated", func(r *rand.Rand, file []byte) []byte { return file[:r.IntN(len(file))] }},
	{"swapped pages", func(r *rand.Rand, file []byte) []byte {
		a := file[(2+r.IntN(len(file)/damagePage-2))*damagePage:][:damagePage]
		b := file[(2+r.IntN(len(file)/damagePage-2))*damagePage:][:damagePage]
		was := slices.Clone(a)
		copy(a, b)
		copy(b, was)
		return file
	}},
	{"swapped pages with their numbers put right", func(r *rand.Rand, file []byte) []byte {
		swapPages(file, 2+r.IntN(len(file)/damagePage-2), 2+r.IntN(len(file)/damagePage-2))
		return file
	}},
	{"near leaves swapped with their numbers put right", func(r *rand.Rand, file []byte) []byte {
		var leaves []int
		for page := 2; page < len(file)/damagePage; page++ {
			if binary.NativeEndian.Uint16(file[page*damagePage+10:]) == leafFlag {
				leaves = append(leaves, page)
			}
		}
		i := r.IntN(len(leaves) - 1)
		swapPages(file, leaves[i], leaves[min(i+1+r.IntN(40), len(leaves)-1)])
		return file
	}},
	{"meta pages", func(r *rand.Rand, file []byte) []byte {
		for range 1 + r.IntN(4) {
			file[r.IntN(2)*damagePage+r.IntN(160)] = byte(r.Uint32())
		}
		return file
	}},
	{"a field of a meta page", func(r *rand.Rand, file []byte) []byte {
		for page := range 2 {
			if r.IntN(3) > 0 {
				at := page*damagePage + 16 + 8*r.IntN(17)
				binary.NativeEndian.PutUint64(file[at:], []uint64{0, 1, 2, uint64(r.IntN(2000)), 1 << 40, ^uint64(0)}[r.IntN(6)])
			}
		}
		return file
	}},
}

// useDamaged runs a process that uses the store in the folder. It returns whether the process
// finished, and its output.
func useDamaged(t *testing.T, folder string, hash uint64) (alive bool, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0])
	child.Env = append(os.Environ(), fmt.Sprintf("%s=damaged %s %s.backup %d", childVariable, folder, folder, hash))
	text, err := child.CombinedOutput()
	return err == nil && strings.HasSuffix(string(text), "done\n"), string(text)
}

// TestDamagedFile damages store files in many ways and performs every operation on them. No process
// may crash or hang, and check must find any wrong data that was read without an error.
func TestDamagedFile(t *testing.T) {
	r := testseed.New(t)
	root := t.TempDir()
	source := filepath.Join(root, "source")
	damageSource(t, source)
	whole := readFile(t, filepath.Join(source, "data.mdb"))
	store, err := nodedb.Open(source, nodedb.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	hash, err := readDamaged(store)
	if err == nil {
		err = store.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if alive, output := useDamaged(t, source, hash); !alive || strings.Contains(output, "silent") || !strings.Contains(output, "check: 0 <nil>") {
		t.Fatalf("the whole file: %s", output)
	}
	count := crashCount(t, "PERIGEE_NODE_DAMAGES", testsize.Count(1, 2)*len(damages))
	crashes, silent := 0, 0
	for i := range count {
		damage := damages[i%len(damages)]
		folder := filepath.Join(root, fmt.Sprint(i))
		if err := os.Mkdir(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "data.mdb"), damage.do(r, slices.Clone(whole)), 0o666); err != nil {
			t.Fatal(err)
		}
		alive, output := useDamaged(t, folder, hash)
		if !alive {
			crashes++
			t.Errorf("damage %d, %s: the process died or hung:\n%.3000s", i, damage.name, output)
		}
		if strings.Contains(output, "silent") {
			silent++
			t.Errorf("damage %d, %s: other nodes were read, and check found nothing:\n%.2000s", i, damage.name, output)
		}
		for _, used := range []string{folder, folder + ".backup", folder + ".backup.restored"} {
			os.RemoveAll(used)
		}
	}
	fmt.Printf("figure nodes_damage_files %d\nfigure nodes_damage_crashes %d\nfigure nodes_damage_silent %d\n", count, crashes, silent)
}

// TestWalkOutOfOrder walks through stores in which two leaves were swapped. A walk that seeks past
// its last node once returned to the same place there for ever.
func TestWalkOutOfOrder(t *testing.T) {
	root := t.TempDir()
	source := filepath.Join(root, "source")
	damageSource(t, source)
	whole := readFile(t, filepath.Join(source, "data.mdb"))
	for _, pages := range [][2]int{{113, 141}, {141, 169}, {100, 128}} {
		file := slices.Clone(whole)
		swapPages(file, pages[0], pages[1])
		folder := filepath.Join(root, fmt.Sprint(pages[0]))
		if err := os.Mkdir(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "data.mdb"), file, 0o666); err != nil {
			t.Fatal(err)
		}
		alive, output := useDamaged(t, folder, 0)
		if !alive || !strings.Contains(output, "read: ") {
			t.Errorf("pages %v: the process died or hung:\n%.3000s", pages, output)
		}
		if !strings.Contains(output, "check: ") || strings.Contains(output, "check: 0 <nil>") {
			t.Errorf("pages %v: check found nothing:\n%.3000s", pages, output)
		}
	}
}

// TestDamagedMetaPage damages a field of one meta page, such as the number of its commit: LMDB would
// then use an older commit, which is a whole store. Opens must fail, and check must find it in a
// store that is open.
func TestDamagedMetaPage(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "store")
	damageSource(t, folder)
	path := filepath.Join(folder, "data.mdb")
	whole := readFile(t, path)
	last := lastMeta(whole)
	for _, test := range []struct {
		name    string
		page    int
		at      int
		add     uint64
		needSum bool // only the checksum shows it
	}{
		{"an older commit has a later number", 1 - last, metaNumber, 130, false},
		{"an older commit has the next number", 1 - last, metaNumber, 2, true},
		{"the last commit has an earlier number", last, metaNumber, ^uint64(3), false},
		{"the last commit has the number before the last two", last, metaNumber, ^uint64(1), true},
		{"the last commit has a later number", last, metaNumber, 2, false},
		{"the last commit has one page less", last, metaLastPage, ^uint64(0), true},
		{"an older commit has other free pages", 1 - last, metaRoot, 1, true},
		{"the map size", last, metaMapSize, 1 << 20, true},
	} {
		for _, sums := range []bool{true, false} {
			if !sums && test.needSum {
				continue
			}
			damaged := slices.Clone(whole)
			if !sums {
				clearMetaSums(damaged)
			}
			overwriteFile(t, path, damaged)
			store, err := nodedb.Open(folder, nodedb.Options{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			setMeta(damaged, test.page, test.at, metaField(damaged, test.page, test.at)+test.add)
			overwriteFile(t, path, damaged)
			if faults, err := store.Check(func(string) {}); err != nil || faults == 0 {
				t.Errorf("%s, checksums %v: check found %d faults, %v", test.name, sums, faults, err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			for _, readOnly := range []bool{true, false} {
				if _, err := nodedb.Open(folder, nodedb.Options{ReadOnly: readOnly}); !errors.Is(err, nodedb.ErrCorrupt) {
					t.Errorf("%s, checksums %v: error %v, want %v", test.name, sums, err, nodedb.ErrCorrupt)
				}
			}
		}
	}
}
