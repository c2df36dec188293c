package goplugin

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// runBatch passes the valid events to the plugin at once. If that fails, it runs each
// event alone, so that only those at fault become dead letters.
func (r *run) runBatch() {
	r.copyDocs()
	if len(r.docs) == 0 {
		return
	}
	err := r.call(r.docs, r.origin)
	if err == nil {
		return
	}
	if len(r.docs) > 1 {
		r.script.log.Warn("running the events of a batch again one by one", "script", r.script.name, "events", len(r.docs), "error", err)
		r.runEach()
		return
	}
	r.result.Fail(r.origin[0], "script", err)
}

// runEach runs the valid events one by one.
func (r *run) runEach() {
	_ = r.start() // it had the memory before
	r.copyDocs()
	for k := range r.docs {
		if r.ctx.Err() != nil || r.limit != nil {
			return
		}
		if err := r.call(r.docs[k:k+1], r.origin[k:k+1]); err != nil {
			r.result.Fail(r.origin[k], "script", err)
		}
	}
}

// copyDocs copies the valid documents, so that a plugin may change them in place.
func (r *run) copyDocs() {
	r.data, r.docs, r.origin = append(r.data[:0], r.in.Data...), r.docs[:0], r.origin[:0]
	from := uint32(0)
	for i, end := range r.in.Ends {
		if !r.result.Failed(i) {
			r.docs = append(r.docs, r.data[from:end:end])
			r.origin = append(r.origin, i)
		}
		from = end
	}
}

// A call is one call of a plugin's function for batches.
type call struct {
	*run
	origin []int
	last   int   // document that was emitted
	misuse error // of emit or fail; the function may have recovered from it
	over   atomic.Bool
}

func (r *run) call(docs [][]byte, origin []int) (err error) {
	c := &call{run: r, origin: origin}
	defer c.over.Store(true)
	defer func() {
		if c.misuse != nil {
			err = c.misuse
		}
	}()
	defer r.script.plugin.recoverPanic(&err)
	if p := r.script.plugin; p.Route != nil {
		p.Route(docs, c.emitTo, c.fail)
	} else {
		p.Batch(docs, c.emit, c.fail)
	}
	return nil
}

func (c *call) emit(event int, doc []byte) { c.emitDocument(event, doc, 0) }

func (c *call) emitTo(event int, doc []byte, sinks ...string) {
	to, err := c.script.opts.Route(sinks...)
	if err != nil {
		c.fail(event, err)
		return
	}
	c.emitDocument(event, doc, to)
}

func (c *call) emitDocument(event int, doc []byte, to uint64) {
	c.checkCall("emit", event)
	if event < c.last {
		c.panicMisuse(fmt.Errorf("emit was called for event %d after event %d: emit in the order of the events", event, c.last))
	}
	c.last = event
	i := c.origin[event]
	if c.limit != nil || c.result.Failed(i) {
		return
	}
	rows := c.result.Rows()
	rows.Data = append(rows.Data, doc...)
	c.endDocument(i, to)
}

func (c *call) fail(event int, err error) {
	c.checkCall("fail", event)
	if err == nil {
		err = errors.New("the plugin passed a nil error")
	}
	c.result.Fail(c.origin[event], "script", err)
}

// checkCall panics if a plugin violates the contract of emit and fail.
func (c *call) checkCall(name string, event int) {
	if c.over.Load() {
		panic(name + " was called after the function that it was given to had returned")
	}
	if event < 0 || event >= len(c.origin) {
		c.panicMisuse(fmt.Errorf("%s was called for event %d of %d: events count from 0", name, event, len(c.origin)))
	}
}

func (c *call) panicMisuse(err error) {
	c.misuse = err
	panic(err)
}
