package sim

import (
	"math/rand/v2"
	"slices"
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
	n := c.drawRole()
	c.trace.say(c.now, "fault %d: %s of broker %d", s.number, k.name, n.id)
	noted := c.noteFault(s.number, k.name, n)
	if noted.Idle = !k.hit(n); !noted.Idle {
		c.faults++
	}
}

// kind is a fault that a swarm may draw. hit says whether it came about.
type kind struct {
	name string
	on   bool
	hit  func(n *node) bool
}

// kinds are those that are on.
func (c *Cluster) kinds() []kind {
	f := &c.cfg.faults
	all := []kind{
		{"kill", f.kill, c.faultKill}, {"kill soon", f.kill, c.faultKillSoon}, {"bounce", f.bounce, c.faultBounce},
		{"power", f.power, c.faultPower}, {"swap", f.swap, c.faultSwap}, {"stop", f.stop, c.faultStop}, {"pause", f.pause, c.faultPause},
		{"partition", f.partition, c.faultPartition}, {"one-way", f.oneWay, c.faultOneWay}, {"slow", f.slowLink, c.faultSlowLink},
		{"connections", f.lostConns, c.faultLostConns}, {"expire", f.expire, c.faultExpire}, {"away", f.away, c.faultAway},
		{"I/O", f.ioErrors, c.faultIO}, {"clock", f.clockJump, c.faultClock},
	}
	return slices.DeleteFunc(all, func(k kind) bool { return !k.on })
}
