package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidemark-log/tidemark/sim/ghost"
)

// Faults of the swarm in which nothing breaks: leadership and replicas move as operators move
// them, and messages are late.

// drawPartition picks one.
func (c *Cluster) drawPartition() ghost.TP { return tp(int32(c.rng.IntN(int(c.cfg.partitions)))) }

// faultMove gives the leadership of a partition to n and, often, away again, some times before
// everybody has heard.
func (c *Cluster) faultMove(n *node) bool {
	at := c.drawPartition()
	st := c.ghost.StateOf(at)
	if st.Leader < 1 || !slices.Contains(st.Replicas, n.id) {
		return false
	}
	c.trace.probe("leadership moved")
	back := c.nodes[st.Leader-1]
	if back == n {
		back = c.nodes[pick(c.rng, st.Replicas...)-1]
	}
	wait := time.Duration(0)
	for i := range 1 + c.rng.IntN(4) {
		to := n
		if i%2 == 1 {
			to = back
		}
		c.after(nil, wait, func() { c.moveTo(at, to) })
		wait += 150*time.Millisecond + c.between(0, pick(c.rng, 300*time.Millisecond, 3*time.Second))
	}
	return true
}

// moveTo moves leadership unless the faults are over.
func (c *Cluster) moveTo(at ghost.TP, to *node) {
	if !c.healed {
		c.move(at, []*node{to})
	}
}

// faultReassign gives a partition other replicas, or as many in another order, and often the
// old ones again soon.
func (c *Cluster) faultReassign(*node) bool {
	at := c.drawPartition()
	old := slices.Clone(c.ghost.StateOf(at).Replicas)
	least := max(c.cfg.rules.MinISR, 2)
	if len(old) < least {
		return false
	}
	c.trace.probe("partition reassigned")
	var all []int32
	for _, n := range c.nodes {
		all = append(all, n.id)
	}
	c.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if now := c.ghost.Leader(at); now > 0 && c.chance(2) { // its leader stays
		i := slices.Index(all, now)
		all[0], all[i] = all[i], all[0]
	}
	size := min(len(all), max(least, int(c.cfg.replicas)-c.rng.IntN(2)))
	c.reassign(at, all[:size])
	if c.chance(2) {
		c.after(nil, c.between(200*time.Millisecond, 5*time.Second), func() {
			if !c.healed {
				c.reassign(at, old)
			}
		})
	}
	return true
}

// lateMessages are what a hold of the swarm may be about: on the way to the broker, or from it.
var lateMessages = []struct {
	name string
	out  bool // the broker sends it
}{
	{"LeaderAndISR", false}, {"LeaderAndISR", false}, {"StopReplica", false}, {"UpdateMetadata", false},
	{"Fetch", true}, {"Fetch answer", false}, {"OffsetForLeaderEpoch", true}, {"OffsetForLeaderEpoch answer", false},
	{"write", true}, {"write answer", false}, {"read answer", false},
}

// faultHold lets messages of one kind to or from n be late (all of a time, or one that others then
// overtake) or not arrive: whoever sends them then sees the connection break. Other faults come meanwhile.
func (c *Cluster) faultHold(n *node) bool {
	kind := lateMessages[c.cfg.lateMessage]
	if c.chance(2) {
		kind = pick(c.rng, lateMessages...)
	}
	count := pick(c.rng, 1, 1, heldMax)
	lasts := c.between(100*time.Millisecond, 2*time.Second)
	if c.chance(2) {
		lasts = time.Duration(c.rng.Int64N(int64(20 * time.Second)))
	}
	loses := c.chance(3)
	for _, other := range c.farEnds(kind.name, n) {
		a, b := other, n.end
		if kind.out {
			a, b = b, a
		}
		h := c.holdFor(a, b, kind.name)
		h.left = count
		c.after(nil, lasts, func() {
			if loses {
				c.loseOf(h)
			}
			c.release(h)
		})
	}
	c.meanwhile(n, lasts)
	return true
}

// farEnds draws who is at the other end of messages that are late.
func (c *Cluster) farEnds(message string, n *node) []end {
	if key, _, _ := parseMessage(message); key < 0 {
		return []end{coordEnd}
	}
	var all []end
	for _, o := range c.nodes {
		if o != n {
			all = append(all, o.end)
		}
	}
	e := c.roleEnd(n)
	switch {
	case len(all) == 0 || c.chance(3):
		return all
	case e == coordEnd:
		return []end{pick(c.rng, all...)}
	}
	return []end{e}
}

// meanwhile lets some more faults that are on happen soon, often to the same broker.
func (c *Cluster) meanwhile(n *node, within time.Duration) {
	kinds := c.kinds()
	for range c.rng.IntN(4) {
		k, to := pick(c.rng, kinds...), n
		if c.chance(2) {
			to = c.drawRole()
		}
		if k.name == "late" || k.name == "all" {
			continue
		}
		own := strike{0, rand.New(rand.NewPCG(c.rng.Uint64(), faultStream))}
		c.after(nil, time.Duration(c.rng.Int64N(int64(within))), func() {
			if !c.healed {
				c.trace.say(c.now, "meanwhile: %s of broker %d", k.name, to.id)
				c.byChanceOf(own, func() {
					if k.hit(c, to) {
						c.faults++
					}
				})
			}
		})
	}
}

// roleEnd draws an end that matters to n: of the controller, of a leader, the coordination service.
func (c *Cluster) roleEnd(n *node) end {
	e := coordEnd
	switch c.rng.IntN(3) {
	case 0:
		e = end(max(c.tree.controller, 0))
	case 1:
		e = end(max(c.ghost.Leader(c.drawPartition()), 0))
	}
	if e == n.end {
		return coordEnd
	}
	return e
}

// faultTogether ends the lives of all brokers within moments, some of them with a power cut as far as the
// envelope allows.
func (c *Cluster) faultTogether(*node) bool {
	c.trace.probe("all brokers died together")
	for _, n := range c.nodes {
		c.after(nil, c.between(0, pick(c.rng, 5*time.Millisecond, time.Second)), func() {
			if n.live != nil && !c.healed {
				c.crash(n, c.drawPower(n))
			}
		})
	}
	return true
}
