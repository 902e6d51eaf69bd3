package sim

import "time"

// Every seed of a cluster is worth at least this much, so that "so many seeds without a violation" says
// something of each one: simulated time, records acknowledged under acks=all, faults that came about.
const (
	VirtualMin = 60 * time.Second
	AckedMin   = 500
	FaultsMin  = 5
)

// A run whose part with faults ends with less than that goes on a step at a time, so many times at most.
const (
	overtimeStep = 5 * time.Second
	overtimeMax  = 72
)

// overtimeClocks is the step from which on all clocks are right at the beginning of each. A leader whose clock
// has jumped refuses what producers send (message.timestamp.after.max.ms), and until the heal nobody sets it right: a
// seed that mostly jumps clocks may come to nothing.
const overtimeClocks = 48

// overtimeBatches is how many more batches each producer under acks=all has to send in a step.
const overtimeBatches = 40

// Short says that the run was worth less than a seed is to be.
func (r *Result) Short() bool {
	return r.Cluster != nil && (r.Virtual < VirtualMin || r.Cluster.Acked < AckedMin || r.Cluster.Faults < FaultsMin)
}

// overtime lets the part with faults go on until the run is worth something, or for as many steps as it
// is told. Only the seed's own clients and faults are at work: stories and entries say themselves what happens.
func (c *Cluster) overtime() {
	if c.story != nil || c.hunted {
		return
	}
	for c.violation == "" && c.goesOn() {
		c.extra++
		c.trace.say(c.now, "overtime %d", c.extra)
		if c.extra == 1 {
			c.paceFaults()
		}
		if c.extra > overtimeClocks {
			for _, n := range c.nodes {
				n.skew = 0
			}
		}
		for _, p := range c.producers {
			if p.cfg.acks == -1 {
				p.more(overtimeBatches)
			}
		}
		c.playUntil(c.cfg.duration + time.Duration(c.extra)*overtimeStep)
	}
}

func (c *Cluster) goesOn() bool {
	if c.steps != nil {
		return c.extra < *c.steps
	}
	return c.extra < overtimeMax && (c.ghost.Acked < AckedMin || c.faults < FaultsMin)
}

// overtimeFaultEvery is slow enough for a cluster to recover between two faults, so that records are
// acknowledged, and fast enough for five of them.
const overtimeFaultEvery = 8 * time.Second

// paceFaults draws the next fault anew. A seed may have drawn only kinds that cannot come about in
// its world, as losses where none is allowed: so kills are on.
func (c *Cluster) paceFaults() {
	c.cfg.faults.kill = true
	c.cfg.faultEvery = overtimeFaultEvery
	c.stop(c.fault)
	c.scheduleFault()
}
