//go:build linux && cgo

package eventstore

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/internal/manifest"
	"github.com/perigeedb/perigee/eventstore/internal/wal"
	"github.com/perigeedb/perigee/internal/durable"
)

// sumsName is the last file of a backup. It lists the checksum of every other file in the
// format of sha256sum. A backup without it is truncated.
const sumsName = "SHA256SUMS"

// restoringSuffix is the suffix of the temporary directory that Restore fills.
const restoringSuffix = ".restoring"

// Backup writes a snapshot of the store to w, as a tar archive for Restore. Appends, queries
// and maintenance continue meanwhile. The disk space of files that maintenance replaces is
// freed only after the backup is complete.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	if s.isClosed() {
		return ErrClosed
	}
	if err := s.Damage(); err != nil {
		return fmt.Errorf("eventstore: back up: %w", err)
	}
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	snapshot := s.snapshot()
	defer snapshot.release()
	b := &backup{ctx: ctx, folder: s.folder, archive: tar.NewWriter(w), time: time.Now(), sums: map[string][]byte{}}
	if err := b.addStore(snapshot); err != nil {
		return fmt.Errorf("eventstore: back up: %w", err)
	}
	return nil
}

// A backup is an archive that is being written.
type backup struct {
	ctx     context.Context
	folder  string
	archive *tar.Writer
	time    time.Time
	sums    map[string][]byte // of the files so far, by name in the archive
}

func (b *backup) addStore(snapshot snapshot) error {
	m := snapshot.manifest
	for _, end := range snapshot.ends {
		if end.Number < m.LogStart {
			continue
		}
		if err := b.addFile(wal.Path(manifest.LogFolder(b.folder), end.Number), end.End); err != nil {
			return err
		}
	}
	sizes := m.Files(b.folder)
	for _, path := range slices.Sorted(maps.Keys(sizes)) {
		if err := b.addFile(path, sizes[path]); err != nil {
			return err
		}
	}
	text, err := m.Encode()
	if err != nil {
		return err
	}
	if err := b.add(manifest.Name, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(b.sums)) {
		fmt.Fprintf(&sums, "%x  %s\n", b.sums[name], name)
	}
	if err := b.add(sumsName, int64(sums.Len()), &sums); err != nil {
		return err
	}
	return b.archive.Close()
}

// addFile adds the first size bytes of a file of the store, or the whole file if size is -1.
func (b *backup) addFile(path string, size int64) error {
	name, err := filepath.Rel(b.folder, path)
	if err != nil {
		return err
	}
	file, err := durable.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if size < 0 {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		size = info.Size()
	}
	return b.add(filepath.ToSlash(name), size, io.LimitReader(file, size))
}

func (b *backup) add(name string, size int64, content io.Reader) error {
	header := &tar.Header{Name: name, Size: size, Mode: 0o600, ModTime: b.time, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	if err := b.archive.WriteHeader(header); err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(b.archive, sum), &contextReader{b.ctx, content})
	if err == nil && n < size {
		err = fmt.Errorf("%s has %d bytes, not %d", name, n, size)
	}
	b.sums[name] = sum.Sum(nil)
	return err
}

// A contextReader fails reads once its context is done.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}

// Restore creates folder, which must not hold a store, from a backup. It is atomic: on an
// error it leaves no store behind. It returns an *event.PermanentError if the backup is
// truncated or damaged, or if the folder is in use.
func Restore(folder string, backup io.Reader) error {
	if err := checkUnused(folder); err != nil {
		return err
	}
	temp := folder + restoringSuffix
	if err := os.RemoveAll(temp); err != nil {
		return fmt.Errorf("eventstore: restore: remove what an earlier attempt left: %w", err)
	}
	err := restoreInto(temp, folder, backup)
	if err != nil {
		_ = os.RemoveAll(temp) // the next attempt removes it
	}
	return err
}

// checkUnused returns an error if folder holds a store.
func checkUnused(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("eventstore: restore: %w", err)
	}
	if len(entries) > 0 {
		return configError("restore into another data folder, or move this one away", "%s holds an event store already", folder)
	}
	return nil
}

func restoreInto(temp, folder string, backup io.Reader) error {
	if err := durable.MkdirAll(temp, 0o700); err != nil {
		return fmt.Errorf("eventstore: restore: %w", err)
	}
	if err := extractBackup(temp, backup); err != nil {
		return fmt.Errorf("eventstore: restore: %w", err)
	}
	if err := checkRestored(temp); err != nil {
		return err
	}
	if err := os.Remove(folder); err != nil && !errors.Is(err, os.ErrNotExist) { // the folder is empty
		return fmt.Errorf("eventstore: restore: %w", err)
	}
	if err := os.Rename(temp, folder); err != nil {
		return fmt.Errorf("eventstore: restore: %w", err)
	}
	if err := durable.SyncDir(filepath.Dir(folder)); err != nil {
		return fmt.Errorf("eventstore: restore: %w", err)
	}
	return nil
}

// checkRestored opens a restored store to verify that a later Open will succeed.
func checkRestored(folder string) error {
	s, err := Open(folder, Options{ReadOnly: true})
	if err != nil {
		return err
	}
	if err := errors.Join(s.Damage(), s.Close()); err != nil {
		return &event.PermanentError{Err: fmt.Errorf("eventstore: restore: %w", err), Hint: "the backup is damaged: use another one"}
	}
	return nil
}

// extractBackup writes the files of a backup into a folder, syncs them, and verifies that
// none is missing or changed.
func extractBackup(folder string, backup io.Reader) error {
	buffered := bufio.NewReaderSize(backup, 1<<20)
	archive := tar.NewReader(buffered)
	sums := map[string]string{}
	for {
		header, err := archive.Next()
		switch {
		case err == io.EOF:
			return backupError("it ends before its last file, " + sumsName)
		case err != nil:
			return backupError(err.Error())
		case !isPlainFile(header) || !isBackupName(header.Name) || sums[header.Name] != "":
			return backupError(fmt.Sprintf("it has %q, which is not a file of an event store", header.Name))
		case header.Name == sumsName:
			err := checkSums(archive, sums)
			// Read to the end, so that a program writing the archive into a pipe
			// can finish.
			_, _ = io.Copy(io.Discard, buffered)
			return err
		}
		sum, err := extractFile(filepath.Join(folder, filepath.FromSlash(header.Name)), archive)
		if err != nil {
			return err
		}
		sums[header.Name] = sum
	}
}

func backupError(what string) error {
	return &event.PermanentError{Err: errors.New("the backup is damaged: " + what), Hint: "use a file that perigee backup has written completely"}
}

// isBackupName reports whether name is allowed in a backup: a clean relative path of a
// store's layout, which cannot lead outside the folder.
func isBackupName(name string) bool {
	if name == manifest.Name || name == sumsName {
		return true
	}
	parts := strings.Split(name, "/")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." || len(part) > nameMax || strings.ContainsAny(part, "\x00\\") {
			return false
		}
	}
	switch parts[0] {
	case "log":
		return len(parts) == 2
	case "tables": // tables/NAME/FILE or tables/NAME/DAY/FILE
		return len(parts) == 3 || len(parts) == 4
	}
	return false
}

const nameMax = 255 // maximum bytes of a file name

// isPlainFile reports whether an archive entry is a regular, non-sparse file. A sparse entry
// could fill the disk from a few bytes.
func isPlainFile(header *tar.Header) bool {
	if header.Typeflag != tar.TypeReg {
		return false
	}
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return false
		}
	}
	return true
}

// extractFile writes a file and returns its checksum.
func extractFile(path string, archive io.Reader) (sum string, err error) {
	if err := durable.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	from := &archiveReader{r: archive}
	_, err = io.Copy(io.MultiWriter(file, hash), from)
	if from.err != nil {
		err = backupError(from.err.Error())
	}
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = durable.SyncDir(filepath.Dir(path))
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), err
}

// An archiveReader marks errors of reading the archive, to tell them from errors of writing
// files.
type archiveReader struct {
	r   io.Reader
	err error
}

func (r *archiveReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// checkSums compares the checksums at the end of a backup with those of the extracted files.
func checkSums(archive io.Reader, sums map[string]string) error {
	lines := bufio.NewScanner(archive)
	for lines.Scan() {
		sum, name, _ := strings.Cut(lines.Text(), "  ")
		if sums[name] != sum {
			return backupError(fmt.Sprintf("the checksum of %q is wrong", name))
		}
		delete(sums, name)
	}
	if err := lines.Err(); err != nil {
		return backupError(err.Error())
	}
	for name := range sums {
		return backupError(fmt.Sprintf("the checksum of %q is missing", name))
	}
	return nil
}
