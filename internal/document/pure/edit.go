package pure

import (
	"slices"

	"github.com/perigeedb/perigee/internal/document/report"
)

// Put writes a field of an object and removes earlier fields with the same key. A container in v
// must be a Copy that does not belong to a document yet.
func (c *Container) Put(key string, v Value) error {
	if c.Kind() != Object {
		return ErrIsArray
	}
	if err := c.adopt(v); err != nil {
		return err
	}
	c.touch()
	i := c.find(key)
	if i < 0 {
		c.slots = append(c.slots, slot{key: key, value: v, written: true})
		if c.index != nil {
			c.index[key] = len(c.slots) - 1
		}
		c.makeIndex()
		return nil
	}
	c.removeBefore(i)
	c.slots[i] = slot{node: c.slots[i].node, key: key, value: v, written: true}
	return nil
}

// Remove removes all fields with a key.
func (c *Container) Remove(key string) error {
	if c.Kind() != Object {
		return ErrIsArray
	}
	i := c.find(key)
	if i < 0 {
		return nil
	}
	c.touch()
	c.slots[i].removed = true
	c.removeBefore(i)
	return nil
}

// removeBefore removes the text's fields before slot i that have the same key.
func (c *Container) removeBefore(i int) {
	if c.index != nil {
		for s := &c.slots[i]; s.earlier > 0; {
			before := &c.slots[s.earlier-1]
			s.earlier, before.removed, s = 0, true, before
		}
		return
	}
	for k := range min(i, c.text) {
		if c.slots[k].key == c.slots[i].key {
			c.slots[k].removed = true
		}
	}
}

// PutAt writes an element of an array, from 1 to one past its end.
func (c *Container) PutAt(index float64, v Value) error {
	if c.Kind() == Array && index == float64(c.Len()+1) {
		return c.Insert(index, v)
	}
	i, err := c.writable(index, c.Len())
	if err != nil {
		return err
	}
	if err := c.adopt(v); err != nil {
		return err
	}
	c.slots[i] = slot{value: v, written: true}
	return nil
}

// Insert inserts v at index and moves the elements from there up by one.
func (c *Container) Insert(index float64, v Value) error {
	i, err := c.writable(index, c.Len()+1)
	if err != nil {
		return err
	}
	if err := c.adopt(v); err != nil {
		return err
	}
	c.slots = slices.Insert(c.slots, i, slot{value: v, written: true})
	return nil
}

// RemoveAt removes an element and moves the following ones down by one.
func (c *Container) RemoveAt(index float64) error {
	i, err := c.writable(index, c.Len())
	if err != nil {
		return err
	}
	c.slots = slices.Delete(c.slots, i, i+1)
	return nil
}

// Permute reorders the elements of an array: element i becomes the former element
// order[i], both counted from 0.
func (c *Container) Permute(order []int) {
	c.open()
	c.touch()
	c.listed = true
	old := slices.Clone(c.slots)
	for i, from := range order {
		c.slots[i] = old[from]
	}
}

// writable prepares an array for a write at index and returns the index counted from 0.
func (c *Container) writable(index float64, last int) (int, error) {
	if c.Kind() != Array {
		return 0, ErrIsObject
	}
	i := int(index)
	if float64(i) != index || i < 1 || i > last {
		return 0, ErrNoIndex
	}
	c.open()
	c.touch()
	c.listed = true
	return i - 1, nil
}

// adopt makes c the parent of the container in v, unless that would be too deep in c.
func (c *Container) adopt(v Value) error {
	if v.Container == nil {
		return nil
	}
	depth := v.Container.height()
	for outer := c; outer != nil && depth <= report.MaxDepth; outer = outer.parent {
		depth++
	}
	if depth > report.MaxDepth {
		return ErrTooDeep
	}
	v.Container.parent = c
	return nil
}

// height returns the nesting depth of objects and arrays in the text of c.
func (c *Container) height() int {
	nodes, height := c.doc.node, 0
	var open []int // ends of the containers around node i
	for i := c.node; i < nodes[c.node].next; i++ {
		for len(open) > 0 && open[len(open)-1] <= i {
			open = open[:len(open)-1]
		}
		if nodes[i].kind == Object || nodes[i].kind == Array {
			open = append(open, nodes[i].next)
			height = max(height, len(open))
		}
	}
	return height
}

func (c *Container) touch() {
	c.open()
	for ; c != nil && !c.dirty; c = c.parent {
		c.dirty = true
	}
}

// Copy returns the container's current contents, in a document of its own.
func (c *Container) Copy() (*Container, error) {
	text, err := c.Append(nil)
	if err != nil {
		return nil, err
	}
	v, err := Parse(text)
	return v.Container, err
}
