// Package child starts child processes of the running program and confines them. A child
// is the program itself, started again: it recognizes by a variable of its environment
// what it is to do, gives up what it does not need, and serves its parent over a socket.
//
// The parent uses Start and ReadTail; they are safe for concurrent use. The other
// functions change the process that calls them: a child calls them before it serves.
package child
