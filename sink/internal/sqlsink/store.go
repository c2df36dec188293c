package sqlsink

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/sink"
	"github.com/perigeedb/perigee/sink/internal/positions"
)

// A Store keeps owners, ranges, leases, workers, units and notes of one pipeline and
// target. It implements sink.LeaseStore, sink.PositionStore and sink.UnitStore.
type Store struct {
	*Dialect
	Database Database
	Pipeline string
	Target   string // the table
	Server   string // as messages call it
	State    bool   // the pipeline has a state, which the store may keep

	mu           sync.Mutex
	created      bool // the tables exist
	unitsCreated bool // those of units, too
}

// The tables, in the order in which they are created.
var (
	stateTables = []string{OwnersTable, RangesTable, LeasesTable, WorkersTable}
	unitTables  = []string{UnitsTable, NotesTable}
)

// Process names this process in perigee_owners, for people.
var Process = sync.OnceValue(func() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s:%d", host, os.Getpid())
})

// CreateState creates the tables that do not exist, without those of units.
func (s *Store) CreateState(ctx context.Context, c Conn) error {
	return s.Explain("creating the tables for positions", s.createTables(ctx, c, stateTables))
}

// createTables creates those of the named tables that do not exist. It asks first: an account
// may be allowed to write and not to create.
func (s *Store) createTables(ctx context.Context, c Conn, names []string) error {
	missing, err := s.Database.Missing(ctx, c, names)
	if err != nil || len(missing) == 0 {
		return err
	}
	var statements []string
	for _, name := range missing {
		statements = append(statements, s.StateTable(name)...)
	}
	return s.Database.CreateTables(ctx, c, statements)
}

// StateTables returns the names of the tables that the pipeline needs besides the target.
func (s *Store) StateTables() []string {
	if s.State {
		return slices.Concat(stateTables, unitTables)
	}
	return stateTables
}

// Tables lists the target, if the sink may create it, and the store's tables, and says which
// of them exist.
func (s *Store) Tables(ctx context.Context, withTarget bool) (tables []sink.Table, err error) {
	names := slices.Clone(s.StateTables())
	if withTarget {
		names = slices.Insert(names, 0, s.Target)
	}
	var missing []string
	err = s.Database.Connect(ctx, func(c Conn) (err error) {
		missing, err = s.Database.Missing(ctx, c, names)
		return err
	})
	if err != nil {
		return nil, s.Explain("looking for tables", err)
	}
	for _, name := range names {
		tables = append(tables, sink.Table{Name: name, Exists: !slices.Contains(missing, name)})
	}
	return tables, nil
}

// connect calls f with a connection, once the tables exist. doing is for errors.
func (s *Store) connect(ctx context.Context, doing string, f func(Conn) error) error {
	return s.Explain(doing, s.Database.Connect(ctx, s.afterTables(ctx, f)))
}

// afterTables returns a function that creates the tables if need be, and then calls f.
func (s *Store) afterTables(ctx context.Context, f func(Conn) error) func(Conn) error {
	return func(c Conn) error {
		s.mu.Lock()
		created := s.created
		s.mu.Unlock()
		if !created {
			if err := s.CreateState(ctx, c); err != nil {
				return err
			}
			s.mu.Lock()
			s.created = true
			s.mu.Unlock()
		}
		return f(c)
	}
}

// Explain says in an error what was being done at which server, and what a person
// can do about it.
func (s *Store) Explain(doing string, err error) error {
	if err == nil || errors.Is(err, sink.ErrFenced) || errors.Is(err, context.Canceled) {
		return err
	}
	if _, rows := errors.AsType[*sink.RowErrors](err); rows {
		return err
	}
	if _, done := errors.AsType[*explained](err); done {
		return err
	}
	if s.Database.Classify(err) == Fenced {
		return sink.ErrFenced
	}
	wrapped := error(&explained{fmt.Errorf("%s at %s: %w", doing, s.Server, err)})
	switch {
	case event.IsPermanent(err):
		return &event.PermanentError{Err: wrapped, Hint: event.HintOf(err)}
	case s.Database.Classify(err) == Permanent:
		return &event.PermanentError{Err: wrapped, Hint: s.Database.Hint(err)}
	case s.Database.Classify(err) == Conflict:
		return fmt.Errorf("%w: %w", sink.ErrConflict, wrapped)
	}
	return wrapped
}

// An explained error has gone through Explain.
type explained struct{ error }

func (e *explained) Unwrap() error { return e.error }

// where is the condition that finds the rows of the pipeline and target.
func (s *Store) where() string {
	return "pipeline = " + s.QuoteText(s.Key(s.Pipeline)) + " AND target = " + s.QuoteText(s.Target)
}

func (s *Store) wherePartition(partition string) string {
	return s.where() + " AND " + s.Quote("partition") + " = " + s.QuoteText(s.Key(partition))
}

// insertMissing inserts a row, unless its key exists.
func (s *Store) insertMissing(ctx context.Context, c Conn, table, columns, values string) error {
	err := c.Exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)%s", s.Table(table), columns, values, s.IgnoreDuplicates))
	if s.Database.IsDuplicate(err) {
		return nil
	}
	return err
}

// insertOwner makes sure that a partition has a row in perigee_owners.
func (s *Store) insertOwner(ctx context.Context, c Conn, partition string) error {
	return s.insertMissing(ctx, c, OwnersTable, "pipeline, target, "+s.Quote("partition")+", epoch, owner, since", strings.Join([]string{
		s.QuoteText(s.Key(s.Pipeline)), s.QuoteText(s.Target), s.QuoteText(s.Key(partition)), "0", "''", s.Now}, ", "))
}

// raiseEpoch is the statement that makes owner the one of a partition.
func (s *Store) raiseEpoch(partition, owner string) string {
	return fmt.Sprintf("UPDATE %s SET epoch = epoch + 1, owner = %s, since = %s WHERE %s",
		s.Table(OwnersTable), s.QuoteText(owner), s.Now, s.wherePartition(partition))
}

// A Claim is a writer's ownership of one partition. It implements positions.Store
// but for Commit.
type Claim struct {
	store     *Store
	Partition string
	Token     string // names the writer in perigee_owners
	ID        uint64 // of the row in perigee_owners
	Epoch     uint64
}

// NewClaim returns a claim that TakeOver makes good.
func (s *Store) NewClaim(partition string) *Claim {
	return &Claim{store: s, Partition: partition, Token: Process() + ":" + rand.Text()[:12]}
}

// TakeOver makes the writer the owner of its partition and returns what is committed. A
// commit of another owner in flight either holds the shared lock on the owner's row, and
// TakeOver waits for it, or never gets the lock.
func (c *Claim) TakeOver(ctx context.Context) (entries []positions.Entry, err error) {
	s := c.store
	err = s.connect(ctx, "taking over the partition", func(conn Conn) error {
		previous, found, err := c.readOwner(ctx, conn)
		if err == nil && !found {
			err = s.insertOwner(ctx, conn, c.Partition)
		}
		if err == nil {
			err = conn.Exec(ctx, s.raiseEpoch(c.Partition, c.Token))
		}
		if err == nil {
			entries, err = c.begin(ctx, conn, previous)
		}
		if s.Database.Classify(err) == Rejected {
			err = &event.PermanentError{Err: err, Hint: OwnersTable + " cannot hold the names of the pipeline and the partition; shorten them"}
		}
		return err
	})
	return entries, err
}

func (c *Claim) readOwner(ctx context.Context, conn Conn) (owner string, found bool, err error) {
	rows, err := conn.Query(ctx, fmt.Sprintf("SELECT owner FROM %s WHERE %s", c.store.Table(OwnersTable), c.store.wherePartition(c.Partition)))
	if err != nil || len(rows) == 0 {
		return "", false, err
	}
	return string(rows[0][0]), true, nil
}

// Renew implements positions.Store. Raising the epoch also makes durable whatever is
// read after it: a server may show a transaction before it is on disk, but not
// before one that follows it is.
func (c *Claim) Renew(ctx context.Context) (entries []positions.Entry, err error) {
	err = c.store.connect(ctx, "reading what is committed", func(conn Conn) error {
		err := conn.Exec(ctx, fmt.Sprintf("UPDATE %s SET epoch = epoch + 1 WHERE id = %d AND owner = %s",
			c.store.Table(OwnersTable), c.ID, c.store.QuoteText(c.Token)))
		if err == nil {
			entries, err = c.begin(ctx, conn, c.Token)
		}
		return err
	})
	return entries, err
}

// begin starts a term of the claim whose epoch was raised: it ends what the owner
// before has in flight, and reads what is committed. The epoch is raised by a
// statement that is a transaction of its own, so that a worker that freezes right
// after it holds no locks.
func (c *Claim) begin(ctx context.Context, conn Conn, previous string) ([]positions.Entry, error) {
	rows, err := conn.Query(ctx, fmt.Sprintf("SELECT id, epoch FROM %s WHERE %s AND owner = %s",
		c.store.Table(OwnersTable), c.store.wherePartition(c.Partition), c.store.QuoteText(c.Token)))
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, sink.ErrFenced
	}
	if c.ID, c.Epoch, err = parsePair(rows[0]); err != nil {
		return nil, err
	}
	if previous != "" {
		if err := c.store.Database.Evict(ctx, conn, c.ID, previous); err != nil {
			return nil, err
		}
	}
	return c.readEntries(ctx, conn)
}

func parsePair(row [][]byte) (a, b uint64, err error) {
	if a, err = strconv.ParseUint(string(row[0]), 10, 64); err != nil {
		return 0, 0, err
	}
	b, err = strconv.ParseUint(string(row[1]), 10, 64)
	return a, b, err
}

func (c *Claim) readEntries(ctx context.Context, conn Conn) ([]positions.Entry, error) {
	rows, err := conn.Query(ctx, fmt.Sprintf("SELECT first, events, %s, %s FROM %s WHERE owner = %d ORDER BY first",
		c.store.Age, c.store.FingerprintsHex, c.store.Table(RangesTable), c.ID))
	if err != nil {
		return nil, err
	}
	entries := make([]positions.Entry, len(rows))
	for i, row := range rows {
		if entries[i], err = parseEntry(row); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// parseEntry parses first, events, age and prints.
func parseEntry(row [][]byte) (e positions.Entry, err error) {
	if e.Range.First, e.Range.Count, err = parsePair(row); err != nil {
		return e, err
	}
	age, err := strconv.ParseInt(string(row[2]), 10, 64)
	if err != nil {
		return e, err
	}
	e.Age = time.Duration(age) * time.Second
	fingerprints, err := hex.AppendDecode(nil, row[3])
	if err != nil {
		return e, err
	}
	e.Range.Fingerprints, err = positions.DecodeFingerprints(e.Range, fingerprints)
	return e, err
}

// CheckOwned returns sink.ErrFenced if another writer owns the partition.
func (c *Claim) CheckOwned(ctx context.Context, conn Conn) error {
	rows, err := conn.Query(ctx, fmt.Sprintf("SELECT 1 FROM %s WHERE id = %d AND epoch = %d", c.store.Table(OwnersTable), c.ID, c.Epoch))
	if err == nil && len(rows) == 0 {
		return sink.ErrFenced
	}
	return err
}

// IsCommitted implements positions.Store.
func (c *Claim) IsCommitted(ctx context.Context, r event.Range) (committed bool, err error) {
	err = c.store.connect(ctx, "verifying what is committed", func(conn Conn) error {
		rows, err := conn.Query(ctx, fmt.Sprintf(`SELECT (SELECT first + events FROM %s WHERE owner = o.id AND first <= %d ORDER BY first DESC LIMIT 1)
			FROM %s AS o WHERE id = %d AND epoch = %d AND owner = %s`,
			c.store.Table(RangesTable), r.First, c.store.Table(OwnersTable), c.ID, c.Epoch, c.store.QuoteText(c.Token)))
		switch {
		case err != nil:
			return err
		case len(rows) == 0:
			return sink.ErrFenced
		case rows[0][0] == nil:
			return nil
		}
		end, err := strconv.ParseUint(string(rows[0][0]), 10, 64)
		committed = end >= r.End()
		return err
	})
	return committed, err
}

// AppendRanges appends the statement that records ranges and fails for a fenced
// writer: the epoch is the one of the writer as long as it is the owner's, under a
// shared lock until the transaction ends; otherwise it is NULL, which the column
// does not accept.
func (c *Claim) AppendRanges(to []byte, ranges []event.Range) []byte {
	s := c.store
	to = append(append(to, "INSERT INTO "...), s.Table(RangesTable)...)
	to = append(to, " (owner, first, events, epoch, committed, prints) VALUES "...)
	for i, r := range ranges {
		if i > 0 {
			to = append(to, ',')
		}
		to = strconv.AppendUint(append(to, '('), c.ID, 10)
		to = strconv.AppendUint(append(to, ','), r.First, 10)
		to = strconv.AppendUint(append(to, ','), r.Count, 10)
		to = append(append(to, ",(SELECT epoch FROM "...), s.Table(OwnersTable)...)
		to = strconv.AppendUint(append(to, " WHERE id = "...), c.ID, 10)
		to = strconv.AppendUint(append(to, " AND epoch = "...), c.Epoch, 10)
		to = append(append(to, s.ShareLock...), "),"...)
		to = append(append(to, s.Now...), ',')
		to = append(s.appendFingerprints(to, r.Fingerprints), ')')
	}
	return to
}

func (s *Store) appendFingerprints(to []byte, fingerprints []uint32) []byte {
	if len(fingerprints) == 0 {
		return append(to, "NULL"...)
	}
	to = append(to, s.Hex[0]...)
	return append(positions.AppendHex(to, fingerprints), s.Hex[1]...)
}

// Compact implements positions.Store. It grows the first row and deletes the others.
// The first row is inserted, not updated: an update of a row that a later owner has
// merged away would find nothing, and so not meet the fence.
//
// It is sent once. If the connection is lost, the server may still get it later, and only
// a new epoch keeps it from undoing the compactions that follow.
func (c *Claim) Compact(ctx context.Context, r event.Range) error {
	statements := string(c.AppendRanges([]byte("START TRANSACTION;"), []event.Range{r})) + c.store.ReplaceRange +
		fmt.Sprintf(";DELETE FROM %s WHERE owner = %d AND first > %d AND first < %d;COMMIT", c.store.Table(RangesTable), c.ID, r.First, r.End())
	send := func(conn Conn) error { return conn.Exec(ctx, statements) }
	return c.store.Explain("compacting the committed ranges", c.store.Database.ConnectOnce(ctx, c.store.afterTables(ctx, send)))
}

// OutcomeUnknown implements positions.Store.
func (c *Claim) OutcomeUnknown(err error) bool {
	return c.store.Database.Classify(err) == Unknown && !errors.Is(err, sink.ErrFenced)
}
