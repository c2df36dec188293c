package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// debianPackage makes the .deb.
func (r *release) debianPackage(_ context.Context, b *build) error {
	temporary, err := os.MkdirTemp("", "perigee-deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	copyright, err := os.ReadFile(filepath.Join(b.source, "LICENSE"))
	if err != nil {
		return err
	}
	copyright = append(append(copyright, '\n'), b.licences...)
	script := func(name string) string { return filepath.Join(b.source, "packaging", "deb", name) }
	info := &nfpm.Info{
		Name: "perigee", Arch: b.arch, Platform: "linux", Version: r.version, Section: "database", Priority: "optional",
		Maintainer: "The Perigee authors <perigee@localhost.invalid>", Homepage: "https://github.com/perigeedb/perigee", License: "Apache-2.0",
		Description: "events from queues through scripts into tables, exactly once\n" +
			"Perigee drains a queue of JSON events, runs Lua code on every event, and stores\n" +
			"each result exactly once in SQL tables or in its own event store, which answers SQL.",
		MTime: r.time,
		Overridables: nfpm.Overridables{
			Depends:    []string{"libc6 (>= " + b.glibc + ")", "passwd"},
			Recommends: []string{"ca-certificates", "tzdata"},
			Scripts:    nfpm.Scripts{PostInstall: script("postinst"), PreRemove: script("prerm"), PostRemove: script("postrm")},
			Deb:        nfpm.Deb{Compression: "zstd"},
		},
	}
	add := func(name string, mode fs.FileMode, from string, data []byte) {
		if from == "" {
			from = filepath.Join(temporary, strings.ReplaceAll(name, "/", "_"))
			err = errors.Join(err, os.WriteFile(from, data, 0o600))
		}
		info.Contents = append(info.Contents, &files.Content{Source: from, Destination: name, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.time}})
	}
	for _, p := range b.programs("/usr/bin") {
		add(p.name, p.mode, p.from, nil)
	}
	add("/lib/systemd/system/perigee.service", 0o644, filepath.Join(b.source, "packaging/systemd/perigee.service"), nil)
	add("/usr/share/bash-completion/completions/perigee", 0o644, "", b.completion)
	add("/usr/share/doc/perigee/copyright", 0o644, "", copyright)
	add("/usr/share/doc/perigee/examples/perigee.yaml", 0o644, script("perigee.yaml"), nil)
	for _, name := range []string{"README.md", "CHANGELOG.md"} {
		add("/usr/share/doc/perigee/"+name, 0o644, filepath.Join(b.source, name), nil)
	}
	info.Contents = append(info.Contents, &files.Content{Destination: "/etc/perigee", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o750, MTime: r.time}})
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	file, err := r.create("perigee_" + r.version + "_" + b.arch + ".deb")
	if err != nil {
		return err
	}
	defer file.Close()
	return errors.Join(deb.Default.Package(info, file), file.Close())
}
