package sim

import (
	"time"
)

// end is one end of the network: a broker's machine, a client, the coordination
// service. The world numbers them.
type end int

// network is what lies between ends: how long messages take, which links are cut.
//
// A cut link loses nothing that a connection sent: it holds it, as TCP sends again
// and again, until the link is mended or the connection was given up. Since a
// connection may be given up with its messages still on their way, old messages
// arrive late.
type network struct {
	b     *base
	ends  int
	links []link // from*ends + to

	low, high time.Duration // of an ordinary message
	// One in spikes messages takes up to spikeMax; 0: none does.
	spikes   int
	spikeMax time.Duration
}

// link is one direction between two ends.
type link struct {
	cuts int           // faults that cut it now
	slow time.Duration // added to every message, at most
	held []heldMessage // came to a cut link, oldest first; bounded by what the ends may have in flight
}

type heldMessage struct {
	owner *process
	f     func()
}

func newNetwork(b *base, ends int) *network {
	return &network{b: b, ends: ends, links: make([]link, ends*ends), low: 50 * time.Microsecond, high: 2 * time.Millisecond}
}

func (n *network) link(from, to end) *link { return &n.links[int(from)*n.ends+int(to)] }

func (n *network) latency(from, to end) time.Duration {
	d := n.b.between(n.low, n.high)
	if n.spikes > 0 && n.b.chance(n.spikes) {
		d += n.b.between(0, n.spikeMax)
	}
	if s := n.link(from, to).slow; s > 0 {
		d += n.b.between(s/2, s)
	}
	return d
}

func (n *network) blocked(from, to end) bool { return n.link(from, to).cuts > 0 }

// transit lets f happen for owner when a message that leaves now arrives, d from now.
func (b *base) transit(from, to end, owner *process, d time.Duration, f func()) {
	if b.net == nil {
		b.after(owner, d, f)
		return
	}
	b.after(owner, d, func() { b.net.arrive(from, to, owner, f) })
}

func (n *network) arrive(from, to end, owner *process, f func()) {
	if l := n.link(from, to); l.cuts > 0 {
		n.b.trace.probe("message held by a cut link")
		l.held = append(l.held, heldMessage{owner, f})
		return
	}
	f()
}

// cut cuts one direction; each cut needs a mend of its own.
func (n *network) cut(from, to end) { n.link(from, to).cuts++ }

func (n *network) mend(from, to end) {
	l := n.link(from, to)
	if l.cuts--; l.cuts > 0 {
		return
	}
	held := l.held
	l.held = nil
	for _, m := range held { // in order: later events of the same time come later
		n.b.after(m.owner, n.low, m.f)
	}
}

// mendAll makes every link whole and fast.
func (n *network) mendAll() {
	for from := range end(n.ends) {
		for to := range end(n.ends) {
			l := n.link(from, to)
			l.slow = 0
			if l.cuts > 0 {
				l.cuts = 1
				n.mend(from, to)
			}
		}
	}
}
