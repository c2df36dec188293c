package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	registry "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// checkImages unpacks the images, and runs that for this machine.
func (c *checker) checkImages() {
	for _, arch := range []string{"amd64", "arm64"} {
		config, root, err := c.unpackImage(arch)
		if err == nil {
			err = checkConfig(config, arch)
		}
		c.check("the image for "+arch+" has the layout of OCI, a user that is not root, and a health check", err)
		if err != nil {
			continue
		}
		if arch == "arm64" {
			c.check("the program of the image for arm64 runs on the image's libraries", c.checkProgram([]string{"qemu-aarch64", "-L", root, filepath.Join(root, "usr/bin/perigee")}, arch))
			continue
		}
		c.check("the image runs without capabilities on a root that is read-only: events, health check, drain", c.runImage(config, root))
	}
}

// unpackImage unpacks an image as a container engine would, and checks each digest.
func (c *checker) unpackImage(arch string) (config *registry.ConfigFile, root string, err error) {
	file, err := c.file("perigee-VERSION-linux-" + arch + ".oci.tar")
	if err != nil {
		return nil, "", err
	}
	archive := filepath.Join(c.temporary, "oci-"+arch)
	root = filepath.Join(c.temporary, "image-"+arch)
	if err := errors.Join(os.Mkdir(archive, 0o755), os.Mkdir(root, 0o755)); err != nil {
		return nil, "", err
	}
	if _, err := c.run(archive, nil, "tar", "xf", file); err != nil {
		return nil, "", err
	}
	index, err := layout.ImageIndexFromPath(archive)
	if err != nil {
		return nil, "", err
	}
	if err := validate.Index(index); err != nil {
		return nil, "", err
	}
	manifests, err := index.IndexManifest()
	if err != nil || len(manifests.Manifests) != 1 {
		return nil, "", errors.Join(fmt.Errorf("the index has %d images, not one", len(manifests.Manifests)), err)
	}
	image, err := index.Image(manifests.Manifests[0].Digest)
	if err != nil {
		return nil, "", err
	}
	if config, err = image.ConfigFile(); err != nil {
		return nil, "", err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, "", err
	}
	for _, layer := range manifest.Layers {
		if _, err := c.run(root, nil, "tar", "xzf", filepath.Join(archive, "blobs", layer.Digest.Algorithm, layer.Digest.Hex), "--numeric-owner", "--same-owner"); err != nil {
			return nil, "", err
		}
	}
	// What "docker load" of versions before 25 reads.
	var list []struct {
		Config string
		Layers []string
	}
	text, err := os.ReadFile(filepath.Join(archive, "manifest.json"))
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil || len(list) != 1 {
		return nil, "", errors.Join(errors.New("manifest.json does not list one image"), err)
	}
	for _, name := range append(list[0].Layers, list[0].Config) {
		if _, err := os.Stat(filepath.Join(archive, name)); err != nil {
			return nil, "", err
		}
	}
	return config, root, nil
}

func checkConfig(config *registry.ConfigFile, arch string) error {
	user, _, _ := strings.Cut(config.Config.User, ":")
	id, err := strconv.Atoi(user)
	switch {
	case config.Architecture != arch || config.OS != "linux":
		return fmt.Errorf("it is for %s/%s", config.OS, config.Architecture)
	case err != nil || id == 0:
		return fmt.Errorf("its user is %q, not a number other than 0", config.Config.User)
	case config.Config.Healthcheck == nil || len(config.Config.Healthcheck.Test) < 2:
		return errors.New("it has no health check")
	case len(config.Config.Volumes) != 1:
		return fmt.Errorf("its volumes are %v", config.Config.Volumes)
	}
	return nil
}

// runImage runs an image's command as its user, without capabilities. The root is read-only, with
// the volume and the folders that every container has mounted on it.
func (c *checker) runImage(config *registry.ConfigFile, root string) error {
	volume := filepath.Join(c.temporary, "volume")
	mounts := [][]string{
		{"--bind", root, root}, {"-o", "remount,bind,ro", root}, {"--bind", volume, filepath.Join(root, "var/lib/perigee")},
		{"--bind", "/proc", filepath.Join(root, "proc")}, {"--bind", "/dev", filepath.Join(root, "dev")},
	}
	user, group, _ := strings.Cut(config.Config.User, ":")
	uid, _ := strconv.Atoi(user)
	err := errors.Join(os.Mkdir(volume, 0o750), os.Chown(volume, uid, uid), os.Mkdir(filepath.Join(root, "proc"), 0o755), os.Mkdir(filepath.Join(root, "dev"), 0o755),
		os.WriteFile(filepath.Join(root, "etc/perigee/perigee.yaml"), []byte(aConfiguration), 0o644))
	if err != nil {
		return err
	}
	for _, args := range mounts {
		if _, err := c.run("/", nil, "mount", args...); err != nil {
			return err
		}
	}
	contained := func(args ...string) []string {
		all := []string{"-i"}
		all = append(all, config.Config.Env...)
		all = append(all, "/usr/bin/setpriv", "--inh-caps=-all", "--bounding-set=-all,+sys_chroot,+setuid,+setgid", "--no-new-privs", "/usr/sbin/chroot", "--groups=", "--userspec="+user+":"+group, root)
		return append(all, args...)
	}
	health := func() error {
		_, err := c.run("/", nil, "env", contained(config.Config.Healthcheck.Test[1:]...)...)
		return err
	}
	committer := func() error {
		out, err := c.run("/", nil, "env", contained("/usr/bin/perigee-lake", "version")...)
		return errors.Join(err, wants(out, "perigee-lake "+c.version))
	}
	query := func() (string, error) {
		return c.run("/", nil, "env", contained("/usr/bin/perigee", "query", "--data", "/var/lib/perigee/data", "--format", "ndjson", "SELECT max(n) AS n FROM events")...)
	}
	engine := start(c.ctx, "env", contained(append(config.Config.Entrypoint, config.Config.Cmd...)...)...)
	defer engine.kill()
	if err := engine.serves("http://127.0.0.1:18472"); err != nil {
		return err
	}
	if err := errors.Join(post("http://127.0.0.1:18471/", `{"kind":"a","n":21}`), health(), committer()); err != nil {
		return err
	}
	for field, want := range map[string]string{"NoNewPrivs": "1", "CapEff": "0000000000000000", "CapPrm": "0000000000000000", "Uid": user} {
		out, err := c.run("/", nil, "grep", "^"+field+":", fmt.Sprintf("/proc/%d/status", engine.command.Process.Pid))
		if err := errors.Join(err, wants(out, "\t"+want)); err != nil {
			return fmt.Errorf("%s of the engine: %w", field, err)
		}
	}
	answer, err := query()
	if err := errors.Join(err, wants(answer, `{"n":42}`), engine.stop()); err != nil {
		return err
	}
	if health() == nil {
		return errors.New("the health check succeeds without an engine")
	}
	answer, err = query() // after a drain
	return errors.Join(err, wants(answer, `{"n":42}`))
}
