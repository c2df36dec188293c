package console

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/httpserver"
)

const (
	apiPrefix = "/console/api/"
	// apiHeader is a header that pages of other sites cannot send without asking first.
	apiHeader = "Perigee-Console"
	bodyMax   = 4 << 20 // bytes of a request
)

// policy lets a page load what this server has, and nothing else: no inline code, no other host.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// handler returns the routes below /console/. It expects a server of package httpserver, which
// refuses pages of other sites.
func (c *Console) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/console/", serveAssets())
	api := http.NewServeMux()
	for pattern, h := range c.api() {
		api.Handle(pattern, h)
	}
	mux.Handle(apiPrefix, c.protect(api))
	return withHeaders(mux)
}

// withHeaders adds the headers that tell browsers what pages of the console may do.
func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// protect lets only requests of the console's own pages, and of programs that know the API, pass:
// they have the header Perigee-Console, which a browser sends for no form and no page of another
// site, and the token if there is one. httpserver.Protect has checked Host, Origin and
// Sec-Fetch-Site before. A body may have 4 MiB.
func (c *Console) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		switch {
		case r.Header.Get(apiHeader) == "":
			writeFault(w, http.StatusForbidden, &event.Fault{Message: "the request lacks the header " + apiHeader, Hint: "send " + apiHeader + ": 1"})
			return
		case r.Method == http.MethodPost && !isJSON(r.Header.Get("Content-Type")):
			writeFault(w, http.StatusUnsupportedMediaType, &event.Fault{Message: "the body is not application/json", Hint: "send Content-Type: application/json"})
			return
		case !c.access.Authorized(w, r):
			writeFault(w, http.StatusUnauthorized, event.FaultOf(httpserver.ErrUnauthorized))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, bodyMax)
		next.ServeHTTP(w, r)
	})
}

func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/json")
}

func writeFault(w http.ResponseWriter, status int, f *event.Fault) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(f) // the client may be gone
}
