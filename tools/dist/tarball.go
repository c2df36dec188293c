package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// An item is a file, folder or link of an archive.
type item struct {
	name string // without a leading slash
	mode fs.FileMode
	from string // the file with the content, or
	data []byte // the content, or
	link string // where a link points to
	user int    // user and group
}

// writeTar writes items sorted by name, all with the same time.
func writeTar(w io.Writer, items []item, at time.Time) error {
	slices.SortStableFunc(items, func(a, b item) int { return strings.Compare(a.name, b.name) })
	t := tar.NewWriter(w)
	for _, i := range items {
		header := &tar.Header{
			Name: i.name, Mode: int64(i.mode.Perm()), Size: int64(len(i.data)), ModTime: at,
			Uid: i.user, Gid: i.user, Format: tar.FormatPAX, Typeflag: tar.TypeReg,
		}
		if i.mode&fs.ModeSticky != 0 {
			header.Mode |= 0o1000
		}
		var content io.Reader = strings.NewReader(string(i.data))
		switch {
		case i.mode.IsDir():
			header.Typeflag, header.Name = tar.TypeDir, i.name+"/"
		case i.link != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, i.link
		case i.from != "":
			file, err := os.Open(i.from)
			if err != nil {
				return err
			}
			defer file.Close()
			info, err := file.Stat()
			if err != nil {
				return err
			}
			header.Size, content = info.Size(), file
		}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if header.Typeflag == tar.TypeReg {
			if _, err := io.Copy(t, content); err != nil {
				return err
			}
		}
	}
	return t.Close()
}

// writeTarball writes a gzipped tar file of the release.
func (r *release) writeTarball(name string, items []item) error {
	file, err := r.create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	zip, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(zip, items, r.time), zip.Close(), file.Close())
}

// tarball packs the programs and what goes with them.
func (r *release) tarball(_ context.Context, b *build) error {
	folder := "perigee-" + r.version + "-linux-" + b.arch
	items := append(b.programs(folder),
		item{name: folder, mode: fs.ModeDir | 0o755},
		item{name: path.Join(folder, "LICENSES"), mode: 0o644, data: b.licences},
		item{name: path.Join(folder, "perigee.bash"), mode: 0o644, data: b.completion},
	)
	for _, from := range []string{"LICENSE", "README.md", "CHANGELOG.md", "packaging/systemd/perigee.service", "packaging/deb/perigee.yaml"} {
		items = append(items, item{name: path.Join(folder, path.Base(from)), mode: 0o644, from: filepath.Join(b.source, from)})
	}
	return r.writeTarball(folder+".tar.gz", items)
}

// chart packs the Helm chart, with the version of the release in place of its own.
func (r *release) chart(source string) error {
	root := filepath.Join(source, "packaging", "helm")
	var items []item
	err := filepath.WalkDir(filepath.Join(root, "perigee"), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if entry.Name() == "Chart.yaml" {
			data = []byte(strings.ReplaceAll(string(data), chartVersion, r.version))
		}
		inside, _ := filepath.Rel(root, name)
		items = append(items, item{name: filepath.ToSlash(inside), mode: 0o644, data: data})
		return err
	})
	if err != nil {
		return err
	}
	return r.writeTarball("perigee-chart-"+r.version+".tgz", items)
}

// chartVersion is the placeholder in Chart.yaml for the version of the release.
const chartVersion = "0.0.0"
