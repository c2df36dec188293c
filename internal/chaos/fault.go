package chaos

import (
	"math/rand/v2"

	"github.com/perigeedb/perigee/pipeline"
)

// A FaultKind names a fault of a process, a connection or a data folder.
type FaultKind string

const (
	KillWorker           FaultKind = "kill worker"
	KillAtPoint          FaultKind = "kill worker at"
	KillUntilTakeover    FaultKind = "kill worker, others take over"
	KillChildren         FaultKind = "kill child processes of a worker"
	KillRedis            FaultKind = "kill Redis"
	KillDatabase         FaultKind = "kill database"
	SuspendInTransaction FaultKind = "suspend worker in a transaction, others take over"
	RestoreRedis         FaultKind = "restore Redis from a snapshot"
	RestoreDatabase      FaultKind = "restore an older database, workers must stop"
	CutConnections       FaultKind = "close connections"
	CutInsidePacket      FaultKind = "close inside a packet"
	DropReply            FaultKind = "drop a reply"
	StallConnections     FaultKind = "stall connections"
	DelayConnections     FaultKind = "delay connections"
)

// killCount returns how many processes a fault of this kind kills.
func (k FaultKind) killCount() int64 {
	switch k {
	case KillWorker, KillAtPoint, KillUntilTakeover, KillChildren, KillRedis, KillDatabase, RestoreRedis:
		return 1
	case RestoreDatabase:
		return 3
	}
	return 0
}

// A Fault is one scheduled fault.
type Fault struct {
	Kind  FaultKind
	Point pipeline.Point // set for KillAtPoint
}

// String returns the name of the fault in the report.
func (f Fault) String() string {
	if f.Point != "" {
		return string(f.Kind) + " " + string(f.Point)
	}
	return string(f.Kind)
}

// faultCounts holds how many faults of each kind a round injects.
type faultCounts map[FaultKind]int

// ScheduleFaults sets the faults of a round for about this many kills, in the order that its seed
// determines.
func (r *Round) ScheduleFaults(kills int) {
	r.Faults = scheduleFaults(r.countFaults(kills), killPoints(len(r.Pipeline.Sinks)), r.Seed)
}

// usualKills is the number of kills in a round to which the counts in countFaults apply.
const usualKills = 70

// countFaults returns the faults of a round. Kills at points make up the number of kills; for
// usualKills, they are about six in ten.
func (r *Round) countFaults(kills int) faultCounts {
	few := func(n int) int { return (kills*n + usualKills/2) / usualKills }
	counts := faultCounts{
		KillWorker: few(10), KillRedis: few(7), KillDatabase: few(8),
		RestoreRedis: few(3), RestoreDatabase: few(2),
		CutConnections: few(2), CutInsidePacket: few(2), DropReply: few(2), StallConnections: few(2), DelayConnections: few(1),
	}
	if r.Pipeline.IsIsolated() {
		counts[KillChildren] = few(10)
	}
	if r.Workers > 1 {
		counts[KillUntilTakeover], counts[SuspendInTransaction] = few(4), few(3)
	}
	if r.Pipeline.HasState() {
		delete(counts, RestoreDatabase) // workers reject a home that is older than the copy
	}
	rest := int64(kills)
	for kind, count := range counts {
		rest -= int64(count) * kind.killCount()
	}
	counts[KillAtPoint] = max(1, int(rest))
	return counts
}

// scheduleFaults returns faults in the order that the seed determines. Kills at points use the
// points in turn.
func scheduleFaults(share faultCounts, points []pipeline.Point, seed uint64) []Fault {
	var all []Fault
	for _, kind := range faultKinds() {
		for i := range share[kind] {
			fault := Fault{Kind: kind}
			if kind == KillAtPoint {
				fault.Point = points[i%len(points)]
			}
			all = append(all, fault)
		}
	}
	random := rand.New(rand.NewPCG(seed, 1))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func faultKinds() []FaultKind {
	return []FaultKind{KillWorker, KillAtPoint, KillUntilTakeover, KillChildren, KillRedis, KillDatabase, SuspendInTransaction, RestoreRedis, RestoreDatabase,
		CutConnections, CutInsidePacket, DropReply, StallConnections, DelayConnections}
}

// killPoints returns the points that a pipeline with this many sinks passes.
func killPoints(sinks int) []pipeline.Point {
	var points []pipeline.Point
	for _, point := range pipeline.Points() {
		several := point == pipeline.AfterOutbox || point == pipeline.BeforeReplay
		if !several || sinks > 1 {
			points = append(points, point)
		}
	}
	return points
}
