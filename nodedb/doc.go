// Package nodedb is a hierarchical, transactional, embedded database on LMDB.
//
// Its core is in C; nodedb.h is the contract. A store may be used by many goroutines, a
// session by one at a time.
package nodedb
