package console

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

// assets are the pages, with the libraries that tools/console/build.sh has bundled.
//
//go:embed assets
var assets embed.FS

// contentTypes are those of the assets, whatever the machine's tables say.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// serveAssets serves the files of the console. A browser asks each time whether they have changed.
func serveAssets() http.Handler {
	tags := sync.OnceValue(hashAssets)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the files of the console can only be read", http.StatusMethodNotAllowed)
			return
		}
		name := strings.TrimPrefix(r.URL.Path, "/console/")
		if name == "" {
			name = "index.html"
		}
		known := tags()
		file, stored := path.Join("assets", name), name
		if known[stored] == "" {
			stored = name + ".gz"
			file += ".gz"
		}
		if known[stored] == "" || path.Clean("/"+name) != "/"+name {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", known[stored])
		if strings.Contains(r.Header.Get("If-None-Match"), known[stored]) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		content, err := assets.ReadFile(file)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		kind := contentTypes[path.Ext(name)]
		if kind == "" {
			kind = mime.TypeByExtension(path.Ext(name))
		}
		h.Set("Content-Type", kind)
		if stored != name {
			h.Set("Content-Encoding", "gzip")
		}
		_, _ = w.Write(content) // the client may be gone
	})
}

// hashAssets returns a tag of each file, by its name below the folder.
func hashAssets() map[string]string {
	tags := map[string]string{}
	_ = fs.WalkDir(assets, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := assets.ReadFile(name)
		sum := sha256.Sum256(content)
		tags[strings.TrimPrefix(name, "assets/")] = `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
		return err
	})
	return tags
}
