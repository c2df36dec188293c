// Package loader reads the text of scripts and configurations: inline, from a file, or
// from a file://, http(s):// or s3:// URL.
//
// It connects only to hosts on the allow list, also after a redirect. It connects to an
// address of a private network or of this machine only if the list contains that
// address, whatever name resolves to it. The size of texts and the time to fetch them
// are bounded.
//
// A Loader is safe for concurrent use.
package loader

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/perigeedb/perigee/internal/s3client"
	"github.com/perigeedb/perigee/script"
)

const (
	textMax   = 4 << 20     // bytes of one text
	pluginMax = 256 << 20   // bytes of a Go plugin
	fetchTime = time.Minute // for one text from another host
)

// ErrUnchanged means that the text of a tag is still current.
var ErrUnchanged = errors.New("the text has not changed")

// Config configures a Loader.
type Config struct {
	Allow []string // hosts, as ParseAllow reads them
	S3    S3
	// Lookup is os.LookupEnv, for what S3 leaves empty.
	Lookup func(string) (string, bool)
}

// A Loader fetches texts.
type Loader struct {
	allow  *Allow
	client *http.Client
	s3     *s3client.Client
}

// New returns a loader. It does not connect.
func New(c Config) (*Loader, error) {
	allow, err := ParseAllow(c.Allow)
	if err != nil {
		return nil, err
	}
	client := newClient(allow)
	buckets, err := newBucketClient(c.S3, c.Lookup, client.Transport)
	if err != nil {
		return nil, err
	}
	return &Loader{allow: allow, client: client, s3: buckets}, nil
}

// Close closes idle connections.
func (l *Loader) Close() { l.client.CloseIdleConnections() }

// A Text is the content of an origin.
type Text struct {
	Bytes []byte // nil for a Go plugin on this machine: it is opened where it lies
	Tag   string // names the version at its origin, to ask cheaply for a newer one; may be empty
}

// Load reads the text of an origin. Given the tag of a text loaded before, it
// may return ErrUnchanged instead.
func (l *Loader) Load(ctx context.Context, o Origin, tag string) (Text, error) {
	text, err := l.load(ctx, o, tag)
	if err != nil && !errors.Is(err, ErrUnchanged) {
		err = fmt.Errorf("read %s: %w", o, err)
	}
	return text, err
}

func (l *Loader) load(ctx context.Context, o Origin, tag string) (Text, error) {
	switch {
	case o.code != "":
		return Text{Bytes: []byte(o.code)}, nil
	case o.url == nil && o.isPlugin():
		return hashFile(o.path, tag)
	case o.url == nil:
		return readFile(o.path)
	}
	if err := l.checkPinned(o); err != nil {
		return Text{}, err
	}
	text, err := l.fetch(ctx, o, tag)
	if err == nil {
		err = o.checkPin(text.Bytes)
	}
	if err != nil {
		return Text{}, err
	}
	return text, nil
}

// fetch fetches a text from another host.
func (l *Loader) fetch(ctx context.Context, o Origin, tag string) (Text, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	maxBytes := textMax
	if o.isPlugin() {
		maxBytes = pluginMax
	}
	if o.url.Scheme == "s3" {
		return l.fetchS3(ctx, o.url, tag, maxBytes)
	}
	return l.fetchHTTP(ctx, o.url, tag, maxBytes)
}

// Code is Load for a script: it adds the script's name and a reader of the files beside
// it.
func (l *Loader) Code(ctx context.Context, o Origin, tag string) (script.Code, string, error) {
	text, err := l.Load(ctx, o, tag)
	if err != nil {
		return script.Code{}, "", err
	}
	return script.Code{Name: o.String(), Text: text.Bytes, Files: l.readerBeside(ctx, o)}, text.Tag, nil
}

// readerBeside returns a reader of the files beside an origin.
func (l *Loader) readerBeside(ctx context.Context, o Origin) func(string) ([]byte, error) {
	if o.url == nil {
		return script.Folder(o.Folder())
	}
	ctx = context.WithoutCancel(ctx)
	return func(name string) ([]byte, error) {
		if !fs.ValidPath(name) {
			return nil, fmt.Errorf("read %s beside %s: the path leaves the folder", name, o)
		}
		beside := *o.url
		beside.Path, beside.RawPath = path.Join(path.Dir(o.url.Path), name), ""
		text, err := l.Load(ctx, Origin{url: &beside}, "")
		return text.Bytes, err
	}
}

func readFile(path string) (Text, error) {
	file, err := os.Open(path)
	if err != nil {
		return Text{}, withoutPath(err)
	}
	defer file.Close()
	text, err := readAll(file, textMax)
	return Text{Bytes: text}, withoutPath(err)
}

// hashFile reads a file and keeps only its hash.
func hashFile(path, tag string) (Text, error) {
	file, err := os.Open(path)
	if err != nil {
		return Text{}, withoutPath(err)
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return Text{}, withoutPath(err)
	}
	now := fmt.Sprintf("%x", sum.Sum(nil))
	if now == tag {
		return Text{}, ErrUnchanged
	}
	return Text{Tag: now}, nil
}

// withoutPath strips the path from err. The caller adds the origin.
func withoutPath(err error) error {
	var inPath *fs.PathError
	if errors.As(err, &inPath) {
		return inPath.Err
	}
	return err
}

func readAll(r io.Reader, maxBytes int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, int64(maxBytes)+1))
	if len(text) > maxBytes {
		return nil, fmt.Errorf("larger than %d MiB", maxBytes>>20)
	}
	return text, err
}

// Folder returns the folder of the files beside a local origin.
func (o Origin) Folder() string {
	if o.code != "" {
		return o.base
	}
	return filepath.Dir(o.path)
}
