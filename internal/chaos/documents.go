package chaos

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/perigeedb/perigee/internal/resp"
	"github.com/perigeedb/perigee/internal/testserver"
)

// startRedisSink starts a second Redis, for sinks.
func startRedisSink(ctx context.Context, folder string) (*database, error) {
	s, err := testserver.StartRedis(ctx, folder, durableRedis...)
	if err != nil {
		return nil, err
	}
	do := func(ctx context.Context, args ...string) (all []string, err error) {
		server := resp.Server{Address: s.Address()}
		conn, err := server.Dial(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		reply, err := conn.Do(ctx, args...)
		items, isList := reply.([]any)
		if !isList && reply != nil {
			items = []any{reply}
		}
		for _, item := range items {
			all = append(all, fmt.Sprint(item))
		}
		return all, err
	}
	return &database{
		server: s, kind: Redis,
		transactions: func(context.Context) ([]string, error) { return nil, nil }, // a write is one command
		activity:     func(ctx context.Context) ([]string, error) { return do(ctx, "CLIENT", "LIST") },
		leases: func(ctx context.Context, worker string) (held []string, err error) {
			keys, err := do(ctx, "KEYS", "perigee:lease:*")
			for _, key := range keys {
				holder, failed := do(ctx, "GET", key)
				if err = errors.Join(err, failed); len(holder) == 1 && holder[0] == worker {
					partition := key[strings.LastIndexByte(key, ':')+1:]
					held = append(held, strings.NewReplacer("%3A", ":", "%25", "%").Replace(partition))
				}
			}
			return held, err
		},
		readNumbers: func(ctx context.Context, table, column string, each func(uint64)) error {
			documents, err := do(ctx, "LRANGE", table, "0", "-1")
			for _, document := range documents {
				err = errors.Join(err, readNumber([]byte(document), column, each))
			}
			return err
		},
	}, nil
}

// readNumber calls each with the number in a document.
func readNumber(document []byte, field string, each func(uint64)) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(document, &fields); err != nil {
		return fmt.Errorf("read %.80q back: %w", document, err)
	}
	var n uint64
	if err := json.Unmarshal(fields[field], &n); err != nil {
		return fmt.Errorf("read the field %q of %.80q back: %w", field, document, err)
	}
	each(n)
	return nil
}

// readFiles calls each with the number in every line that a file sink wrote.
func readFiles(folder, field string, each func(uint64)) error {
	names, err := filepath.Glob(filepath.Join(folder, "*.ndjson*"))
	if err != nil {
		return err
	}
	for _, name := range names {
		packed, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		text, err := unpack(name, packed)
		if err != nil {
			return fmt.Errorf("read %s back: %w", name, err)
		}
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, len(text)+1)
		for lines.Scan() {
			if err := readNumber(lines.Bytes(), field, each); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

func unpack(name string, packed []byte) ([]byte, error) {
	switch {
	case len(packed) == 0:
	case strings.Contains(name, ".gz"):
		in, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(in)
	case strings.Contains(name, ".zst"):
		in, err := zstd.NewReader(nil)
		if err != nil {
			return nil, err
		}
		defer in.Close()
		return in.DecodeAll(packed, nil)
	}
	return packed, nil
}
