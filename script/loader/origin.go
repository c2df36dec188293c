package loader

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// An Origin is where a text comes from: inline code, a file, or a URL. The zero value
// is no origin.
type Origin struct {
	name string   // of code
	code string   // the text itself
	path string   // of a file, absolute
	url  *url.URL // at another host
	pin  string   // SHA-256 that the text must have, in hexadecimal; may be empty
	base string   // of code: the folder that its files lie in
}

var (
	// schemePattern begins like an address.
	schemePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	// codePattern is what a script on one line has and a path has not: a script
	// defines the function main.
	codePattern = regexp.MustCompile(`\bfunction\b[\s\w.:]*\(|\bmain\s*=`)
)

// Schemes returns the URL schemes that Locate supports.
func Schemes() []string { return []string{"file", "http", "https", "s3"} }

// Locate returns the origin that a text in a configuration means. It is code if it has
// several lines or defines a function, a URL if it begins with a scheme and ://, and a
// path otherwise. Relative paths start at base, a folder or a URL that ends in a slash.
// Errors in code quote name.
func Locate(text, base, name string) (Origin, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return Origin{}, fmt.Errorf("no code, path or URL given")
	case IsCode(text):
		if schemePattern.MatchString(base) {
			base = ""
		}
		return Origin{name: name, code: text + "\n", base: base}, nil
	case schemePattern.MatchString(text):
		return locateURL(text)
	case filepath.IsAbs(text):
		return Origin{path: filepath.Clean(text)}, nil
	case schemePattern.MatchString(base):
		return locateURL(base + filepath.ToSlash(text))
	}
	return Origin{path: filepath.Join(base, text)}, nil
}

// IsCode reports whether a text is code, and not a path or URL.
func IsCode(text string) bool {
	text = strings.TrimSpace(text)
	return strings.Contains(text, "\n") || !schemePattern.MatchString(text) && codePattern.MatchString(text)
}

// IsAddress reports whether a text is a URL.
func IsAddress(text string) bool { return schemePattern.MatchString(text) }

func locateURL(text string) (Origin, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Origin{}, errors.New("invalid URL") // it may have a password
	}
	u.Scheme = strings.ToLower(u.Scheme)
	switch {
	case !slices.Contains(Schemes(), u.Scheme):
		return Origin{}, fmt.Errorf("unknown scheme %s://; use %s", u.Scheme, strings.Join(Schemes(), ", "))
	case u.Scheme == "file":
		if u.Host != "" && u.Host != "localhost" {
			return Origin{}, fmt.Errorf("%s names the host %s; a local file has three slashes, file:///", Origin{url: u}, u.Hostname())
		}
		return Origin{path: filepath.FromSlash(path.Clean(u.Path))}, nil
	case u.Host == "":
		return Origin{}, fmt.Errorf("URL %s has no host", Origin{url: u})
	case u.Scheme == "s3" && strings.Trim(u.Path, "/") == "":
		return Origin{}, fmt.Errorf("URL %s has no object; use s3://bucket/key", Origin{url: u})
	}
	pin, err := parsePin(u.Fragment)
	if err != nil {
		return Origin{}, err
	}
	u.Path, u.RawPath, u.Fragment = path.Clean(u.Path), "", ""
	return Origin{url: u, pin: pin}, nil
}

// String returns the origin for errors, without password and query, which may contain a
// secret.
func (o Origin) String() string {
	switch {
	case o.Inline():
		return o.name
	case o.url == nil:
		return o.path
	}
	shown := *o.url
	shown.User, shown.RawQuery = nil, ""
	return shown.String()
}

// isPlugin reports whether the origin is a Go plugin, which may be large.
func (o Origin) isPlugin() bool {
	return strings.HasSuffix(o.path, ".so") || o.url != nil && strings.HasSuffix(o.url.Path, ".so")
}

// Inline reports whether the text is the code itself.
func (o Origin) Inline() bool { return o.code != "" }

// Path returns the path of a file, or "".
func (o Origin) Path() string { return o.path }

// Remote reports whether the text is on another host.
func (o Origin) Remote() bool { return o.url != nil }

// Base returns the base of relative paths in the text, for Locate.
func (o Origin) Base() string {
	if o.url == nil {
		return o.Folder()
	}
	folder := strings.TrimSuffix(path.Dir(o.url.Path), "/") + "/"
	return (&url.URL{Scheme: o.url.Scheme, User: o.url.User, Host: o.url.Host, Path: folder}).String()
}
