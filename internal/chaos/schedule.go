package chaos

import (
	"math/rand/v2"

	"github.com/perigeedb/perigee/pipeline"
)

// A Kind is something that happens to a process, a connection or a folder.
type Kind string

const (
	KillWorker      Kind = "kill worker"
	KillAtPoint     Kind = "kill worker at"
	KillForGood     Kind = "kill worker, others take over"
	KillRedis       Kind = "kill Redis"
	KillDatabase    Kind = "kill database"
	Freeze          Kind = "freeze worker in a transaction, others take over"
	RestoreRedis    Kind = "restore Redis from a snapshot"
	RestoreDatabase Kind = "restore database, worker must notice"
	Cut             Kind = "cut connections"
	CutPacket       Kind = "cut inside a packet"
	LoseReply       Kind = "lose a reply"
	Stall           Kind = "stall connections"
	Delay           Kind = "delay connections"
)

// kills is how many processes a fault of the kind kills.
func (k Kind) kills() int64 {
	switch k {
	case KillWorker, KillAtPoint, KillForGood, KillRedis, KillDatabase, RestoreRedis:
		return 1
	case RestoreDatabase:
		return 3
	}
	return 0
}

// A Fault is one of a kind. Its numbers decide where and when.
type Fault struct {
	Kind  Kind
	Point pipeline.Point // of KillAtPoint
}

// String is how the table calls it.
func (f Fault) String() string {
	if f.Point != "" {
		return string(f.Kind) + " " + string(f.Point)
	}
	return string(f.Kind)
}

// A Share is how many faults of each kind a round has.
type Share map[Kind]int

// Schedule makes the faults of a round in the order of a seed. Kills at points go
// through the points in turn.
func Schedule(share Share, points []pipeline.Point, seed uint64) []Fault {
	var all []Fault
	for _, kind := range kinds() {
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

func kinds() []Kind {
	return []Kind{KillWorker, KillAtPoint, KillForGood, KillRedis, KillDatabase, Freeze, RestoreRedis, RestoreDatabase,
		Cut, CutPacket, LoseReply, Stall, Delay}
}

// Points are those that a pipeline with so many sinks passes.
func Points(sinks int) []pipeline.Point {
	var points []pipeline.Point
	for _, point := range pipeline.Points() {
		several := point == pipeline.AfterOutbox || point == pipeline.BeforeReplay
		if !several || sinks > 1 {
			points = append(points, point)
		}
	}
	return points
}
