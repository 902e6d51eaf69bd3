package real

import (
	"net"
	"testing"
	"time"
)

// closeCount is a connection that counts how often it was closed.
type closeCount struct {
	net.Conn
	n int
}

func (c *closeCount) Close() error { c.n++; return nil }

// Connections to where a broker was before it came back at another port are not kept for ever, nor is its address.
func TestConnectionsThatNobodyUsesAreClosed(t *testing.T) {
	p := &peers{idle: map[string][]*peerConn{}, busy: map[string]int{}}
	use := func(addr string) *closeCount {
		c := &closeCount{}
		p.busy[addr]++
		p.give(addr, &peerConn{conn: c}, true)
		return c
	}
	gone, stays := use("gone:1"), use("stays:1")
	p.idle["gone:1"][0].idleSince = time.Now().Add(-peerIdleFor)
	last := use("stays:1")
	if gone.n != 1 || stays.n != 0 || last.n != 0 {
		t.Errorf("closed: %d, %d and %d times", gone.n, stays.n, last.n)
	}
	if len(p.idle) != 1 || len(p.idle["stays:1"]) != 2 || len(p.busy) != 0 {
		t.Errorf("kept: %v idle, %v busy", p.idle, p.busy)
	}
}
