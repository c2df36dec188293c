package httpserver

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Protect refuses the requests of web pages that belong elsewhere, which a browser on this
// machine sends to loopback addresses too. Every server that New returns has it; a handler
// that others serve needs it of its own.
func Protect(next http.Handler) http.Handler { return checkHost(checkSite(next)) }

// checkHost refuses requests that arrive on a loopback address for any host but
// localhost or an address. A web page can make a name of its own mean 127.0.0.1 (DNS
// rebinding), and its browser would then let it read the answers.
func checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if local != nil && local.IP.IsLoopback() && !isLocalName(r.Host) {
			http.Error(w, "this address answers requests for localhost and for IP addresses only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// checkSite refuses requests that a browser sends for a page of another site, whatever their
// method: a page that may not read an answer still learns how long it takes, and whether
// there is one. Clients that are no browsers say nothing about sites.
func checkSite(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asPost := *r // the check lets the methods that only read pass
		asPost.Method = http.MethodPost
		if protection.Check(&asPost) != nil {
			http.Error(w, "this address does not answer pages of other sites", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocalName reports whether a Host is localhost or an address, with or without a port.
// A request of HTTP/1.0 may have none.
func isLocalName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "" || strings.EqualFold(host, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}
