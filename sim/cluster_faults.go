package sim

import (
	"slices"
	"time"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// A cut is a partition that is now, until it is mended.
type cut struct {
	from, to end
	both     bool
}

// drawRole picks a broker: the leader of a partition, a follower in its ISR, the controller, or any.
func (c *Cluster) drawRole() *node {
	partition := tp(int32(c.rng.IntN(int(c.cfg.partitions))))
	id := int32(-1)
	switch c.rng.IntN(4) {
	case 0:
		id = c.ghost.Leader(partition)
	case 1:
		if isr := c.ghost.InSync(partition); len(isr) > 0 {
			id = pick(c.rng, isr...)
		}
	case 2:
		id = c.tree.controller
	}
	if id < 1 {
		return pick(c.rng, c.nodes...)
	}
	return c.nodes[id-1]
}

func (c *Cluster) faultKill(n *node) bool {
	if n.live == nil {
		return false
	}
	c.kill(n)
	return true
}

// faultKillSoon kills in the middle of an operation of the disk.
func (c *Cluster) faultKillSoon(n *node) bool {
	if n.live == nil || n.live.crashIn > 0 {
		return false
	}
	n.live.crashIn, n.live.power = 1+c.rng.Int64N(pick(c.rng, int64(5), 40, 200)), c.drawPower(n)
	return true
}

// faultBounce restarts a broker faster than anybody notices.
func (c *Cluster) faultBounce(n *node) bool {
	if n.live == nil {
		return false
	}
	c.trace.probe("bounce")
	c.die(n, c.drawPower(n))
	c.after(nil, c.between(time.Millisecond, 20*time.Millisecond), func() { c.boot(n) })
	return true
}

// drawPower says whether a death may take unsynced data with it, within the envelope.
func (c *Cluster) drawPower(n *node) bool {
	return c.cfg.faults.power && c.chance(2) && c.lossAllowed(n)
}

// lossAllowed: E1 allows min.insync.replicas−1 lossy faults that are not re-replicated, E2
// any number of power cuts.
func (c *Cluster) lossAllowed(n *node) bool {
	if c.cfg.envelope == 2 {
		return true
	}
	return c.admin.created && c.ghost.Outstanding(n.id)+1 <= c.cfg.rules.MinISR-1 && c.pendingPower(n) == 0
}

// pendingPower counts the other brokers that will lose power in one of their next operations.
func (c *Cluster) pendingPower(but *node) int {
	count := 0
	for _, n := range c.nodes {
		if n != but && n.live != nil && n.live.crashIn > 0 && n.live.power {
			count++
		}
	}
	return count
}

func (c *Cluster) faultPower(n *node) bool {
	if n.live == nil || !c.lossAllowed(n) {
		return false
	}
	c.crash(n, true)
	return true
}

// faultSwap gives a broker an empty disk.
func (c *Cluster) faultSwap(n *node) bool {
	if n.live == nil || c.cfg.envelope == 2 || !c.lossAllowed(n) { // E2 is of power cuts alone
		return false
	}
	c.trace.probe("disk swapped")
	c.die(n, true)
	n.disk = vfs.NewSim(n.wall)
	n.say("has an empty disk")
	c.ghost.DiskSwapped(n.id)
	c.restartLater(n)
	return true
}

// faultStop shuts a broker down in order.
func (c *Cluster) faultStop(n *node) bool {
	i := n.live
	if i == nil || !i.open || i.stopping {
		return false
	}
	i.stopping = true
	n.say("shutdown begins")
	i.broker.Shutdown(func(err error) {
		c.after(&i.process, 0, func() {
			if err == nil {
				c.trace.probe("clean shutdown")
			}
			c.crash(n, false)
		})
	})
	c.after(&i.process, 30*time.Second, func() { c.kill(n) }) // its operator loses patience
	return true
}

func (c *Cluster) faultPause(n *node) bool {
	i := n.live
	if i == nil || i.paused {
		return false
	}
	c.trace.probe("process paused")
	n.say("stands still")
	c.pause(&i.process)
	c.after(nil, c.between(50*time.Millisecond, 20*time.Second), func() {
		if !i.dead && i.paused {
			n.say("goes on")
			c.resume(&i.process)
		}
	})
	return true
}

// otherEnd draws what a broker is cut off from: another broker, the coordination service, or a client.
func (c *Cluster) otherEnd(n *node) end {
	if c.chance(2) {
		return c.roleEnd(n)
	}
	for {
		e := end(c.rng.IntN(1 + len(c.nodes) + c.clients))
		if e != n.end {
			return e
		}
	}
}

func (c *Cluster) faultPartition(n *node) bool {
	if c.chance(2) { // from all brokers, or from everything
		to := end(len(c.nodes))
		if c.chance(2) {
			to += end(c.clients)
		}
		first := end(1)
		if c.chance(2) {
			first = coordEnd
		}
		d := c.between(100*time.Millisecond, 20*time.Second)
		c.trace.probe("broker isolated")
		for e := first; e <= to; e++ {
			if e != n.end {
				c.cutFor(cut{n.end, e, true}, d)
			}
		}
		return true
	}
	c.trace.probe("link cut")
	c.cutFor(cut{n.end, c.otherEnd(n), true}, c.between(100*time.Millisecond, 20*time.Second))
	return true
}

func (c *Cluster) faultOneWay(n *node) bool {
	c.trace.probe("link cut one way")
	x := cut{from: n.end, to: c.otherEnd(n)}
	if c.chance(2) {
		x.from, x.to = x.to, x.from
	}
	c.cutFor(x, c.between(100*time.Millisecond, 20*time.Second))
	return true
}

// cutFor cuts a link and mends it after d.
func (c *Cluster) cutFor(x cut, d time.Duration) {
	c.trace.say(c.now, "link from %d to %d is cut (both ways: %v)", int(x.from), int(x.to), x.both)
	c.cuts = append(c.cuts, x)
	c.net.cut(x.from, x.to)
	if x.both {
		c.net.cut(x.to, x.from)
	}
	c.blockCoord(x)
	c.after(nil, d, func() {
		if i := slices.Index(c.cuts, x); i >= 0 {
			c.cuts = slices.Delete(c.cuts, i, i+1)
			c.mend(x)
		}
	})
}

func (c *Cluster) mend(x cut) {
	c.trace.say(c.now, "link from %d to %d is mended", int(x.from), int(x.to))
	c.net.mend(x.from, x.to)
	if x.both {
		c.net.mend(x.to, x.from)
	}
	c.blockCoord(x)
}

func (c *Cluster) mendAll() {
	for _, x := range c.cuts {
		c.mend(x)
	}
	c.cuts = nil
	c.net.mendAll()
}

// blockCoord keeps a broker from the coordination service while a link between them is cut.
func (c *Cluster) blockCoord(x cut) {
	e := max(x.from, x.to)
	if min(x.from, x.to) != coordEnd || int(e) > len(c.nodes) {
		return
	}
	if c.net.blocked(coordEnd, e) || c.net.blocked(e, coordEnd) {
		c.trace.probe("broker cut off from the coordination service")
		c.service.Block(hostOf(int32(e)))
	} else {
		c.service.Unblock(hostOf(int32(e)))
	}
}

func (c *Cluster) faultSlowLink(n *node) bool {
	to := c.otherEnd(n)
	l := c.net.link(n.end, to)
	l.slow = c.between(10*time.Millisecond, 2*time.Second)
	c.trace.probe("slow link")
	c.trace.say(c.now, "link from %d to %d is slow: up to %v", int(n.end), int(to), l.slow)
	c.after(nil, c.between(time.Second, 20*time.Second), func() { l.slow = 0 })
	return true
}

func (c *Cluster) faultLostConns(n *node) bool {
	c.trace.probe("connection broken")
	c.service.Drop(hostOf(n.id))
	c.breakAll(func(k *conn) bool { return (k.to.node == n || k.from == n.end) && c.chance(2) })
	return true
}

func (c *Cluster) faultExpire(n *node) bool {
	if n.live == nil || len(n.live.sessions) == 0 {
		return false
	}
	c.trace.probe("session expired by fault")
	n.say("its session will expire")
	c.service.ExpireSession(n.live.sessions[len(n.live.sessions)-1].Session())
	return true
}

func (c *Cluster) faultAway(*node) bool {
	if c.service.IsDown() {
		return false
	}
	c.trace.probe("coordination service away")
	c.trace.say(c.now, "the coordination service is away")
	c.service.Down()
	c.after(nil, c.between(100*time.Millisecond, 20*time.Second), func() {
		c.trace.say(c.now, "the coordination service is back")
		c.service.Up()
	})
	return true
}

func (c *Cluster) faultIO(n *node) bool {
	i := n.live
	if i == nil || i.fail != nil {
		return false
	}
	i.fail = drawFailure(c.rng)
	c.after(&i.process, c.between(time.Second, 10*time.Second), func() { // somebody notices, and restarts it
		i.fail = nil
		if i.injected {
			c.kill(n)
		}
	})
	return true
}

func (c *Cluster) faultClock(n *node) bool {
	n.skew += pick(c.rng, time.Hour, -time.Hour, time.Second, -time.Second)
	c.trace.probe("clock jump")
	n.say("its wall clock jumps")
	return true
}
