package mysql

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// A fault is what a proxy does to the next packet that ends in COMMIT or, where
// that loads, to the end of what is loaded.
type fault int

const (
	none        fault = iota
	dropRequest       // the connection is cut before the server has the packet
	dropReply         // the connection is cut when the server has carried it out
	delay             // the client's side is cut, and the server gets the packet when late is called
)

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

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	replies := make(chan struct{})
	var muted sync.Mutex // held while a fault keeps replies from the client
	go func() {
		defer close(replies)
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				client.Close()
				return
			}
			if muted.TryLock() {
				_, _ = client.Write(buf[:n])
				muted.Unlock()
				continue
			}
			return // the server has answered the packet with the fault
		}
	}()
	buf := make([]byte, 64<<10)
	loading := false
	for {
		n, err := client.Read(buf)
		if err != nil {
			server.Close()
			break
		}
		f := none
		switch {
		case bytes.Contains(buf[:n], []byte("LOAD DATA")):
			loading = true
		case loading && n >= 4 && bytes.Equal(buf[n-4:n-1], make([]byte, 3)): // an empty packet
			loading, f = false, p.take()
		case bytes.HasSuffix(buf[:n], []byte("COMMIT")):
			f = p.take()
		}
		switch f {
		case dropRequest:
			server.Close()
		case dropReply, delay:
			muted.Lock()
			if f == delay {
				client.Close()
				<-p.late
				defer close(p.done)
			}
		}
		if _, err := server.Write(buf[:n]); err != nil || f != none {
			break
		}
	}
	<-replies
}
