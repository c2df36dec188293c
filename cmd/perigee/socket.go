package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/internal/config"
	"github.com/perigeedb/perigee/server"
)

// storeFlags say which data folder is meant.
type storeFlags struct {
	Data   string `type:"path" placeholder:"DIR" help:"The engine's data folder (default ./perigee-data)."`
	Config string `type:"path" placeholder:"FILE" help:"The engine's configuration, which names the data folder."`
}

func (f storeFlags) folder(c *console) (string, error) {
	switch {
	case f.Data != "" && f.Config != "":
		return "", usage("--data and --config both name a data folder: keep one of them")
	case f.Data != "":
		return f.Data, nil
	case f.Config != "":
		conf, err := config.Load(f.Config, known(), c.lookup)
		if err != nil {
			return "", err
		}
		return conf.Data, nil
	}
	return filepath.Abs(config.DefaultData)
}

// A failure is an error on its way through the socket.
type failure struct {
	Message string `json:"error"`
	Hint    string `json:"hint,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
}

func (f *failure) Error() string     { return f.Message }
func (f *failure) ErrorHint() string { return f.Hint }

// answering makes a handler of what writes an answer. An error before the first
// byte is a status with a failure; a later one breaks the connection off, so
// that half an answer is never taken for one.
func answering(answer func(io.Writer, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &begun{w: w}
		err := answer(out, r)
		switch {
		case err == nil:
		case out.any:
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusInternalServerError)
			json.NewEncoder(w).Encode(failure{Message: err.Error(), Hint: event.HintOf(err)}) // the client may be gone
		}
	})
}

// begun tells whether anything was written.
type begun struct {
	w   io.Writer
	any bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.any = b.any || len(p) > 0
	return b.w.Write(p)
}

// askEngine lets the engine that runs in the data folder answer into out. asked
// is false when none runs there.
func askEngine(data, method, path string, query url.Values, body io.Reader, out io.Writer) (asked bool, err error) {
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(data, server.SocketName))
		},
	}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequest(method, "http://engine"+path+"?"+query.Encode(), body)
	if err != nil {
		return false, fmt.Errorf("ask the engine: %w", err)
	}
	response, err := client.Do(request)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("ask the engine in %s: %w", data, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return true, failureIn(response)
	}
	if _, err := io.Copy(out, response.Body); err != nil {
		return true, event.WithHint(fmt.Errorf("the engine broke its answer off: %w", err), "its log says why")
	}
	return true, nil
}

// failureIn returns the error that the engine answers with.
func failureIn(response *http.Response) error {
	var f failure
	if err := json.NewDecoder(response.Body).Decode(&f); err != nil || f.Message == "" {
		return fmt.Errorf("the engine answers %s", response.Status)
	}
	return &f
}

// firstLine shortens text to the first line and to so many characters, and keeps
// what would steer a terminal from it.
func firstLine(text string, most int) string {
	line, _, cut := strings.Cut(strings.ToValidUTF8(text, "\uFFFD"), "\n")
	runes := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, line))
	if len(runes) > most {
		runes, cut = runes[:most-1], true
	}
	if cut {
		return string(runes) + "…"
	}
	return string(runes)
}
