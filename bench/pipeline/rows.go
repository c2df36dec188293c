package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/perigeedb/perigee/source/generate"
)

// readyRows are the rows that the email example's script makes of the events, in a file for
// LOAD DATA.
type readyRows struct {
	file string
	rows map[uint64]int // number of rows, by the number of first events
}

// writeReadyRows writes the rows of the first events, and also counts those of the first
// fewer events.
func writeReadyRows(path string, events, fewer uint64) (r readyRows, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriterSize(file, 1<<20)
	r = readyRows{file: path, rows: map[uint64]int{}}
	rows := 0
	var doc []byte
	for i := range events {
		doc = generate.Append(doc[:0], seed, i)
		line, err := row(doc)
		if err != nil {
			return r, err
		}
		if line != "" {
			rows++
			_, _ = out.WriteString(line)
		}
		if i+1 == fewer || i+1 == events {
			r.rows[i+1] = rows
		}
	}
	return r, out.Flush()
}

// row returns the row of an event, or "" if the script drops or rejects it.
func row(doc []byte) (string, error) {
	var e struct {
		ID       uint64    `json:"id"`
		Name     string    `json:"event_name"`
		Email    string    `json:"email"`
		Campaign string    `json:"campaign"`
		Time     time.Time `json:"time"`
		URL      string    `json:"url"`
	}
	if bytes.Contains(doc, []byte(`"event_name":"spam"`)) {
		return "", nil
	}
	if err := json.Unmarshal(doc, &e); err != nil {
		return "", err
	}
	_, domain, valid := strings.Cut(e.Email, "@")
	if !valid {
		return "", nil
	}
	dash := strings.LastIndexByte(e.Campaign, '-')
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, e.Name, e.Email, domain,
		e.Campaign[:dash], e.Campaign[dash+1:], e.Time.UTC().Format("2006-01-02 15:04:05.000000"), e.URL), nil
}
