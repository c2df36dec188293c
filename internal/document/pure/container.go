package pure

// A Container is an object or an array of a document. Reading the same place again returns the same
// Container.
type Container struct {
	doc    *Document
	node   int
	parent *Container
	slots  []slot // fields or elements, created on first use
	opened bool   // slots is filled
	text   int    // number of leading slots from the text
	index  map[string]int
	dirty  bool // it, or something in it, was written
	listed bool // array: it was written itself

	// Handle is for the container's user, to refer to a counterpart.
	Handle any
}

// A slot is a field or an element: a node of the text, or a written value.
type slot struct {
	node    int // 0 if not from the text
	key     string
	value   Value
	open    *Container // the container of node, once it was read
	earlier int        // number, from 1, of the previous text field with the same key; 0: none
	written bool
	removed bool
}

// indexMin is the number of fields from which a map is faster than a search.
const indexMin = 16

// Kind returns Object or Array.
func (c *Container) Kind() Kind { return c.doc.node[c.node].kind }

// open fills the slots from the text.
func (c *Container) open() {
	if c.opened {
		return
	}
	c.opened = true
	parent := &c.doc.node[c.node]
	c.slots = make([]slot, 0, parent.count+1)
	for i := c.node + 1; i < parent.next; i = c.doc.node[i].next {
		c.slots = append(c.slots, slot{node: i, key: c.doc.key(i)})
	}
	c.text = len(c.slots)
	if parent.kind == Object {
		c.makeIndex()
	}
}

// makeIndex builds the index of an object that has become large.
func (c *Container) makeIndex() {
	if c.index != nil || len(c.slots) < indexMin {
		return
	}
	c.index = make(map[string]int, len(c.slots))
	for i := range c.slots {
		s := &c.slots[i]
		if before, ok := c.index[s.key]; ok {
			s.earlier = before + 1
		}
		c.index[s.key] = i
	}
}

func (d *Document) key(i int) string {
	n := &d.node[i]
	if !n.keyed {
		return ""
	}
	return plainText(d.text[n.key[0]:n.key[1]], n.keyEscaped)
}

// find returns the last slot with the key, even if it is removed.
func (c *Container) find(key string) int {
	c.open()
	if c.index != nil {
		if i, ok := c.index[key]; ok {
			return i
		}
		return -1
	}
	for i := len(c.slots) - 1; i >= 0; i-- {
		if c.slots[i].key == key {
			return i
		}
	}
	return -1
}

// Get returns the value of a field of an object.
func (c *Container) Get(key string) Value {
	if c.Kind() != Object {
		return Value{}
	}
	i := c.find(key)
	if i < 0 || c.slots[i].removed {
		return Value{}
	}
	return c.at(i)
}

// At returns an element of an array, counted from 1.
func (c *Container) At(index float64) Value {
	i := int(index)
	if c.Kind() != Array || float64(i) != index || i < 1 || i > c.Len() {
		return Value{}
	}
	c.open()
	return c.at(i - 1)
}

// Len returns the number of elements of an array, and 0 for an object.
func (c *Container) Len() int {
	switch {
	case c.Kind() != Array:
		return 0
	case c.opened:
		return len(c.slots)
	}
	return c.doc.node[c.node].count
}

// at returns the value of a slot.
func (c *Container) at(i int) Value {
	s := &c.slots[i]
	if s.written {
		return s.value
	}
	n := &c.doc.node[s.node]
	if n.kind != Object && n.kind != Array {
		return c.doc.scalar(n)
	}
	if s.open == nil {
		s.open = &Container{doc: c.doc, node: s.node, parent: c}
	}
	return Value{Kind: n.kind, Container: s.open}
}

// Step returns the number of the field after field i of an object, or -1 at the end; start with -1.
// Fields of the text come first, then added fields in the order of writing.
func (c *Container) Step(i int) (next int, key string, v Value) {
	if c.Kind() != Object {
		return -1, "", Value{}
	}
	c.open()
	for i++; i < len(c.slots); i++ {
		s := &c.slots[i]
		if !s.removed && (i >= c.text || c.find(s.key) == i) {
			return i, s.key, c.at(i)
		}
	}
	return -1, "", Value{}
}

// Find returns the number of a field for Step, even if it is removed, or -1.
func (c *Container) Find(key string) int {
	if c.Kind() != Object {
		return -1
	}
	return c.find(key)
}
