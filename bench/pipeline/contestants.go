package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

//go:embed flow.pl
var perlFlow string

//go:embed flow.py
var pythonFlow string

// The names of those that figures are made of.
const (
	articleUsual = "article's Go flow, default"
	articleMode2 = "article's Go flow, mode 2"
	oursUsual    = "perigee, default"
	oursMode2    = "perigee, mode 2"
	oursTLS      = "perigee through TLS, mode 2"
	oursStream   = "perigee from a stream, mode 2"
	oursKafka    = "perigee from Kafka, mode 2"
	oursPostgres = "perigee, PostgreSQL"
	copyPostgres = "\\copy of ready rows, PostgreSQL"
)

func loadName(connections int) string {
	return fmt.Sprintf("LOAD DATA of ready rows, %d connections, mode 2", connections)
}

// connections are those of LOAD DATA.
var connections = []int{1, 2, 4}

// contestants are in the order of their turns: those that are compared follow
// one another.
func (b *bench) contestants() []contestant {
	queue := key{b.queue, list}
	all := []contestant{
		{name: "Perl, 10 processes, BLPOP, one row each", events: b.slow, once: true, from: queue, to: b.usual,
			command: interpreter("perl", "-e", perlFlow, b.queue.server, b.usual.server), check: b.counted(b.usual.db, b.slow)},
		{name: "Python, 2 processes, executemany", events: b.events, once: true, from: queue, to: b.usual,
			command: interpreter("/usr/bin/python3", "-c", pythonFlow, b.queue.server, b.usual.server), check: b.counted(b.usual.db, b.events)},
		b.article(articleUsual, b.usual),
		b.ours(oursUsual, b.fromList(), toMariaDB(b.usual), queue, b.usual, b.usual.db),
		b.article(articleMode2, b.mode2),
		b.ours(oursMode2, b.fromList(), toMariaDB(b.mode2), queue, b.mode2, b.mode2.db),
		b.encrypted(b.ours(oursTLS, b.fromList(), toMariaDB(b.mode2, "params: {tls: skip-verify}"), queue, b.mode2, b.mode2.db)),
	}
	for _, n := range connections {
		all = append(all, contestant{name: loadName(n), events: b.events, from: nothing{b.queue}, to: b.mode2, prepares: true,
			command: self("load", b.mode2.server.DSN(database), b.ready.file, fmt.Sprint(n)), check: b.counted(b.mode2.db, b.events)})
	}
	all = append(all, b.ours(oursStream, b.fromStream(), toMariaDB(b.mode2), key{b.queue, stream}, b.mode2, b.mode2.db))
	if b.kafka != nil {
		all = append(all, b.ours(oursKafka, b.fromKafka(), toMariaDB(b.mode2), b.kafka, b.mode2, b.mode2.db))
	}
	return append(all,
		contestant{name: copyPostgres, events: b.events, from: nothing{b.queue}, to: b.postgres,
			command: b.psql, check: b.counted(b.postgres.db, b.events)},
		b.ours(oursPostgres, b.fromList(), toPostgreSQL(b.postgres), queue, b.postgres, b.postgres.db))
}

// encrypted makes the contestant fail unless it connected through TLS.
func (b *bench) encrypted(c contestant) contestant {
	command, check := c.command, c.check
	var before int
	c.command = func(ctx context.Context) (_ *exec.Cmd, err error) {
		if before, err = b.mode2.tlsConnections(ctx); err != nil {
			return nil, err
		}
		return command(ctx)
	}
	c.check = func(ctx context.Context) error {
		now, err := b.mode2.tlsConnections(ctx)
		if err == nil && now == before {
			err = fmt.Errorf("%s: no connection used TLS", c.name)
		}
		return errors.Join(err, check(ctx))
	}
	return c
}

func (b *bench) article(name string, m *mariadb) contestant {
	return contestant{name: name, events: b.events, from: key{b.queue, list}, to: m,
		command: self("article", b.queue.server.Address(), m.server.DSN(database)), check: b.counted(m.db, b.events)}
}

func (b *bench) counted(db *sql.DB, events uint64) func(context.Context) error {
	return func(ctx context.Context) error { return count(ctx, db, b.ready.rows[events]) }
}

// self is this program as a contestant.
func self(args ...string) func(context.Context) (*exec.Cmd, error) {
	return func(ctx context.Context) (*exec.Cmd, error) {
		path, err := os.Executable()
		return exec.CommandContext(ctx, path, append([]string{"as"}, args...)...), err
	}
}

// A listener is a server with an address.
type listener interface{ Address() string }

// interpreter runs a program that is told where the servers are.
func interpreter(name, flag, program string, from, to listener) func(context.Context) (*exec.Cmd, error) {
	return func(ctx context.Context) (*exec.Cmd, error) {
		return exec.CommandContext(ctx, name, flag, program, from.Address(), list, to.Address(), database), nil
	}
}

// psql copies the ready rows over one connection.
func (b *bench) psql(ctx context.Context) (*exec.Cmd, error) {
	statement := fmt.Sprintf("\\copy %s(%s) from '%s'", table, join(columns), b.ready.file)
	return exec.CommandContext(ctx, "psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", b.postgres.server.DSN(database), "-c", statement), nil
}
