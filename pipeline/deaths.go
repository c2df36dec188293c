package pipeline

import (
	"log/slog"
	"sync"
	"time"

	"github.com/perigeedb/perigee/event"
)

// deaths logs dead letters: the first, then one every sayEvery with how many
// there were in between.
type deaths struct {
	mu     sync.Mutex
	said   time.Time
	unsaid int
}

func (d *deaths) report(log *slog.Logger, partition string, dead []event.Dead) {
	if len(dead) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsaid += len(dead)
	if now := time.Now(); now.Sub(d.said) >= sayEvery {
		last := &dead[len(dead)-1]
		log.Warn("dead letters", "count", d.unsaid, "partition", partition,
			"position", last.Position, "stage", last.Stage, "error", last.Error)
		d.said, d.unsaid = now, 0
	}
}
