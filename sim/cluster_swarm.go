package sim

import (
	"math/rand/v2"
	"time"
)

// faultStream tells the chances of faults from those of everything else.
const faultStream = 0x6661_756c_7400_0000

// strike is a drawn fault. Its number tells it from the others, and everything about it (when, what,
// to whom, for how long) is drawn from the seed and that number alone: one that is left out
// shifts none of the draws of others.
type strike struct {
	number int
	chance *rand.Rand
}

// scheduleFault draws when the next fault comes.
func (c *Cluster) scheduleFault() {
	if c.healed {
		return
	}
	c.drawn++
	s := strike{c.drawn, rand.New(rand.NewPCG(c.seed, faultStream+uint64(c.drawn)))}
	var wait time.Duration
	c.byChanceOf(s, func() { wait = c.between(c.cfg.faultEvery/10, 3*c.cfg.faultEvery) })
	c.fault = c.after(nil, wait, func() {
		c.scheduleFault()
		if !c.leftOut(s.number) {
			c.byChanceOf(s, func() { c.drawFault(s) })
		}
	})
}

// byChanceOf runs f, in which every draw is one of the strike's own.
func (c *Cluster) byChanceOf(s strike, f func()) {
	main := c.rng
	c.rng = s.chance
	defer func() { c.rng = main }()
	f()
}

// drawFault lets one of the faults that are on happen to a broker in a role.
func (c *Cluster) drawFault(s strike) {
	k := pick(c.rng, c.kinds()...)
	c.trace.say(c.now, "fault %d: %s", s.number, k.name)
	noted := c.noteFault(s.number, k.name)
	if c.cfg.reacts && c.chance(2) {
		wait := c.between(0, 500*time.Millisecond)
		c.atNextChange(func() { c.after(nil, wait, func() { c.byChanceOf(s, func() { c.strike(k, noted) }) }) })
		return
	}
	c.strike(k, noted)
}

// strike lets a fault happen to a broker in a role.
func (c *Cluster) strike(k kind, noted *Drawn) {
	if c.healed {
		return
	}
	n := c.drawRole()
	c.trace.say(c.now, "fault %d strikes broker %d", noted.Number, n.id)
	c.aims(noted, n)
	if noted.Idle = !k.hit(c, n); !noted.Idle {
		c.faults++
	}
}

// kind is a fault that a swarm may draw. hit says whether it came about.
type kind struct {
	name string
	on   *bool
	hit  func(c *Cluster, n *node) bool
}

// kindsOf are all there are.
func kindsOf(f *clusterFaults) []kind {
	return []kind{
		{"kill", &f.kill, (*Cluster).faultKill}, {"kill soon", &f.kill, (*Cluster).faultKillSoon}, {"bounce", &f.bounce, (*Cluster).faultBounce},
		{"power", &f.power, (*Cluster).faultPower}, {"swap", &f.swap, (*Cluster).faultSwap}, {"stop", &f.stop, (*Cluster).faultStop}, {"pause", &f.pause, (*Cluster).faultPause},
		{"partition", &f.partition, (*Cluster).faultPartition}, {"one-way", &f.oneWay, (*Cluster).faultOneWay}, {"slow", &f.slowLink, (*Cluster).faultSlowLink},
		{"connections", &f.lostConns, (*Cluster).faultLostConns}, {"expire", &f.expire, (*Cluster).faultExpire}, {"away", &f.away, (*Cluster).faultAway},
		{"I/O", &f.ioErrors, (*Cluster).faultIO}, {"clock", &f.clockJump, (*Cluster).faultClock},
		{"move", &f.move, (*Cluster).faultMove}, {"reassign", &f.reassign, (*Cluster).faultReassign}, {"late", &f.late, (*Cluster).faultHold}, {"all", &f.together, (*Cluster).faultTogether},
	}
}

// drawKinds says which faults there are in a run: half of them in most, a handful in some, so that what
// one hides another shows, and few come together often.
func (f *clusterFaults) drawKinds(rng *rand.Rand) {
	all := kindsOf(f)
	if rng.IntN(3) == 0 {
		for range 2 + rng.IntN(3) {
			*pick(rng, all...).on = true
		}
		return
	}
	for _, k := range all {
		*k.on = rng.IntN(2) == 0
	}
	f.kill, f.ioErrors, f.together = true, rng.IntN(4) == 0, rng.IntN(4) == 0
}

// drawWeights says how often the kinds come beside each other: in some runs few of them make up most.
func drawWeights(rng *rand.Rand) []int {
	var all []int
	for range kindsOf(new(clusterFaults)) {
		all = append(all, pick(rng, 1, 1, 2, 8))
	}
	return all
}

// kinds are those that are on, each as often as it has weight.
func (c *Cluster) kinds() []kind {
	var all []kind
	for i, k := range kindsOf(&c.cfg.faults) {
		for range c.cfg.weights[i] {
			if *k.on {
				all = append(all, k)
			}
		}
	}
	return all
}

// reactionMax is how long a fault waits for the state of a partition to change.
const reactionMax = 3 * time.Second

// atNextChange lets f happen right after the next change of a partition's state (an election, a change of
// its ISR), or after a while without one: faults then meet a cluster that has not come to rest.
func (c *Cluster) atNextChange(f func()) {
	done := false
	once := func() {
		if !done && !c.healed {
			done = true
			f()
		}
	}
	c.changes = append(c.changes, once)
	c.after(nil, reactionMax, once)
}

// changed: the state of a partition was written.
func (c *Cluster) changed() {
	all := c.changes
	c.changes = nil
	for _, f := range all {
		f()
	}
}
