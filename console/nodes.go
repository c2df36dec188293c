package console

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/perigeedb/perigee/admin"
	"github.com/perigeedb/perigee/event"
)

// A nodeSearch looks for text in the paths and values of nodes.
type nodeSearch struct {
	State string `json:"state"`
	Unit  string `json:"unit"`
	Path  string `json:"path"` // root of the nodes; "" for all
	Text  string `json:"text"` // case does not matter
}

// A nodeMatches is the result of a nodeSearch.
type nodeMatches struct {
	Nodes   []admin.StateNode `json:"nodes"`
	Scanned int               `json:"scanned"`
	Done    bool              `json:"done"` // all nodes were looked at
}

const (
	matchesMax = 200
	searchTime = 3 * time.Second
)

func (c *Console) searchNodes(ctx context.Context, q nodeSearch) (*nodeMatches, error) {
	if q.Text == "" {
		return nil, &event.Fault{Message: "no text to search for"}
	}
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	found, text := &nodeMatches{Nodes: []admin.StateNode{}}, strings.ToLower(q.Text)
	for n, err := range c.host.Admin.StateNodes(ctx, admin.NodeQuery{State: q.State, Unit: q.Unit, Path: q.Path}) {
		if errors.Is(err, context.DeadlineExceeded) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		found.Scanned++
		if strings.Contains(strings.ToLower(n.Path), text) || strings.Contains(strings.ToLower(n.Text()), text) {
			found.Nodes = append(found.Nodes, n)
		}
		if len(found.Nodes) == matchesMax || ctx.Err() != nil {
			return found, nil
		}
	}
	found.Done = true
	return found, nil
}
