package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const ownConfig = `
data: ${DATA:-here}
computed:
  - {name: key, type: string, func: make://identifier}
  - {name: label, type: string, func: label.lua}
pipelines:
  other: {source: {stdin: {}}, sink: {stdout: {}}}
  orders:
    source: {redis: {address: ${REDIS}, stream: orders, password: ${SECRET}}}
    script: {lua: orders.lua, event_time: 50ms}
    sinks:
      rows:
        mysql: {address: "${MYSQL:-a:1}", user: me, password: "${PW}", database: shop, table: orders, mode: upsert, primary_key: [number],
                columns: [{name: number, type: int64, field: order.id}, {name: sum, type: float64}]}
      audit: {eventstore: {table: audit}, routed: true}
      cache: {redis: {address: "cache:1", password: "${PW}", hash: "order:{order.id}"}}
      files: {file: {folder: /orders, pack: gzip}}
    lanes: ${LANES}
`

func readOwn(t *testing.T, field string) (*Pipeline, error) {
	t.Helper()
	return ReadPipeline(ownConfig, "orders", field, func(code string) (string, error) { return "/located/" + code, nil })
}

func TestPipelineMovesToPrivateServers(t *testing.T) {
	p, err := readOwn(t, "order.id")
	if err != nil {
		t.Fatal(err)
	}
	if !p.Stream || len(p.Sinks) != 4 || p.Sinks[0].Column != "order.id" || p.Sinks[1].Column != "order.id" || p.Sinks[3].Column != "number" || !p.HasLeases() {
		t.Errorf("%+v", p)
	}
	file := filepath.Join(t.TempDir(), "p.yaml")
	if err := p.writeConfig(file, addresses{data: "/d", source: "r:1", files: "/f", databases: map[string]string{MySQL: "m:1", Redis: "s:1"}}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"data: /d", "address: r:1", "address: m:1", "verified:*", "/located/orders.lua", "/located/label.lua",
		"event_time: 50ms", "lanes: ${LANES}", "database: verified", "table: verified_4", "address: s:1", "list: verified_2", "folder: /f/verified_3", "pack: gzip", "routed: true", "lease: 2s"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, not := range []string{"SECRET", "PW", "upsert", "primary_key", "other", "shop", "hash", "cache:1"} {
		if strings.Contains(string(text), not) {
			t.Errorf("%q is in\n%s", not, text)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"unknown pipeline":        `pipelines: {a: {sink: {mysql: {columns: [{name: id}]}}}}`,
		"does not support":        `pipelines: {orders: {sink: {stdout: {}}}}`,
		"no column for the field": `pipelines: {orders: {sink: {mysql: {columns: [{name: a}, {name: id, field: b}]}}}}`,
	} {
		if _, err := ReadPipeline(text, "orders", "id", nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := ReadPipeline(`pipelines: {a: {}, b: {}}`, "", "id", nil); err == nil || !strings.Contains(err.Error(), "--pipeline: a, b") {
		t.Errorf("of two pipelines: %v", err)
	}
}

func TestScheduleFollowsFromSeed(t *testing.T) {
	share := faultCounts{KillWorker: 10, KillAtPoint: 20, CutConnections: 5}
	one, same, other := scheduleFaults(share, killPoints(1), 1), scheduleFaults(share, killPoints(1), 1), scheduleFaults(share, killPoints(1), 2)
	if len(one) != 35 {
		t.Fatalf("%d faults", len(one))
	}
	differ := 0
	for i := range one {
		if one[i] != same[i] {
			t.Errorf("fault %d is %v and %v", i, one[i], same[i])
		}
		if one[i] != other[i] {
			differ++
		}
	}
	if differ == 0 {
		t.Error("another seed has the same order")
	}
	if len(killPoints(2)) != len(killPoints(1))+2 {
		t.Errorf("points of two sinks: %v", killPoints(2))
	}
}
