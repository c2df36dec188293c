package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/perigeedb/perigee/engine/config"
	"github.com/perigeedb/perigee/nodedb"
)

// bindState reads the nodes that a case expects.
func (r *runner) bindState(c *testCase, of config.Any) error {
	if r.pipeline.State == nil {
		return of.At(fmt.Errorf("pipeline %s has no state", r.pipeline.Config.Name), "write state: {name: NAME} in the pipeline, if its script is to have one")
	}
	entries, ok := of.Mapping()
	if !ok {
		return of.Unexpected("state", "a mapping of paths", `write the path of a node and its value: state: {'^users("ada")': 3}`)
	}
	var faults []error
	for _, e := range entries {
		node, err := expectNode(e)
		c.expect.state, faults = append(c.expect.state, node), append(faults, err)
	}
	return config.Join(faults...)
}

func expectNode(e config.Entry) (node expectedNode, err error) {
	node.path, err = nodedb.ParsePath(e.Key)
	switch {
	case err != nil:
		return node, e.At(err, `write the path of a node and its value: state: {'^users("ada")': 3}`)
	case !strings.HasPrefix(e.Key, "^"):
		return node, e.At(fmt.Errorf("%s is a tree in memory, which ends with its event", e.Key), "names of nodes in the state begin with ^: ^"+e.Key)
	case strings.HasPrefix(e.Key, "^%"):
		return node, e.At(errors.New("names that begin with a percent sign belong to Perigee"), "to see what timers do, wait for them: steps: [{events: [{…}]}, {wait: 30s}]")
	}
	if _, single := e.Value.Text(); !single && !e.Value.IsNull() {
		return node, e.Value.Unexpected("the value of "+e.Key, "text, a number, true or false, or null for none", "write each node with its path")
	}
	node.expected, err = expectedValue(e.Value, "")
	return node, err
}

// compareState compares the nodes that the case names.
func (j *judge) compareState(ctx context.Context) {
	if len(j.expect.state) == 0 {
		return
	}
	err := j.pipeline.State.View(ctx, func(tx *nodedb.Tx) error {
		for _, want := range j.expect.state {
			value, err := tx.Get(want.path)
			if err != nil {
				return err
			}
			text, err := value.MarshalJSON()
			if err != nil {
				return err
			}
			got, err := decode(text)
			if err != nil {
				return err
			}
			c := comparison{report: func(_ string, want1, got1 *any) {
				j.differ("state, "+want.path.String(), want.line, show(want1), show(got1))
			}}
			c.compare("", want.value, got)
		}
		return nil
	})
	if err != nil {
		j.differ("state", j.settings.State.Line(), "", err.Error())
	}
}
