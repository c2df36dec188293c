package stores

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/perigeedb/perigee/bench/dataset"
)

func TestMain(m *testing.M) {
	Init()
	os.Exit(m.Run())
}

const (
	testRows     = 5500
	testDistinct = 2000
)

func start(t *testing.T, s Settings) *Session {
	t.Helper()
	session, err := Start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Stop(); err != nil {
			t.Error(err)
		}
	})
	return session
}

func TestStoresFindTheSame(t *testing.T) {
	settings := Settings{Data: t.TempDir(), Rows: testDistinct, Clock: dataset.Clock{Step: 1_000_000}}
	if err := dataset.Render(settings.Data, testDistinct); err != nil {
		t.Fatal(err)
	}
	settings.Jars = os.Getenv("PERIGEE_QUESTDB_JARS")
	sessions := map[string]*Session{}
	for _, name := range []string{Perigee, DuckDB, Parquet, QuestDB} {
		settings.Store, settings.Folder = name, filepath.Join(t.TempDir(), "store")
		if name == QuestDB && settings.Jars == "" {
			continue
		}
		if name == Parquet {
			if err := sessions[DuckDB].CopyToParquet(settings.Folder); err != nil {
				t.Fatal(err)
			}
		}
		session := start(t, settings)
		sessions[name] = session
		if name == Parquet {
			continue
		}
		report, err := session.Write(Load{Batch: 1000, Writers: 2, Rows: testRows})
		if err != nil || report.Rows != testRows || report.Ack.Longest == 0 {
			t.Fatalf("%s: %+v, %v; want %d rows", name, report, err, testRows)
		}
		if _, err := session.Await(); err != nil {
			t.Fatal(err)
		}
	}
	for _, sql := range []string{
		"SELECT id, time, event, user_id, hash, country, url, value, status, meta FROM events",
		"SELECT event, count(*), sum(value) FROM events WHERE time >= '2026-01-01T00:10:00Z' GROUP BY event",
		"SELECT id FROM events WHERE hash = '" + dataset.Hash(testRows-1) + "'",
	} {
		want, _, err := sessions[DuckDB].Query(sql)
		if err != nil || want.Rows == 0 || want.Sum == 0 {
			t.Fatalf("%s: %+v, %v", sql, want, err)
		}
		for name, session := range sessions {
			got, _, err := session.Query(sql)
			if err != nil || got.Rows != want.Rows || got.Sum != want.Sum && name != QuestDB {
				t.Errorf("%s: %s finds %+v, %v; want %+v", sql, name, got, err, want)
			}
		}
	}
}

func TestOpenLoop(t *testing.T) {
	settings := Settings{Store: Raw, Folder: t.TempDir(), Data: t.TempDir(), Rows: testDistinct}
	if err := dataset.Render(settings.Data, testDistinct); err != nil {
		t.Fatal(err)
	}
	session := start(t, settings)
	report, err := session.Write(Load{Batch: 100, Writers: 2, Rows: 1000, Rate: 5000})
	if err != nil || report.Rows != 1000 || report.Took < 150*time.Millisecond {
		t.Errorf("%+v, %v; want 1000 rows in about 0.2 s", report, err)
	}
}

func TestProbeAndQueriesDuringALoad(t *testing.T) {
	settings := Settings{Store: Perigee, Folder: filepath.Join(t.TempDir(), "store"), Data: t.TempDir(), Rows: testDistinct, Clock: dataset.Clock{Step: 10}}
	if err := dataset.Render(settings.Data, testDistinct); err != nil {
		t.Fatal(err)
	}
	session := start(t, settings)
	report, err := session.Write(Load{Batch: 100, Writers: 2, Time: time.Second, Rate: 5000, Probe: true,
		Queries: []string{"SELECT count(*) FROM events", "SELECT nothing FROM events"}})
	if err != nil || report.Rows == 0 || report.Visible.Longest == 0 || report.Queries == 0 || len(report.Failed) == 0 {
		t.Errorf("%+v, %v; want rows, probes, answers and errors", report, err)
	}
}
