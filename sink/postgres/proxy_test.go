package postgres

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// A fault is what a proxy does to the next packet that ends a COPY, after which
// the server commits.
type fault int

const (
	none        fault = iota
	dropRequest       // the connection is cut before the server has the packet
	dropReply         // the connection is cut when the server has carried it out
	delay             // the client's side is cut, and the server gets the packet when late is closed
)

// copyDone is the message that ends the data of a COPY.
var copyDone = []byte("c\x00\x00\x00\x04")

// A proxy stands between a sink and its server and cuts one connection.
type proxy struct {
	net.Listener
	server string

	mu    sync.Mutex
	fault fault
	late  chan struct{} // closed: deliver what was delayed
	done  chan struct{} // closed: the server has answered what was delayed
}

func newProxy(t *testing.T, server string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: listener, server: server, late: make(chan struct{}), done: make(chan struct{})}
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

func (p *proxy) set(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

func (p *proxy) take() fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.fault
	p.fault = none
	return f
}

// serve passes on what both sides say, up to a fault.
func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	to := make(chan net.Conn, 1) // where replies go; empty: nowhere
	to <- client
	ended := make(chan struct{})
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
				if bytes.Contains(buf[:n], []byte("COMMIT")) || bytes.Contains(buf[:n], []byte("ERROR")) {
					return // the server has answered the packet with the fault
				}
			}
		}
	}()
	p.forward(client, server, to)
	<-ended
}

func (p *proxy) forward(client, server net.Conn, to chan net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			server.Close()
			return
		}
		f := none
		if bytes.HasSuffix(buf[:n], copyDone) {
			f = p.take()
		}
		switch f {
		case dropRequest:
			server.Close()
			return
		case dropReply, delay:
			<-to
		}
		if f == delay {
			client.Close()
			<-p.late
			defer close(p.done)
		}
		if _, err := server.Write(buf[:n]); err != nil || f != none {
			return
		}
	}
}
