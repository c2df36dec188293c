package chaos

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A proxy relays the connections between one worker and one server, and injects faults
// into them.
type proxy struct {
	listener net.Listener
	server   string
	serving  sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]bool // open connections of both sides
	fault   packetFault
	hold    chan struct{} // closed on resume; nil unless packets are held
	replies bool          // hold only replies
	delay   time.Duration // of each packet
	closed  bool
}

// A packetFault is a fault of a single packet.
type packetFault int

const (
	noFault    packetFault = iota
	halfPacket             // send half of a packet to the server, then disconnect
	dropReply              // drop a reply of the server, then disconnect
	holdHalf               // send half of a large statement, and the rest on resume
)

// holdAfter is how many bytes of a statement holdHalf sends: more than one of the 16 KiB
// packets that carry rows to MariaDB, and less than the rows of a batch.
const holdAfter = 17_000

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
	p.track(client, server, true)
	defer p.track(client, server, false)
	answered, sent := make(chan struct{}), new(atomic.Int64)
	go func() {
		defer close(answered)
		defer client.Close()
		p.relay(server, client, true, sent)
	}()
	p.relay(client, server, false, sent)
	server.Close()
	<-answered
}

func (p *proxy) track(client, server net.Conn, open bool) {
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

// relay copies packets until either side closes or a fault disconnects. sent counts the
// bytes sent to the server since its last reply.
func (p *proxy) relay(from, to net.Conn, reply bool, sent *atomic.Int64) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.forwardPacket(to, buf[:n], reply, sent) || err != nil {
			return
		}
	}
}

func (p *proxy) forwardPacket(to net.Conn, packet []byte, reply bool, sent *atomic.Int64) (more bool) {
	before := sent.Load()
	if reply {
		sent.Store(0)
	} else {
		sent.Add(int64(len(packet)))
	}
	hold, delay, trick := p.nextAction(reply, before+int64(len(packet)))
	if hold != nil && trick != holdHalf {
		<-hold
	}
	if delay > 0 {
		time.Sleep(delay)
	}
	switch trick {
	case halfPacket:
		_, _ = to.Write(packet[:len(packet)/2])
		return false
	case dropReply:
		return false
	case holdHalf:
		half := max(0, holdAfter-int(before))
		if _, err := to.Write(packet[:half]); err != nil {
			return false
		}
		<-hold
		packet = packet[half:]
	}
	_, err := to.Write(packet)
	return err == nil
}

// nextAction returns what to do with the next packet, which ends after bytes of a
// statement. It clears the fault, which applies to one packet.
func (p *proxy) nextAction(reply bool, bytes int64) (hold chan struct{}, delay time.Duration, played packetFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold != nil && (reply || !p.replies) {
		hold = p.hold
	}
	if p.fault == halfPacket && !reply || p.fault == dropReply && reply || p.fault == holdHalf && !reply && bytes > holdAfter {
		played, p.fault = p.fault, noFault
	}
	if played == holdHalf {
		p.hold = make(chan struct{})
		hold, p.replies = p.hold, false
	}
	return hold, p.delay, played
}

// injectOnce applies a fault to the next packet that it fits.
func (p *proxy) injectOnce(t packetFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = t
}

// cutConnections closes all open connections.
func (p *proxy) cutConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// stall holds all packets, or only replies, until resume.
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

// setDelay sets the delay of each packet.
func (p *proxy) setDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// close stops listening and closes all connections.
func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.resume()
	p.cutConnections()
	p.serving.Wait()
}
