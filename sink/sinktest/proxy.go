package sinktest

import (
	"net"
	"sync"
	"testing"
)

// A Fault is what a proxy does to a packet that makes the server commit.
type Fault int

const (
	NoFault     Fault = iota
	DropRequest       // the connection is cut before the server has the packet
	DropReply         // the connection is cut when the server has carried it out
	Delay             // the client's side is cut, and the server gets the packet when Late is closed
)

// A Wire is how a proxy knows what it passes on over one connection. Both are asked
// about what is read at once, which is a packet, its end, or several.
type Wire struct {
	Commits  func(packet []byte) bool // the server commits when it has this
	Answered func(reply []byte) bool  // it has committed, or has said that it can't
}

// A Proxy relays between a sink and its server and cuts one connection.
type Proxy struct {
	net.Listener
	Late chan struct{} // closed by the test: deliver what was delayed
	Done chan struct{} // closed by the proxy: the server has answered what was delayed

	server  string
	wire    func() Wire
	mu      sync.Mutex
	commits int // that were asked for
	fault   Fault
	sound   int // commits that pass before the fault
}

// NewProxy makes a proxy of server, a host and port, that ends with the test. Each
// connection has a wire of its own.
func NewProxy(t *testing.T, server string, wire func() Wire) *Proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Listener: listener, server: server, wire: wire, Late: make(chan struct{}), Done: make(chan struct{})}
	var group sync.WaitGroup
	t.Cleanup(func() { listener.Close(); group.Wait() })
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() { p.serve(client) })
		}
	})
	return p
}

// SetFault makes the next commit meet a fault.
func (p *Proxy) SetFault(f Fault) { p.SetFaultAfter(0, f) }

// SetFaultAfter makes a commit meet a fault after n sound ones.
func (p *Proxy) SetFaultAfter(n int, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sound, p.fault = n, f
}

// Waiting reports whether no commit has met the fault yet.
func (p *Proxy) Waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault != NoFault
}

// Commits returns how many commits clients have asked for.
func (p *Proxy) Commits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commits
}

// nextFault returns the fault that a commit meets.
func (p *Proxy) nextFault() Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits++
	if p.sound > 0 {
		p.sound--
		return NoFault
	}
	f := p.fault
	p.fault = NoFault
	return f
}

// serve passes on what both sides say, up to a fault.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	to := make(chan net.Conn, 1) // where replies go; empty: nowhere
	to <- client
	wire, ended := p.wire(), make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				client.Close()
				return
			}
			select {
			case c := <-to:
				_, _ = c.Write(buf[:n])
				to <- c
			default:
				if wire.Answered(buf[:n]) {
					return // the server has answered the packet with the fault
				}
			}
		}
	}()
	delayed := p.forward(client, server, to, wire.Commits)
	<-ended
	if delayed {
		close(p.Done)
	}
}

// forward passes on what the client says, up to a fault. It reports whether that was Delay.
func (p *Proxy) forward(client, server net.Conn, to chan net.Conn, commits func(packet []byte) bool) (delayed bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			server.Close()
			return false
		}
		f := NoFault
		if commits(buf[:n]) {
			f = p.nextFault()
		}
		switch f {
		case DropRequest:
			server.Close()
			return false
		case DropReply, Delay:
			<-to
		}
		if f == Delay {
			client.Close()
			<-p.Late
		}
		if _, err := server.Write(buf[:n]); err != nil || f != NoFault {
			return f == Delay
		}
	}
}
