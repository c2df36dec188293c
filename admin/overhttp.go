package admin

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/perigeedb/perigee/event"
)

// consolePath is where the API of an engine's console has the operations.
const consolePath = "/console/api"

// OpenHTTP returns the Admin of an engine that listens at an address, as http://host:4290, through the
// API of its console, with the token of the console if it has one. It does not connect. The console has
// some of the operations: status, pauses and dead letters among them.
func OpenHTTP(address, token string) (*Admin, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, event.WithHint(errors.New("the address of the engine is not a URL"), "write it as http://host:4290")
	}
	u.Path, u.RawQuery, u.Fragment = strings.TrimSuffix(u.Path, "/")+consolePath, "", ""
	c := &client{where: "at " + u.Host, base: *u, header: http.Header{"Perigee-Console": {"1"}, "Content-Type": {"application/json"}}}
	if token != "" {
		c.header.Set("Authorization", "Bearer "+token)
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token is for this host
	return &Admin{data: u.Host, remote: c}, nil
}
