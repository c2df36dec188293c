// Package child starts child processes of the running program and confines them. A child is the
// program itself, started again. It recognizes its role by an environment variable, gives up
// everything that it does not need, and serves its parent over a socket.
//
// The parent uses Start, which is safe for concurrent use, and the returned Process. The other
// functions change the calling process; a child calls them before it serves.
package child
