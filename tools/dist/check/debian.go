package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// before is the version from which the upgrade is tested. Its package has the same program.
const before = "0.0.9"

// checkDebian installs, upgrades and removes the package in a bare Debian.
func (c *checker) checkDebian() {
	for _, arch := range []string{"amd64", "arm64"} {
		file, err := c.file("perigee_VERSION_" + arch + ".deb")
		var fields string
		if err == nil {
			fields, err = c.run("/", nil, "dpkg-deb", "--field", file)
		}
		if err == nil {
			err = wants(fields, "Architecture: "+arch+"\n", "Version: "+c.version+"\n", "Depends: libc6 (>= 2.")
		}
		c.check("the package for "+arch+" names its architecture and glibc", err)
	}
	file, err := c.file("perigee_VERSION_amd64.deb")
	if err != nil {
		c.check("the package for this machine", err)
		return
	}
	old, err := c.packageBefore()
	if err != nil {
		c.check("the package of the version before", err)
		return
	}
	d := &debian{checker: c, root: filepath.Join(c.temporary, "debian")}
	if err := d.unpack(); err != nil {
		c.check("a bare Debian", err)
		return
	}
	c.check("the version before is installed: user, folder, unit", d.checkInstall(old))
	c.check("systemd accepts the unit, and rates its exposure at most 2.5", d.checkUnit())
	c.check("the engine runs as the package's user, and stores an event", d.checkEngine())
	c.check("an upgrade keeps user, configuration and data", d.checkUpgrade(file))
	c.check("the new version queries the event of the version before", d.checkEngine())
	c.check("a folder of a later format is refused after a downgrade, with the version to use", d.checkLaterFormat())
	c.check("removing keeps configuration, data and user", d.checkRemove())
	c.check("a purge keeps data; without data, nothing stays", d.checkPurge(file))
}

// packageBefore makes the package of a version before.
func (c *checker) packageBefore() (string, error) {
	out := filepath.Join(c.temporary, "before")
	_, err := c.run(c.path("tools/dist"), nil, c.path("tools/go.sh"), "run", ".", "-version", before, "-arch", "amd64", "-out", out)
	return filepath.Join(out, "perigee_"+before+"_amd64.deb"), err
}

// A debian is a bare Debian in a folder.
type debian struct {
	*checker
	root string
	uid  string // of the package's user
}

// unpack makes the Debian. mmdebstrap makes it once, from this machine's own package sources.
func (d *debian) unpack() error {
	kept := d.path(".build/dist/debian.tar")
	if _, err := os.Stat(kept); err != nil {
		script := `release=$(. /etc/os-release && echo "$VERSION_CODENAME")
apt-get indextargets --format '$(ORIGIN) deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | sed -n 's/^Debian //p' | sort -u |
	mmdebstrap --variant=minbase --format=tar "$release" "$1.part" - && mv "$1.part" "$1"`
		if _, err := d.run("/", nil, "sh", "-ec", script, "sh", kept); err != nil {
			return err
		}
	}
	if err := os.Mkdir(d.root, 0o755); err != nil {
		return err
	}
	if _, err := d.run("/", nil, "tar", "xf", kept, "-C", d.root, "--exclude=./dev/*"); err != nil {
		return err
	}
	for _, folder := range []string{"proc", "dev"} {
		if _, err := d.run("/", nil, "mount", "--bind", "/"+folder, filepath.Join(d.root, folder)); err != nil {
			return err
		}
	}
	return nil
}

// in runs a shell command in the Debian.
func (d *debian) in(script string) (string, error) {
	return d.run("/", []string{"DEBIAN_FRONTEND=noninteractive", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}, "chroot", d.root, "/bin/sh", "-euc", script)
}

// expect runs a shell command and looks for texts in what it prints.
func (d *debian) expect(script string, parts ...string) error {
	out, err := d.in(script)
	return errors.Join(err, wants(out, parts...))
}

// install copies a package into the Debian and installs it.
func (d *debian) install(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(d.root, "perigee.deb"), data, 0o644); err != nil {
		return "", err
	}
	return d.in("dpkg --install /perigee.deb; rm /perigee.deb")
}

const aConfiguration = `pipelines:
  events:
    source:
      http: {listen: 127.0.0.1:18471}
    script: function main(event) event.n = event.n * 2 return event end
    sink:
      eventstore: {table: events}
tables:
  events: {lake: {warehouse: /var/lib/perigee/lake}}
http: 127.0.0.1:18472
`

func (d *debian) checkInstall(old string) error {
	out, err := d.install(old)
	if err := errors.Join(err, wants(out, "write /etc/perigee/perigee.yaml")); err != nil {
		return err
	}
	if err := d.expect("perigee version", "perigee "); err != nil { // with nothing but what the package depends on
		return err
	}
	if d.uid, err = d.in("id -u perigee"); err != nil {
		return err
	}
	err = errors.Join(
		d.expect("stat -c '%U:%G %a %n' /var/lib/perigee /etc/perigee", "perigee:perigee 750 /var/lib/perigee", "root:perigee 750 /etc/perigee"),
		d.expect("getent passwd perigee", ":/var/lib/perigee:/usr/sbin/nologin"),
		d.expect("test -L /etc/systemd/system/multi-user.target.wants/perigee.service && echo enabled", "enabled"),
		d.expect("ls /usr/share/doc/perigee", "copyright", "CHANGELOG.md", "examples"),
		d.expect("perigee check /usr/share/doc/perigee/examples/perigee.yaml", "pipeline events"),
		os.WriteFile(filepath.Join(d.root, "etc/perigee/perigee.yaml"), []byte(aConfiguration), 0o640))
	_, chown := d.in("chown root:perigee /etc/perigee/perigee.yaml")
	return errors.Join(err, chown)
}

// checkUnit asks systemd of this machine.
func (d *debian) checkUnit() error {
	const unit = "perigee.service"
	installed := filepath.Join(d.root, "lib/systemd/system", unit)
	// Only the unit: the Debian has no systemd, whose targets it refers to.
	own := filepath.Join(d.temporary, unit)
	text, err := os.ReadFile(installed)
	if err != nil {
		return err
	}
	local := strings.NewReplacer("/usr/bin/perigee", "/bin/true", "User=perigee", "User=root", "Group=perigee", "Group=root").Replace(string(text))
	if err := os.WriteFile(own, []byte(local), 0o644); err != nil {
		return err
	}
	out, err := d.run("/", nil, "systemd-analyze", "verify", "--man=no", own)
	if err == nil && strings.Contains(out, unit) {
		err = errors.New(out)
	}
	_, exposure := d.run("/", nil, "systemd-analyze", "security", "--offline=yes", "--threshold=25", "--no-pager", installed)
	return errors.Join(err, exposure)
}

// checkEngine runs the command of the unit as the package's user, sends an event and queries it.
func (d *debian) checkEngine() error {
	line, err := d.in("sed -n 's/^ExecStart=//p' /lib/systemd/system/perigee.service")
	if err != nil {
		return err
	}
	const data = "/var/lib/perigee/data"
	if err := wants(line, "/usr/bin/perigee run /etc/perigee/perigee.yaml --data "+data); err != nil {
		return err
	}
	engine := start(d.ctx, "chroot", "--userspec=perigee:perigee", d.root, "/bin/sh", "-c", "cd /var/lib/perigee; umask 0077; exec "+strings.TrimSpace(line))
	defer engine.kill()
	return errors.Join(
		engine.serves("http://127.0.0.1:18472"),
		post("http://127.0.0.1:18471/", `{"kind":"a","n":21}`),
		d.expect("setpriv --reuid=perigee --regid=perigee --clear-groups perigee check --connect /etc/perigee/perigee.yaml --data "+data+" 2>&1 || true", "lake   │ perigee-lake    │ ok"),
		d.expect("setpriv --reuid=perigee --regid=perigee --clear-groups perigee status --data "+data, "events"),
		d.expect("setpriv --reuid=perigee --regid=perigee --clear-groups perigee query --data "+data+" --format ndjson 'SELECT max(n) AS n FROM events'", `{"n":42}`),
		d.expect("stat -c '%U %a' "+data, "perigee 700"),
		engine.stop())
}

func (d *debian) checkUpgrade(file string) error {
	out, err := d.install(file)
	if err != nil {
		return err
	}
	return errors.Join(wants(out, "("+d.version+") over ("+before+")"),
		d.expect("id -u perigee", d.uid),
		d.expect("dpkg-query -W perigee", d.version),
		d.expect("cat /etc/perigee/perigee.yaml", aConfiguration),
		d.expect("test -L /etc/systemd/system/multi-user.target.wants/perigee.service && echo enabled", "enabled"),
		d.expect("setpriv --reuid=perigee --regid=perigee --clear-groups perigee query --data /var/lib/perigee/data --format ndjson 'SELECT count(*) AS rows FROM events'", `{"rows":1}`))
}

func (d *debian) checkLaterFormat() error {
	const format = "/var/lib/perigee/data/perigee.format"
	kept, err := d.in("cp " + format + " /format; printf 'format 99\\nsince 9.8.7\\n' >" + format)
	_ = kept
	if err != nil {
		return err
	}
	out, err := d.in("setpriv --reuid=perigee --regid=perigee --clear-groups perigee run /etc/perigee/perigee.yaml --data /var/lib/perigee/data 2>&1 && echo started || true")
	_, restored := d.in("cat /format >" + format + "; rm /format")
	if strings.Contains(out, "started") {
		err = errors.New("the engine started")
	}
	return errors.Join(err, restored, wants(out, "has format 99", "use perigee 9.8.7 or later"))
}

func (d *debian) checkRemove() error {
	_, err := d.in("dpkg --remove perigee")
	return errors.Join(err,
		d.expect("ls -a /etc/perigee /var/lib/perigee", "perigee.yaml", "data"),
		d.expect("id -u perigee", d.uid),
		d.expect("test -e /usr/bin/perigee || test -e /lib/systemd/system/perigee.service || echo gone", "gone"))
}

func (d *debian) checkPurge(file string) error {
	out, err := d.in("dpkg --purge perigee")
	if err != nil {
		return err
	}
	err = errors.Join(wants(out, "/var/lib/perigee has data and stays"), d.expect("ls /var/lib/perigee/data; id perigee", "events", "perigee"))
	if err != nil {
		return err
	}
	if _, err := d.in("rm -r /var/lib/perigee /etc/perigee; userdel perigee"); err != nil {
		return err
	}
	if _, err := d.install(file); err != nil {
		return err
	}
	if _, err := d.in("dpkg --purge perigee"); err != nil {
		return err
	}
	return d.expect("! id perigee 2>&1; find / -xdev -path /proc -prune -o -path /dev -prune -o -name '*perigee*' -print | grep -v '^/var/log/\\|^/var/lib/dpkg/' || echo nothing", "no such user", "nothing")
}

// An engine is a process that runs.
type engine struct {
	command *exec.Cmd
	out     *strings.Builder
	ended   chan error
}

// start starts an engine. Its processes end with it.
func start(ctx context.Context, name string, args ...string) *engine {
	e := &engine{command: exec.CommandContext(ctx, name, args...), out: new(strings.Builder), ended: make(chan error, 1)}
	e.command.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	e.command.Stdout, e.command.Stderr = e.out, e.out
	e.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.command.Start(); err != nil {
		e.ended <- err
		return e
	}
	go func() { e.ended <- e.command.Wait() }()
	return e
}

// serves waits until an engine is live and ready.
func (e *engine) serves(address string) error {
	var err error
	for range 600 {
		select {
		case ended := <-e.ended:
			e.ended <- ended
			return fmt.Errorf("the engine ended: %v\n%s", ended, e.out)
		case <-time.After(100 * time.Millisecond):
		}
		if err = errors.Join(get(address+"/livez"), get(address+"/readyz")); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the engine is not ready after a minute: %w", err)
}

// stop ends an engine as a service manager does. It must drain and exit with 0.
func (e *engine) stop() error {
	if err := e.command.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the engine: %w", err)
	}
	select {
	case err := <-e.ended:
		e.ended <- err
		if err != nil {
			return fmt.Errorf("the engine ended with %w\n%s", err, e.out)
		}
		return nil
	case <-time.After(30 * time.Second):
		return errors.New("the engine has not ended within 30 s after SIGTERM")
	}
}

// kill ends an engine that has not ended.
func (e *engine) kill() {
	if e.command.Process != nil {
		_ = e.command.Process.Kill()
		<-e.ended
	}
}

func get(url string) error {
	response, err := http.Get(url)
	return answered(response, err)
}

// post sends an event.
func post(url, event string) error {
	response, err := http.Post(url, "application/json", strings.NewReader(event))
	return answered(response, err)
}

func answered(response *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if !slices.Contains([]int{200, 202, 204}, response.StatusCode) {
		return fmt.Errorf("%s answers %s: %s", response.Request.URL, response.Status, text)
	}
	return err
}
