package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	registry "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The image runs as a user that owns nothing in it but the data folder.
const (
	imageUser = 65532
	dataMount = "var/lib/perigee"
)

// basePackages are the packages of Debian that the image has files of.
var basePackages = []string{"libc6", "tzdata", "ca-certificates"}

// image makes an archive that has the image in the layout of OCI, and the list of "docker load".
func (r *release) image(ctx context.Context, b *build) error {
	base, err := r.base(ctx, b.arch)
	if err != nil {
		return err
	}
	programs := append(b.programs("usr/bin"),
		item{name: "usr/share/doc/perigee/LICENSE", mode: 0o644, from: filepath.Join(b.source, "LICENSE")},
		item{name: "usr/share/doc/perigee/LICENSES", mode: 0o644, data: b.licences},
	)
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := registry.Time{Time: r.time}
	for _, l := range []struct {
		what  string
		items []item
	}{{"files of Debian: " + strings.Join(basePackages, ", "), base}, {"perigee " + r.version, programs}} {
		var data bytes.Buffer
		if err := writeTar(&data, l.items, r.time); err != nil {
			return err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return err
		}
		if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: registry.History{Created: created, CreatedBy: l.what}}); err != nil {
			return err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = b.arch, "linux", created
	config.Config = registry.Config{
		User:         fmt.Sprintf("%d:%[1]d", imageUser),
		Entrypoint:   []string{"/usr/bin/perigee"},
		Cmd:          []string{"run", "/etc/perigee/perigee.yaml", "--data", "/" + dataMount + "/data", "--log-format", "json"},
		Env:          []string{"PATH=/usr/bin", "SSL_CERT_FILE=/" + certificates},
		WorkingDir:   "/" + dataMount,
		Volumes:      map[string]struct{}{"/" + dataMount: {}},
		ExposedPorts: map[string]struct{}{"4290/tcp": {}},
		StopSignal:   "SIGTERM",
		Healthcheck: &registry.HealthConfig{
			Test:     []string{"CMD", "/usr/bin/perigee", "status", "--live", "--data", "/" + dataMount + "/data"},
			Interval: 30 * time.Second, Timeout: 5 * time.Second, StartPeriod: 30 * time.Second, Retries: 3,
		},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "perigee",
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.source":   "https://github.com/perigeedb/perigee",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	return r.imageArchive("perigee-"+r.version+"-linux-"+b.arch+".oci.tar", image)
}

// imageArchive writes an archive with one image.
func (r *release) imageArchive(name string, image registry.Image) error {
	folder, err := os.MkdirTemp("", "perigee-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	l, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	tag := "perigee:" + r.version
	err = l.AppendImage(image, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "docker.io/library/" + tag,
	}))
	if err != nil {
		return err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return err
	}
	blob := func(h registry.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
	var layers []string
	for _, layer := range manifest.Layers {
		layers = append(layers, fmt.Sprintf("%q", blob(layer.Digest)))
	}
	items := []item{{name: "manifest.json", mode: 0o644, data: fmt.Appendf(nil, `[{"Config":%q,"RepoTags":[%q],"Layers":[%s]}]`+"\n", blob(manifest.Config.Digest), tag, strings.Join(layers, ","))}}
	err = filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		inside, err := filepath.Rel(folder, file)
		items = append(items, item{name: filepath.ToSlash(inside), mode: 0o644, from: file})
		return err
	})
	if err != nil {
		return err
	}
	file, err := r.create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return errors.Join(writeTar(file, items, r.time), file.Close())
}

const certificates = "etc/ssl/certs/ca-certificates.crt"

// base returns what the image has besides the program: the C library, time zones, certificates, and
// the names of users.
func (r *release) base(ctx context.Context, arch string) ([]item, error) {
	packages, err := r.fetchBase(ctx, arch)
	if err != nil {
		return nil, err
	}
	user := fmt.Sprintf("perigee:x:%d:%[1]d::/%s:/sbin/nologin\n", imageUser, dataMount)
	items := []item{
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0::/:/sbin/nologin\n" + user)},
		{name: "etc/group", mode: 0o644, data: fmt.Appendf(nil, "root:x:0:\nperigee:x:%d:\n", imageUser)},
		{name: "etc/nsswitch.conf", mode: 0o644, data: []byte("hosts: files dns\n")},
		{name: "etc/perigee", mode: fs.ModeDir | 0o755},
		{name: dataMount, mode: fs.ModeDir | 0o750, user: imageUser},
		{name: "tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777},
	}
	var trusted []item
	for _, name := range packages {
		content, err := packageFiles(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, i := range content {
			switch {
			case strings.HasPrefix(i.name, "usr/share/ca-certificates/"):
				trusted = append(trusted, i)
			case strings.Contains(i.name, "/gconv/"), strings.HasPrefix(i.name, "usr/share/doc/") && path.Base(i.name) != "copyright",
				strings.HasPrefix(i.name, "usr/sbin/"), strings.HasPrefix(i.name, "usr/share/lintian/"), strings.HasPrefix(i.name, "usr/share/man/"):
			default:
				items = append(items, i)
			}
		}
	}
	slices.SortFunc(trusted, func(a, b item) int { return strings.Compare(a.name, b.name) })
	var all []byte
	for _, i := range trusted {
		all = append(all, i.data...)
	}
	if len(all) == 0 {
		return nil, errors.New("no certificates in the packages of the base")
	}
	return append(items, item{name: certificates, mode: 0o644, data: all}), nil
}

// packageFiles returns the files and links of a package of Debian.
func packageFiles(ctx context.Context, name string) ([]item, error) {
	command := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", name)
	data, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	var items []item
	for t := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := t.Next()
		if err == io.EOF {
			return items, nil
		}
		if err != nil {
			return nil, fmt.Errorf("unpack %s: %w", name, err)
		}
		i := item{name: strings.TrimPrefix(header.Name, "./"), mode: header.FileInfo().Mode().Perm(), link: header.Linkname}
		switch header.Typeflag {
		case tar.TypeReg:
			if i.data, err = io.ReadAll(t); err != nil {
				return nil, err
			}
		case tar.TypeLink: // of a file before
			at := slices.IndexFunc(items, func(other item) bool { return "./"+other.name == header.Linkname })
			if at < 0 {
				return nil, fmt.Errorf("unpack %s: %s is a link to an unknown file", name, header.Name)
			}
			i.link, i.data = "", items[at].data
		case tar.TypeSymlink:
		default:
			continue
		}
		items = append(items, i)
	}
}

// fetchBase returns the files of the base's packages. They are downloaded once, as apt knows them,
// without a change to this machine's own lists.
func (r *release) fetchBase(ctx context.Context, arch string) ([]string, error) {
	folder := filepath.Join(r.cache, arch)
	found, _ := filepath.Glob(filepath.Join(folder, "*.deb"))
	if len(found) == len(basePackages) {
		return found, nil
	}
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(filepath.Join(folder, "apt", "cache", "archives", "partial"), 0o755), os.MkdirAll(filepath.Join(folder, "apt", "lists", "partial"), 0o755)); err != nil {
		return nil, err
	}
	state := filepath.Join(folder, "apt")
	if err := os.WriteFile(filepath.Join(state, "status"), nil, 0o644); err != nil {
		return nil, err
	}
	options := []string{"-qq"}
	for _, o := range []string{
		"APT::Architecture=" + arch, "APT::Architectures=" + arch, "APT::Sandbox::User=root",
		"Dir::State=" + state, "Dir::State::status=" + filepath.Join(state, "status"), "Dir::Cache=" + filepath.Join(state, "cache"),
	} {
		options = append(options, "-o", o)
	}
	if err := run(ctx, folder, nil, "apt-get", append(options, "update")...); err != nil {
		return nil, err
	}
	if err := run(ctx, folder, nil, "apt-get", append(append(options, "download"), basePackages...)...); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(state); err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(folder, "*.deb"))
}
