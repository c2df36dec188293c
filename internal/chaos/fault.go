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

// FaultCounts holds how many faults of each kind a round injects.
type FaultCounts map[FaultKind]int

// ScheduleFaults returns the faults of a round in the order that the seed determines.
// Kills at points use the points in turn.
func ScheduleFaults(share FaultCounts, points []pipeline.Point, seed uint64) []Fault {
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

// KillPoints returns the points that a pipeline with this many sinks passes.
func KillPoints(sinks int) []pipeline.Point {
	var points []pipeline.Point
	for _, point := range pipeline.Points() {
		several := point == pipeline.AfterOutbox || point == pipeline.BeforeReplay
		if !several || sinks > 1 {
			points = append(points, point)
		}
	}
	return points
}
