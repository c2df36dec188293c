package main

// A contestant is one way to do the jobs.
type contestant int

const (
	plainM        contestant = iota // each operation on its own, in M
	transactionsM                   // in transactions, in M
	fromLuaJIT
	fromLua54
	contestants // their number
)

// A job is done by the contestants that have a program for it. M has two ways to write: each
// set is a transaction of its own, or many are one.
type job struct {
	title               string
	m, mTransactions    string // labels of bench.m
	asM                 string // title of the job with whose times of M to compare, if this one has none
	lua                 string // function of bench.lua
	count, nodes, batch int
}

// deepNodes is the number of nodes of five levels. The figures rotate over few of them.
const (
	deepNodes = 1_000_000
	fewNodes  = 1000
	batchSize = 100_000 // operations in a transaction
)

// Titles of jobs that the figures name.
const (
	loadInts         = "load integer siblings"
	walkInts         = "walk integer siblings"
	walkIntValues    = "walk integer siblings with values"
	walkStrings      = "walk string siblings"
	walkStringValues = "walk string siblings with values"
	getFew           = "get, 1,000 nodes"
	setFew           = "set, 1,000 nodes, in transactions"
	incrFew          = "increment, 1,000 nodes, in transactions"
	setCommitted     = "set, 1,000 nodes, each committed"
	dotPath          = "path of four steps, 16 nodes"
	plainTable       = "the same path in plain tables"
)

// jobs returns the jobs in the order in which each contestant does them.
func (b *bench) jobs() []job {
	operations := b.operations
	batch := min(batchSize, operations)
	deep := min(deepNodes, operations)
	nodes := min(b.siblings, operations) // a complete node costs more than a subscript
	return []job{
		{title: loadInts, m: "loadInts", lua: "loadInts", count: b.siblings, nodes: b.siblings, batch: batch},
		{title: "load string siblings", m: "loadStrings", lua: "loadStrings", count: b.siblings, nodes: b.siblings, batch: batch},
		{title: "load nodes of five levels", m: "loadDeep", lua: "loadDeep", count: deep, nodes: deep, batch: batch},
		{title: walkInts, m: "walkInts", lua: "walkInts", count: b.siblings},
		{title: walkIntValues, m: "walkIntValues", lua: "walkIntValues", count: b.siblings},
		{title: "walk integer siblings, complete nodes", asM: walkIntValues, lua: "walkIntNodes", count: nodes},
		{title: walkStrings, m: "walkStrings", lua: "walkStrings", count: b.siblings},
		{title: walkStringValues, m: "walkStringValues", lua: "walkStringValues", count: b.siblings},
		{title: "walk string siblings, complete nodes", asM: walkStringValues, lua: "walkStringNodes", count: nodes},
		{title: getFew, m: "get", lua: "getTransactions", count: operations, nodes: fewNodes, batch: batch},
		{title: "get, 1,000 nodes, each on its own", m: "get", lua: "get", count: operations, nodes: fewNodes},
		{title: setFew, m: "set", mTransactions: "setTransactions", lua: "setTransactions", count: operations, nodes: fewNodes, batch: batch},
		{title: incrFew, m: "incr", mTransactions: "incrTransactions", lua: "incrTransactions", count: operations, nodes: fewNodes, batch: batch},
		{title: setCommitted, m: "set", lua: "set", count: operations, nodes: fewNodes},
		{title: "get, 1,000,000 nodes", m: "get", lua: "getMany", count: operations, nodes: deep, batch: batch},
		{title: "set, 1,000,000 nodes, in transactions", m: "set", mTransactions: "setTransactions", lua: "setMany", count: operations, nodes: deep, batch: batch},
		{title: "increment, 1,000,000 nodes, in transactions", m: "incr", mTransactions: "incrTransactions", lua: "incrMany", count: operations, nodes: deep, batch: batch},
		{title: dotPath, lua: "dotPath", count: 16 * operations},
		{title: plainTable, lua: "plainTable", count: 16 * operations},
	}
}
