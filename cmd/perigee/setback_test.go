package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// setBack lets the engine go on for a while, and then restores its databases and its source to what
// they were before, as a backup does. The copies, the archive and the dead letters on this machine stay
// as they are: the home is older than they are.
func (r *crashRound) setBack() {
	r.t.Helper()
	r.t.Logf("set the databases back, after %d events", r.pushed.Load())
	r.stopNow()
	r.pushing.Lock()
	pushed := int(r.pushed.Load())
	queue := r.saveQueue()
	r.pushing.Unlock()
	tables := tablesOf(r.t, r.home)
	for _, name := range tables {
		execAll(r.t, r.home, "CREATE TABLE saved_"+name+" LIKE "+name, "INSERT INTO saved_"+name+" SELECT * FROM "+name)
	}
	saved := r.savePostgres()
	r.start()
	r.pause()
	r.pause()
	r.stopNow()
	for _, name := range tables {
		execAll(r.t, r.home, "DELETE FROM "+name, "INSERT INTO "+name+" SELECT * FROM saved_"+name, "DROP TABLE saved_"+name)
	}
	r.restorePostgres(saved)
	r.pushing.Lock()
	r.restoreQueue(queue)
	for id := pushed + 1; id <= int(r.pushed.Load()); id++ {
		if _, err := r.pushEvent(id); err != nil {
			r.t.Error(err)
		}
	}
	r.pushing.Unlock()
	for _, u := range r.units() {
		r.restoreUnit(u.Unit)
	}
	r.start()
}

// saveQueue returns the dumps of all keys.
func (r *crashRound) saveQueue() map[string]string {
	r.t.Helper()
	ctx, dumps := context.Background(), map[string]string{}
	keys, err := r.redis.Do(ctx, r.redis.B().Keys().Pattern("*").Build()).AsStrSlice()
	for _, key := range keys {
		if err == nil {
			dumps[key], err = r.redis.Do(ctx, r.redis.B().Dump().Key(key).Build()).ToString()
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return dumps
}

func (r *crashRound) restoreQueue(dumps map[string]string) {
	r.t.Helper()
	ctx := context.Background()
	err := r.redis.Do(ctx, r.redis.B().Flushall().Build()).Error()
	for key, dump := range dumps {
		if err == nil {
			err = r.redis.Do(ctx, r.redis.B().Restore().Key(key).Ttl(0).SerializedValue(dump).Build()).Error()
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// savePostgres copies the tables of the second sink, and returns their names.
func (r *crashRound) savePostgres() (tables []string) {
	r.t.Helper()
	for _, row := range r.execPostgres("SELECT tablename FROM pg_tables WHERE schemaname = 'public'") {
		name := string(row[0])
		tables = append(tables, name)
		r.execPostgres(fmt.Sprintf(`CREATE SCHEMA IF NOT EXISTS saved; CREATE TABLE saved.%[1]q AS TABLE public.%[1]q`, name))
	}
	return tables
}

func (r *crashRound) restorePostgres(tables []string) {
	r.t.Helper()
	var text strings.Builder
	for _, name := range tables {
		fmt.Fprintf(&text, `DELETE FROM public.%[1]q; INSERT INTO public.%[1]q OVERRIDING SYSTEM VALUE SELECT * FROM saved.%[1]q;`, name)
	}
	r.execPostgres(text.String() + "DROP SCHEMA saved CASCADE")
}

// execPostgres runs statements, and returns the rows of the first.
func (r *crashRound) execPostgres(statements string) [][][]byte {
	r.t.Helper()
	conn, err := pgconn.Connect(r.t.Context(), r.pg)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	results, err := conn.Exec(r.t.Context(), statements).ReadAll()
	if err != nil {
		r.t.Fatal(err)
	}
	return results[0].Rows
}
