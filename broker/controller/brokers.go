package controller

import "slices"

// starts are the brokers whose start waits to be noted.
type starts struct {
	due     bool // the note is to be written
	writing []start
}

type start struct {
	b           *broker
	incarnation int
}

// brokersRead compares the registrations with those known.
func (c *Controller) brokersRead(list []Broker) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Broker) int { return int(a.ID) - int(b.ID) })
	for _, id := range c.brokerIDs {
		b := c.brokers[id]
		if _, found := slices.BinarySearchFunc(list, id, func(b Broker, id int32) int { return int(b.ID) - int(id) }); b.registered && !found {
			c.brokerFailed(b)
		}
	}
	for _, r := range list {
		b := c.broker(r.ID)
		switch {
		case !b.registered:
			c.brokerStarts(b, r)
		case b.reg.Epoch == r.Epoch || r.Epoch < b.reg.Epoch:
		case !c.cfg.Rules.FenceBeforeReregister:
			// Before KIP-380: the id is there, as it was. The new incarnation is told everything.
			b.reg, b.handled, b.shuttingDown = r, r.Epoch, false
			b.reset(true)
			c.liveSeq++
			c.starts.due = true
		default:
			c.brokerFailed(b) // its registration vanished and came back unseen
			c.brokerStarts(b, r)
		}
	}
}

// brokerFailed: the incarnation is over. Its partitions, and no others, are looked at.
func (c *Controller) brokerFailed(b *broker) {
	b.registered, b.live, b.starting, b.shuttingDown = false, false, false, false
	b.incarnation++
	b.reset(false)
	c.liveSeq++
	c.away(b)
}

func (c *Controller) away(b *broker) {
	b.away, b.awaySince = true, c.now
	b.replaceScan = c.now + c.cfg.ReplaceAfter
	for _, p := range b.partitions {
		p.offline = without(p.offline, []int32{b.id})
		p.stale = true // an offline replica more
		c.decideLater(p)
	}
}

// brokerStarts begins a new incarnation: (1) every state that names the earlier one as
// leader or in the ISR is changed, and if the start is unclean, its place in every ELR is
// taken away (A6, A7); (2) that this was done is noted; (3) the broker counts as live and is sent
// everything. Before (3) it gets no command, so it cannot come into an ISR, and what
// (1) finds is of an earlier incarnation without doubt. A controller that dies in between
// leaves no note, and the next begins with (1).
func (c *Controller) brokerStarts(b *broker, r Broker) {
	b.reg, b.registered, b.away = r, true, false
	b.incarnation++
	if b.handled == r.Epoch {
		c.goLive(b)
		return
	}
	b.starting = true
	b.unclean = !StartsClean(r, b.handled)
	incarnation := b.incarnation
	c.await(slices.Clone(b.partitions), func() {
		if b.incarnation == incarnation {
			b.ready = true
			c.starts.due = true
		}
	})
}

// StartsClean: every incarnation since the one that was handled stopped cleanly.
func StartsClean(r Broker, handled int64) bool {
	return handled >= 0 && handled <= r.CleanEpoch && r.CleanEpoch-r.CleanRun <= handled && (r.CleanEpoch == handled || r.CleanEpoch == r.Epoch-1)
}

func (c *Controller) goLive(b *broker) {
	b.starting, b.unclean, b.ready, b.live = false, false, false, true
	b.handled = b.reg.Epoch
	b.reset(true)
	c.liveSeq++
	for _, p := range b.partitions {
		p.stale = true
		c.decideLater(p)
	}
}

// pumpStarts writes the note of all starts that were dealt with.
func (c *Controller) pumpStarts() {
	s := &c.starts
	if !s.due || s.writing != nil {
		return
	}
	s.due = false
	s.writing = []start{}
	var note []BrokerEpoch
	for _, id := range c.brokerIDs {
		b := c.brokers[id]
		switch {
		case b.starting && b.ready:
			s.writing = append(s.writing, start{b, b.incarnation})
			note = append(note, BrokerEpoch{id, b.reg.Epoch})
		case b.handled >= 0:
			note = append(note, BrokerEpoch{id, b.handled})
		}
	}
	c.emit(WriteHandled{c.checkVersion(), note})
}

func (c *Controller) handledWritten(o Outcome) {
	s := &c.starts
	done := s.writing
	if done == nil {
		return
	}
	s.writing = nil
	switch o {
	case Accepted:
		for _, d := range done {
			if d.b.incarnation == d.incarnation && d.b.starting {
				c.goLive(d.b)
			}
		}
	case Fenced:
		c.fenced()
	default:
		c.retryLater(func() { s.due = true })
	}
}

// logDirFailed asks a broker which of its replicas are gone, by telling it all of them again.
func (c *Controller) logDirFailed(id int32) {
	if b := c.brokers[id]; b != nil && b.live {
		for _, p := range b.partitions {
			b.addLAI(p)
		}
	}
}

// replicaOffline: the log directory of a replica failed. It is dead though its broker lives.
func (c *Controller) replicaOffline(p *partition, id int32) {
	if b := c.lookup(p, id); b == nil || !b.live || slices.Contains(p.offline, id) || !slices.Contains(p.replicas, id) {
		return
	}
	p.offline = append(slices.Clone(p.offline), id)
	p.stale = true
	c.decideLater(p)
}
