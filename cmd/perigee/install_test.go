package main

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	publishedModule  = "github.com/perigeedb/perigee"
	publishedVersion = "v0.0.1-test"
)

// userProgram runs a script over a batch, as a program does that embeds Perigee.
const userProgram = `package main

import (
	"context"
	"fmt"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/script"
	"github.com/perigeedb/perigee/script/lua"
)

func main() {
	ctx := context.Background()
	code := script.Code{Name: "greet.lua", Text: []byte("function main(e) e.hello = 'world' return e end")}
	loaded, err := lua.Language().Load(ctx, code, script.Options{Sinks: []script.Sink{{}}})
	if err != nil {
		panic(err)
	}
	defer loaded.Close()
	var batch event.Batch
	batch.Append([]byte("{}"))
	result := event.Result{Outputs: make([]event.Output, 1)}
	if err := loaded.Run(ctx, &batch, &result); err != nil {
		panic(err)
	}
	fmt.Println(lua.Engine(), string(result.Outputs[0].Doc(0)))
}
`

// TestInstalledWithoutMakefile publishes this tree on a module proxy of its own and
// installs the command and builds a program that uses the library, each in an empty
// GOPATH and without a build tag, as somebody does who has never seen the Makefile. Installing the
// command compiles all that it links once more, for minutes: make test-install does that.
func TestInstalledWithoutMakefile(t *testing.T) {
	if testing.Short() || os.Getenv("CGO_ENABLED") == "0" {
		t.Skip("builds the command, with cgo")
	}
	proxy := t.TempDir()
	publish(t, proxy)
	user := newGoUser(t, proxy)

	t.Run("go install", func(t *testing.T) {
		if os.Getenv("PERIGEE_GO_INSTALL") == "" {
			t.Skip("compiles for minutes; make test-install does it")
		}
		user.run(t, "", "install", publishedModule+"/cmd/perigee@"+publishedVersion)
		perigee := filepath.Join(user.path, "bin", "perigee")
		version := output(t, exec.Command(perigee, "version"))
		for _, want := range []string{"module " + publishedVersion, "gopher-lua v", "20 to 30 times slower", "languages: lua"} {
			if !strings.Contains(version, want) {
				t.Errorf("version does not say %q:\n%s", want, version)
			}
		}
		eval := exec.Command(perigee, "eval", "-e", "event.n = event.n + 1 return event")
		eval.Stdin = strings.NewReader(`{"n":1}` + "\n")
		if got := output(t, eval); got != `{"n":2}`+"\n" {
			t.Errorf("eval prints %q", got)
		}
	})
	t.Run("go get", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(userProgram), 0o644); err != nil {
			t.Fatal(err)
		}
		user.run(t, dir, "mod", "init", "example.com/uses")
		user.run(t, dir, "get", publishedModule+"@"+publishedVersion)
		user.run(t, dir, "build", "-o", "uses", ".")
		got := output(t, exec.Command(filepath.Join(dir, "uses")))
		if !strings.HasPrefix(got, "gopher-lua v") || !strings.HasSuffix(got, ` {"hello":"world"}`+"\n") {
			t.Errorf("the program prints %q", got)
		}
	})
}

// publish writes this tree as a version of its module into the folder of a proxy.
func publish(t *testing.T, proxy string) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(proxy, filepath.FromSlash(publishedModule), "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list":                     publishedVersion + "\n",
		publishedVersion + ".info": fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, publishedVersion),
		publishedVersion + ".mod":  string(mod),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := os.Create(filepath.Join(folder, publishedVersion+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(archive)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != root && !isPublished(path, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := w.Create(publishedModule + "@" + publishedVersion + "/" + filepath.ToSlash(name))
		if err != nil {
			return err
		}
		_, err = file.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
}

// isPublished tells whether a folder belongs to the module: nested modules do not, nor
// what builds and servers leave behind.
func isPublished(path, name string) bool {
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err != nil && !strings.HasPrefix(name, ".") && name != "bin"
}

// A goUser runs the go command in a separate GOPATH.
type goUser struct {
	path string
	env  []string
}

// newGoUser makes a user to whom proxy comes first and this machine's module cache
// second. The build cache is shared, so that only what is new is compiled.
func newGoUser(t *testing.T, proxy string) *goUser {
	cache := strings.TrimSpace(output(t, exec.Command("go", "env", "GOMODCACHE")))
	others := strings.TrimSpace(output(t, exec.Command("go", "env", "GOPROXY")))
	u := &goUser{path: t.TempDir()}
	u.env = append(os.Environ(),
		"GOPATH="+u.path, "GOMODCACHE="+filepath.Join(u.path, "mod"), "GOBIN=", "GOWORK=off", "GOSUMDB=off",
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download")+","+others,
		// Without paths in the objects the build cache knows them in the next run. Nobody debugs
		// the programs: a third of the linking would go into what only a debugger reads.
		"GOFLAGS=-mod=mod -modcacherw -trimpath -buildvcs=false -ldflags=-w")
	return u
}

func (u *goUser) run(t *testing.T, dir string, args ...string) {
	t.Helper()
	command := exec.Command("go", args...)
	command.Dir, command.Env = dir, u.env
	if dir == "" {
		command.Dir = u.path
	}
	output(t, command)
}

func output(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	var errors strings.Builder
	command.Stderr = &errors
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, errors.String())
	}
	return string(out)
}
