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

// Names of the contestants whose ratios are figures.
const (
	articleDefault = "article's Go flow, default"
	articleMode2   = "article's Go flow, mode 2"
	oursDefault    = "perigee, default"
	oursMode2      = "perigee, mode 2"
	oursTLS        = "perigee through TLS, mode 2"
	oursStream     = "perigee from a stream, mode 2"
	oursKafka      = "perigee from Kafka, mode 2"
	oursPostgres   = "perigee, PostgreSQL"
	copyPostgres   = "\\copy of ready rows, PostgreSQL"
)

func loadName(connections int) string {
	return fmt.Sprintf("LOAD DATA of ready rows, %d connections, mode 2", connections)
}

// connections are the numbers of connections that LOAD DATA uses.
var connections = []int{1, 2, 4}

// contestants returns the contestants in the order of their turns: those that are compared
// are adjacent.
func (b *bench) contestants() []contestant {
	queue := queueKey{b.queue, list}
	all := []contestant{
		{name: "Perl, 10 processes, BLPOP, one row each", events: b.slowEvents, firstRoundOnly: true, from: queue, to: b.defaults,
			command: interpreterCommand("perl", "-e", perlFlow, b.queue.server, b.defaults.server), check: b.checkRowCount(b.defaults.db, b.slowEvents)},
		{name: "Python, 2 processes, executemany", events: b.events, firstRoundOnly: true, from: queue, to: b.defaults,
			command: interpreterCommand("/usr/bin/python3", "-c", pythonFlow, b.queue.server, b.defaults.server), check: b.checkRowCount(b.defaults.db, b.events)},
		b.articleContestant(articleDefault, b.defaults),
		b.oursContestant(oursDefault, b.fromList(), toMariaDB(b.defaults), queue, b.defaults, b.defaults.db),
		b.articleContestant(articleMode2, b.mode2),
		b.oursContestant(oursMode2, b.fromList(), toMariaDB(b.mode2), queue, b.mode2, b.mode2.db),
		b.requireTLS(b.oursContestant(oursTLS, b.fromList(), toMariaDB(b.mode2, "params: {tls: skip-verify}"), queue, b.mode2, b.mode2.db)),
	}
	for _, n := range connections {
		all = append(all, contestant{name: loadName(n), events: b.events, from: noSource{b.queue}, to: b.mode2, waitsForStart: true,
			command: selfCommand("load", b.mode2.server.DSN(database), b.ready.file, fmt.Sprint(n)), check: b.checkRowCount(b.mode2.db, b.events)})
	}
	all = append(all, b.oursContestant(oursStream, b.fromStream(), toMariaDB(b.mode2), queueKey{b.queue, stream}, b.mode2, b.mode2.db))
	if b.kafka != nil {
		all = append(all, b.oursContestant(oursKafka, b.fromKafka(), toMariaDB(b.mode2), b.kafka, b.mode2, b.mode2.db))
	}
	return append(all,
		contestant{name: copyPostgres, events: b.events, from: noSource{b.queue}, to: b.postgres,
			command: b.copyCommand, check: b.checkRowCount(b.postgres.db, b.events)},
		b.oursContestant(oursPostgres, b.fromList(), toPostgreSQL(b.postgres), queue, b.postgres, b.postgres.db))
}

// requireTLS makes a contestant fail unless it connected through TLS.
func (b *bench) requireTLS(c contestant) contestant {
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

func (b *bench) articleContestant(name string, m *mariadb) contestant {
	return contestant{name: name, events: b.events, from: queueKey{b.queue, list}, to: m,
		command: selfCommand("article", b.queue.server.Address(), m.server.DSN(database)), check: b.checkRowCount(m.db, b.events)}
}

func (b *bench) checkRowCount(db *sql.DB, events uint64) func(context.Context) error {
	return func(ctx context.Context) error { return checkCount(ctx, db, b.ready.rows[events]) }
}

// selfCommand returns the command that runs this program as a contestant.
func selfCommand(args ...string) func(context.Context) (*exec.Cmd, error) {
	return func(ctx context.Context) (*exec.Cmd, error) {
		path, err := os.Executable()
		return exec.CommandContext(ctx, path, append([]string{"as"}, args...)...), err
	}
}

// A listener is a server with an address.
type listener interface{ Address() string }

// interpreterCommand returns the command that runs a script with the servers' addresses.
func interpreterCommand(name, flag, program string, from, to listener) func(context.Context) (*exec.Cmd, error) {
	return func(ctx context.Context) (*exec.Cmd, error) {
		return exec.CommandContext(ctx, name, flag, program, from.Address(), list, to.Address(), database), nil
	}
}

// copyCommand returns the command that copies the ready rows over one connection.
func (b *bench) copyCommand(ctx context.Context) (*exec.Cmd, error) {
	statement := fmt.Sprintf("\\copy %s(%s) from '%s'", table, join(columns), b.ready.file)
	return exec.CommandContext(ctx, "psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", b.postgres.server.DSN(database), "-c", statement), nil
}
