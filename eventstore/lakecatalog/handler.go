// Package lakecatalog serves the reading half of Iceberg's REST catalog: other engines find the
// lake tables of an event store in it, and cannot change them. Its functions are safe for
// concurrent use.
package lakecatalog

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/internal/httpserver"
)

// Prefix is the prefix of the paths that a Handler answers. Clients take the address with it for
// that of the catalog.
const Prefix = "/iceberg/"

// A Table is a table of the catalog.
type Table struct {
	Name     string // NAMESPACE.TABLE; a namespace may have dots
	Metadata string // address of its metadata: a path, file:// or s3://
}

func (t *Table) identifier() (namespace []string, name string) {
	parts := strings.Split(t.Name, ".")
	return parts[:len(parts)-1], parts[len(parts)-1]
}

// endpoints are the routes, as the specification spells them.
var endpoints = []string{
	"GET /v1/{prefix}/namespaces", "GET /v1/{prefix}/namespaces/{namespace}", "HEAD /v1/{prefix}/namespaces/{namespace}",
	"GET /v1/{prefix}/namespaces/{namespace}/tables", "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}", "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
}

// levelSeparator separates the levels of a namespace in a path.
const levelSeparator = "\x1f"

// Handler answers requests with the tables that list returns. Names in requests are only compared
// with those of tables: they never become part of a path. The caller checks who asks.
func Handler(list func() ([]Table, error), log *slog.Logger) http.Handler {
	return httpserver.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := answerTo(r, list)
		if failed, ok := errors.AsType[*requestError](err); ok {
			WriteError(w, r, failed.status, failed.kind, failed.message)
			return
		}
		if err != nil {
			log.Warn("the catalog of lake tables cannot answer", "path", r.URL.Path, "error", err)
			WriteError(w, r, http.StatusServiceUnavailable, "ServiceUnavailableException", err.Error())
			return
		}
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(answer) // the client may be gone
	}))
}

// WriteError answers with an error, as clients of catalogs expect it.
func WriteError(w http.ResponseWriter, r *http.Request, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message, "type": kind, "code": status}}) // the client may be gone
}

// A requestError is an error of the request.
type requestError struct {
	status        int
	kind, message string
}

func (e *requestError) Error() string { return e.message }

func noSuch(kind, message string) error {
	return &requestError{http.StatusNotFound, "NoSuch" + kind + "Exception", message}
}

// answerTo returns the answer to a request.
func answerTo(r *http.Request, list func() ([]Table, error)) (any, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, &requestError{http.StatusNotAcceptable, "UnsupportedOperationException", "this catalog can only be read: perigee publishes its tables itself"}
	}
	path, err := splitPath(r)
	if err != nil {
		return nil, &requestError{http.StatusBadRequest, "BadRequestException", err.Error()}
	}
	if len(path) == 1 && path[0] == "config" {
		return map[string]any{"defaults": struct{}{}, "overrides": struct{}{}, "endpoints": endpoints}, nil
	}
	if len(path) == 0 || path[0] != "namespaces" || len(path) > 2 && path[2] != "tables" || len(path) > 4 {
		return nil, &requestError{http.StatusNotFound, "NotFoundException", "no route " + r.URL.Path}
	}
	tables, err := list()
	if err != nil {
		return nil, err
	}
	if len(path) == 1 {
		return listNamespaces(r, tables)
	}
	namespace := strings.Split(path[1], levelSeparator)
	if !hasNamespace(tables, namespace) {
		return nil, noSuch("Namespace", "Namespace does not exist: "+strings.Join(namespace, "."))
	}
	switch len(path) {
	case 2:
		return map[string]any{"namespace": namespace, "properties": struct{}{}}, nil
	case 3:
		return listTables(tables, namespace), nil
	}
	return loadTable(r, tables, namespace, path[3])
}

// splitPath returns the decoded segments of a path behind the version. A slash in a name is not a
// separator.
func splitPath(r *http.Request) (segments []string, err error) {
	rest, found := strings.CutPrefix(r.URL.EscapedPath(), Prefix+"v1/")
	if !found {
		return nil, nil
	}
	for segment := range strings.SplitSeq(strings.TrimSuffix(rest, "/"), "/") {
		decoded, err := url.PathUnescape(segment)
		if err != nil {
			return nil, err
		}
		segments = append(segments, decoded)
	}
	return segments, nil
}

// listNamespaces lists the namespaces below that of the parameter parent.
func listNamespaces(r *http.Request, tables []Table) (any, error) {
	var parent []string
	if text := r.URL.Query().Get("parent"); text != "" {
		parent = strings.Split(text, levelSeparator)
		if !hasNamespace(tables, parent) {
			return nil, noSuch("Namespace", "Namespace does not exist: "+strings.Join(parent, "."))
		}
	}
	all := [][]string{}
	for i := range tables {
		namespace, _ := tables[i].identifier()
		if len(namespace) <= len(parent) || !slices.Equal(namespace[:len(parent)], parent) {
			continue
		}
		child := namespace[:len(parent)+1]
		if !slices.ContainsFunc(all, func(known []string) bool { return slices.Equal(known, child) }) {
			all = append(all, child)
		}
	}
	return map[string]any{"namespaces": all}, nil
}

// hasNamespace reports whether a table is in a namespace, or in one below it.
func hasNamespace(tables []Table, namespace []string) bool {
	return slices.ContainsFunc(tables, func(t Table) bool {
		of, _ := t.identifier()
		return len(of) >= len(namespace) && slices.Equal(of[:len(namespace)], namespace)
	})
}

func listTables(tables []Table, namespace []string) any {
	type identifier struct {
		Namespace []string `json:"namespace"`
		Name      string   `json:"name"`
	}
	all := []identifier{}
	for i := range tables {
		if of, name := tables[i].identifier(); slices.Equal(of, namespace) {
			all = append(all, identifier{of, name})
		}
	}
	return map[string]any{"identifiers": all}
}

func loadTable(r *http.Request, tables []Table, namespace []string, name string) (any, error) {
	for i := range tables {
		of, known := tables[i].identifier()
		if !slices.Equal(of, namespace) || known != name {
			continue
		}
		if r.Method == http.MethodHead {
			return nil, nil
		}
		location, metadata, err := readMetadata(r.Context(), tables[i].Metadata)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, noSuch("Table", "Table has no metadata any more: "+err.Error())
		}
		return map[string]any{"metadata-location": location, "metadata": metadata, "config": struct{}{}}, err
	}
	return nil, noSuch("Table", "Table does not exist: "+strings.Join(namespace, ".")+"."+name)
}
