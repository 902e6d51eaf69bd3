package sim

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/experiments/history"
	"github.com/tidemark-log/tidemark/sim/ghost"
)

// Cluster is a run of several brokers, the coordination service between them, and
// their clients.
type Cluster struct {
	base
	cfg     clusterConfig
	nodes   []*node // by broker id, from 1
	service *coord.Model
	ghost   *ghost.State
	tree    treeSeen

	partitions []*history.Partition
	resets     []int // of each partition, that its history has heard of
	admin      *clusterAdmin
	producers  []*clusterProducer
	consumers  []*clusterConsumer
	clients    int // ends of the network given to clients

	story   *story // nil: faults are drawn
	fault   *event
	faults  int64 // that happened
	drawn   int   // faults, each with its number
	without []int // drawn faults, by number, that do not happen
	only    []int // unless nil, those that happen
	hunted  bool  // it has the vector of an entry
	extra   int   // steps of overtime that have begun
	steps   *int  // unless nil, how many there are
	struck  []*Drawn
	changes []func() // that wait for the state of a partition to change
	cuts    []cut    // partitions that are now
	holds   []*hold

	breaks   []string // invariants of which one is waited for, over other broken ones; none: the first ends the run
	broken   string   // what broke first on the way there
	onTheWay []string // all of that, by name
}

// coordEnd is the coordination service's place in the network.
const coordEnd end = 0

// clientsMax bounds producers, consumers and the admin.
const clientsMax = 16

// newCluster draws a cluster from the seed. Nothing has happened yet.
func newCluster(seed uint64, o Options) *Cluster {
	c := &Cluster{base: newBase(seed, clusterProbes(), o.Echo)}
	c.cfg = drawCluster(c.rng, o)
	if o.Scenario == nil {
		c.cfg.drawEnd(seed)
		c.cfg.drawStamps(seed)
	}
	c.without, c.only, c.steps, c.hunted = o.Without, o.Only, o.Overtime, o.Entry != nil
	for i := range min(len(o.Batches), len(c.cfg.producers)) {
		c.cfg.producers[i].batches = o.Batches[i]
	}
	if o.Scenario != nil {
		c.story = &story{Scenario: o.Scenario}
		if err := c.cfg.applyScenario(o.Scenario, o.Bug); err != nil {
			c.violated("the scenario cannot be played: %v", err)
		}
	}
	if o.Entry != nil {
		if err := c.cfg.applyVector(o.Entry, o.Bug); err != nil {
			c.violated("the entry's vector is refused: %v", err)
		}
	}
	if waits := cmp.Or(o.Scenario, o.Entry); waits != nil && o.Bug {
		c.breaks = waits.Breaks
	}
	c.net = newNetwork(&c.base, 1+c.cfg.brokers+clientsMax)
	c.net.high, c.net.spikes, c.net.spikeMax = c.cfg.latencyMax, c.cfg.spikes, c.cfg.spikeMax
	c.slow = c.cfg.slow
	c.answered = c.acks
	c.service = coord.NewModel(schedule{&c.loop, nil}, c.rng, c.cfg.coord)
	c.ghost = ghost.New(c.cfg.brokers, c.cfg.rules, c.ghostSays, c.probeMany)
	c.partitions = history.New(int(c.cfg.partitions), history.Promises{RetentionMs: c.cfg.rules.RetentionMs, RetentionBytes: c.cfg.rules.RetentionBytes})
	c.resets = make([]int, c.cfg.partitions)
	c.trace.say(0, "%s", c.cfg.String())
	for id := range c.cfg.brokers {
		n := newNode(&c.base, int32(id)+1, c.cfg.syncMax)
		n.end = end(id + 1)
		n.skew, n.drift = c.cfg.skews[id], c.cfg.drifts[id]
		c.nodes = append(c.nodes, n)
	}
	c.admin = newClusterAdmin(c)
	for i, p := range c.cfg.producers {
		c.producers = append(c.producers, newClusterProducer(c, i, p))
	}
	for i := range c.cfg.consumers + c.cfg.readers {
		r := newClusterConsumer(c, i)
		for _, l := range r.parts {
			l.anyReplica = i >= c.cfg.consumers
		}
		c.consumers = append(c.consumers, r)
	}
	return c
}

func (c *Cluster) probeMany(name string, n int) {
	c.trace.probe(name)
	c.trace.probes[name] += int64(n - 1)
}

func tp(partition int32) ghost.TP { return ghost.TP{Topic: topicName, Partition: partition} }

// clusterHealMax is how long after the heal everything must have come to rest: sessions of
// up to 40 s have to expire, and replicas to catch up, before leadership goes back.
const clusterHealMax = 3 * time.Minute

// run is the whole story: the part with faults, the heal, and the demand that
// all that waits comes to an end.
func (c *Cluster) run() {
	c.bootAll()
	c.after(nil, 0, c.admin.begin)
	if c.story == nil {
		c.scheduleFault()
	}
	for _, p := range c.producers {
		c.after(&p.process, c.between(0, 20*time.Millisecond), p.produce)
	}
	for _, r := range c.consumers {
		c.after(&r.process, 0, r.begin)
	}
	c.playUntil(c.cfg.duration)
	c.overtime()
	if c.violation != "" {
		return
	}
	c.heal()
	healed := c.now
	pending := ""
	for end := c.now; c.violation == "" && c.now < healed+clusterHealMax; {
		end += 500 * time.Millisecond
		for c.violation == "" && c.step(end, c.crashed) {
			c.look()
		}
		c.now = max(c.now, end)
		if c.violation == "" {
			c.guarded(func() { pending = c.pending() }, c.crashed)
			if pending == "" {
				c.trace.say(c.now, "end")
				return
			}
		}
	}
	if c.violation == "" {
		c.violated("%s, %v after the heal", pending, clusterHealMax)
	}
}

// playUntil lets things happen up to a time, or the end of a story.
func (c *Cluster) playUntil(end time.Duration) {
	for c.violation == "" && !c.told() && c.step(end, c.crashed) {
		c.look()
		c.tell()
	}
}

// heal stops the faults: links are whole, brokers up, the service there.
func (c *Cluster) heal() {
	c.healed = true
	c.trace.say(c.now, "heal")
	if c.fault != nil {
		c.stop(c.fault)
	}
	c.mendAll()
	c.releaseAll("")
	c.service.Up()
	for _, n := range c.nodes {
		n.skew = 0
		i := n.live
		if i == nil {
			c.restartLater(n) // a second time, perhaps: boot looks
			continue
		}
		i.crashIn, i.fail = 0, nil
		if i.paused {
			c.resume(&i.process)
		}
		if i.injected || i.down { // whatever reported an error is restarted by its operator
			c.kill(n)
		}
	}
	if c.cfg.diesLast {
		for _, n := range c.nodes {
			c.kill(n)
		}
	}
	for _, p := range c.producers {
		p.wind(!c.cfg.quietEnd)
	}
}

// pending says in words what has not come to rest, or "".
func (c *Cluster) pending() string {
	for _, n := range c.nodes {
		if n.live == nil {
			return fmt.Sprintf("L3: broker %d is down", n.id)
		}
	}
	if !c.admin.created {
		return "L6: the topic is not made"
	}
	pic := ghost.Picture{Controller: c.tree.controller}
	for _, p := range c.producers {
		pic.Produces = append(pic.Produces, p.pending()...)
	}
	for _, r := range c.consumers {
		for i := range r.parts {
			pic.Lags = append(pic.Lags, ghost.Lag{Consumer: fmt.Sprintf("consumer %d", r.number), TP: tp(int32(i)), Position: r.parts[i].position})
		}
	}
	for _, n := range c.nodes {
		for _, p := range n.live.broker.Status().Partitions {
			if p.ProposedISR != nil {
				pic.ISRChanges = append(pic.ISRChanges, fmt.Sprintf("broker %d has proposed %v for %s-%d, whose ISR it knows as %v", n.id, p.ProposedISR, p.Topic, p.Partition, p.ISR))
			}
		}
	}
	if p := c.ghost.Pending(pic); p != "" {
		return p
	}
	pic.Metadata = c.askMetadata()
	return c.ghost.Pending(pic)
}

// boot starts a new life of a broker on what its disk holds.
func (c *Cluster) boot(n *node) {
	if n.live != nil {
		return
	}
	c.breakAll(func(k *conn) bool { return k.to.node == n || k.owner != nil && k.from == n.end })
	i := n.begin()
	n.say("life %d begins", i.number)
	c.ghost.Started(n.id)
	c.drawDeath(n, i)
	i.broker = newBroker(&clusterEnv{incarnation: i, c: c}, c.brokerConfig(n))
	c.after(&i.process, 0, func() {
		i.started = true
		i.broker.Start(func(err error) {
			if err == nil {
				i.open = true
				n.say("serves")
				return
			}
			if !i.injected {
				c.violated("broker %d does not start: %v", n.id, err)
				return
			}
			n.say("start fails: %s", err.Error())
			c.after(&i.process, 0, func() { c.kill(n) })
		})
	})
}

func (c *Cluster) breakAll(which func(*conn) bool) {
	for _, k := range append([]*conn(nil), c.conns...) {
		if which(k) {
			k.breakDown()
		}
	}
}

func (c *Cluster) brokerConfig(n *node) broker.Config {
	b := c.cfg.broker
	b.BrokerID = n.id
	b.Listeners = []string{fmt.Sprintf("PLAINTEXT://%s:9092", hostOf(n.id))}
	return b
}

func hostOf(id int32) string { return fmt.Sprintf("b%d", id) }

// crashed is the event loop's answer to a crash mark.
func (c *Cluster) crashed(m crashMark) {
	if n := m.owner.node; n.live == m.owner && !m.owner.dead {
		if !m.owner.open {
			c.trace.probe("crash while starting")
		}
		c.crash(n, m.owner.power)
	}
}

func (c *Cluster) kill(n *node) { c.crash(n, false) }

// crash ends a broker's life, with or without what was not synced, and lets the next begin.
func (c *Cluster) crash(n *node, power bool) {
	if n.live == nil {
		return
	}
	c.die(n, power)
	c.restartLater(n)
}

// die ends a broker's life. Who talks to it sees its connections break, unless the
// machine itself is gone: then only a timeout tells.
func (c *Cluster) die(n *node, power bool) {
	i := n.live
	for _, client := range i.sessions {
		client.Abandon()
	}
	n.endLife()
	if !i.stopping && !i.injected && !i.down { // logs were flushed and closed, or a change failed half way, which nobody tells of
		c.lookAtRecoveryPoints(n)
	}
	c.ghost.Stopped(n.id, power)
	c.breakAll(func(k *conn) bool { return k.owner == &i.process })
	if power {
		lost := n.disk.Crash(c.rng)
		c.trace.probe("power cut")
		if lost.SectorsLost > 0 {
			c.trace.probe("power cut that lost sectors")
		}
		n.say("power cut: %s", lost.String())
	} else {
		c.trace.probe("kill")
		n.say("kill")
		n.disk.Kill()
		c.after(nil, c.net.low, func() { c.breakAll(func(k *conn) bool { return k.to == i }) })
	}
}

func (c *Cluster) restartLater(n *node) {
	d := c.between(5*time.Millisecond, 500*time.Millisecond) // faster than any session expires
	if c.chance(2) && !c.healed {
		d = c.between(time.Second, 30*time.Second)
	}
	c.after(nil, d, func() { c.boot(n) })
}
