package chaos

import (
	"net"
	"sync"
	"time"
)

// A proxy stands between one worker and one server, and passes on what both say
// until it is told otherwise.
type proxy struct {
	listener net.Listener
	server   string
	serving  sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]bool // clients' and servers'
	trick   trick
	hold    chan struct{} // closed when what is held may go on; nil: nothing is
	replies bool          // only replies are held
	delay   time.Duration // before each packet
	closed  bool
}

// A trick is played on one packet.
type trick int

const (
	honest     trick = iota
	halfPacket       // the server gets half of a packet, and the connection is cut
	noReply          // the server gets a packet, its answer is lost, and the connection is cut
)

func newProxy(server string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, server: server, conns: make(map[net.Conn]bool)}
	p.serving.Go(p.accept)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.serving.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	p.note(client, server, true)
	defer p.note(client, server, false)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		defer client.Close()
		p.pass(server, client, true)
	}()
	p.pass(client, server, false)
	server.Close()
	<-answered
}

func (p *proxy) note(client, server net.Conn, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range []net.Conn{client, server} {
		if open && p.closed {
			c.Close()
		} else if open {
			p.conns[c] = true
		} else {
			delete(p.conns, c)
		}
	}
}

// pass passes on until either side ends or a trick ends it.
func (p *proxy) pass(from, to net.Conn, reply bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.forward(to, buf[:n], reply) || err != nil {
			return
		}
	}
}

func (p *proxy) forward(to net.Conn, packet []byte, reply bool) (more bool) {
	hold, delay, trick := p.state(reply)
	if hold != nil {
		<-hold
	}
	if delay > 0 {
		time.Sleep(delay)
	}
	switch trick {
	case halfPacket:
		_, _ = to.Write(packet[:len(packet)/2])
		return false
	case noReply:
		return false
	}
	_, err := to.Write(packet)
	return err == nil
}

// state is what holds for the next packet. A trick is played once.
func (p *proxy) state(reply bool) (hold chan struct{}, delay time.Duration, played trick) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold != nil && (reply || !p.replies) {
		hold = p.hold
	}
	if p.trick == halfPacket && !reply || p.trick == noReply && reply {
		played, p.trick = p.trick, honest
	}
	return hold, p.delay, played
}

// play plays a trick on the next packet.
func (p *proxy) play(t trick) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trick = t
}

// cut ends all connections as they are.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// stall holds all that is sent from now on, or only replies, until resume.
func (p *proxy) stall(replies bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold == nil {
		p.hold, p.replies = make(chan struct{}), replies
	}
}

func (p *proxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold != nil {
		close(p.hold)
		p.hold = nil
	}
}

// slow delays each packet from now on.
func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// close ends everything.
func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.resume()
	p.cut()
	p.serving.Wait()
}
