package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/sim/ghost"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// story is a scenario under way: its steps come one after the other, when their time
// or what they wait for has come. Nothing else breaks.
type story struct {
	demanded int // the last step whose deadline is set, from 1
	*experiments.Scenario
	next int
	done []StepTold
	due  bool          // the next step's pause has begun
	last time.Duration // when the newest step happened
}

// applyScenario makes a drawn configuration that of a scenario. bug: with its rules off.
func (c *clusterConfig) applyScenario(s *experiments.Scenario, bug bool) error {
	c.brokers, c.partitions, c.replicas = s.Brokers, s.Partitions, s.Replicas
	c.faults, c.skews, c.drifts = clusterFaults{}, make([]time.Duration, s.Brokers), make([]float64, s.Brokers)
	c.spikes, c.latencyMax, c.slow = 0, time.Millisecond, 0
	c.calm()
	if len(s.Steps) > 0 {
		c.duration = storyMax
	}
	fixed, err := parseStory(storySettings, s.Settings)
	if err != nil {
		return err
	}
	b := fixed
	if bug {
		if b, err = parseStory(storySettings, s.Settings, s.Bug); err != nil {
			return err
		}
		b.RulesOff = s.RulesOff
	}
	c.broker = b
	c.rules = ghost.Rules{
		// What is lost is held against the promise of the fix, not of the bug.
		MinISR: int(fixed.MinISR), FlushBeforeAck: fixed.FlushGroup || fixed.Log.FlushMessages == 1, RetentionMs: fixed.Log.RetentionMs, RetentionBytes: fixed.Log.RetentionBytes,
		Balanced: fixed.AutoRebalance && fixed.RebalanceCheck <= clusterHealMax/6, Unclean: fixed.UncleanElection,
	}
	acks := s.Acks
	if bug && s.BugAcks != nil {
		acks, c.rules.WeakCounts = s.BugAcks, true
	}
	batches := 1000
	if s.Scripted {
		batches, c.oneRecord = 0, true
		c.requestTimeout = 90 * time.Second // nothing is sent twice while the story is told
	}
	c.producers = c.producers[:0]
	for _, acks := range acks {
		c.producers = append(c.producers, producerConfig{acks: acks, retries: true, inFlightMax: 1, every: 50 * time.Millisecond, batches: batches})
	}
	c.envelope = int(s.Envelope[1] - '0')
	c.assignment = s.Assignment
	c.readers = s.Readers
	return nil
}

// parseStory makes a broker's configuration of settings, of which the later ones count.
func parseStory(settings ...map[string]string) (broker.Config, error) {
	all := map[string]string{}
	for _, s := range settings {
		maps.Copy(all, s)
	}
	var sets []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		sets = append(sets, name+"="+all[name])
	}
	return broker.ParseConfig(nil, sets)
}

// tell lets the next step of the story happen if its time has come.
func (c *Cluster) tell() {
	s := c.story
	if s == nil || c.healed || s.due || s.next >= len(s.Steps) {
		return
	}
	f := &s.Steps[s.next]
	if f.Kind == experiments.FaultDemand {
		c.demand(s.next, f)
	}
	if f.After != "" && c.trace.probes[f.After] == 0 || f.When != "" && !c.allSo(f.When) {
		return
	}
	s.due = true
	wait := f.Wait
	if f.At > 0 {
		wait = max(f.At-c.now, 0)
	}
	c.after(nil, wait, func() {
		s.due = false
		s.next++
		s.last = c.now
		c.noteStep(f)
		c.trace.say(c.now, "step %d: %s of %s", s.next, string(f.Kind), cmp.Or(f.Target, f.Message, "all"))
		c.faults++
		c.act(f)
	})
}

// Conditions of steps.
var conditions = map[string]func(c *Cluster) bool{
	"in sync":     func(c *Cluster) bool { return c.everyPartition(c.ghost.ISRFull) },
	"out of sync": func(c *Cluster) bool { return c.tree.assigned != 0 && !c.everyPartition(c.ghost.ISRFull) },
	"led":         func(c *Cluster) bool { return c.everyPartition(func(t ghost.TP) bool { return c.ghost.Leader(t) > 0 }) },
	"no leader": func(c *Cluster) bool {
		return !c.everyPartition(func(t ghost.TP) bool { return c.ghost.Leader(t) > 0 })
	},
	"ISR of one": func(c *Cluster) bool {
		return c.everyPartition(func(t ghost.TP) bool { return len(c.ghost.StateOf(t).ISR) == 1 })
	},
	"topic made":   func(c *Cluster) bool { return c.tree.assigned != 0 },
	"acknowledged": func(c *Cluster) bool { return c.ghost.Acked > 0 },
}

func (c *Cluster) isSo(condition string) bool {
	if f := conditions[condition]; f != nil {
		return f(c)
	}
	return c.isSoOfPartition(condition) || c.isSoOfBroker(condition)
}

func (c *Cluster) everyPartition(f func(ghost.TP) bool) bool {
	for i := range c.cfg.partitions {
		if !f(tp(i)) {
			return false
		}
	}
	return true
}

// checkScenario finds what the simulator cannot play.
func checkScenario(s *experiments.Scenario) error {
	for _, w := range s.Witness {
		if !slices.Contains(clusterProbes(), w) {
			return fmt.Errorf("%s: witness = %q: there is no probe of that name", s.Name, w)
		}
	}
	for i, f := range s.Steps {
		if f.When != "" && areConditions(f.When) != nil {
			return fmt.Errorf("%s: step %d: when = %q: want one of %s", s.Name, i+1, f.When, strings.Join(slices.Sorted(maps.Keys(conditions)), ", "))
		}
		if f.After != "" && !slices.Contains(clusterProbes(), f.After) {
			return fmt.Errorf("%s: step %d: after = %q: there is no probe of that name", s.Name, i+1, f.After)
		}
		if _, _, err := parseMessage(f.Message); f.Message != "" && f.Kind != experiments.FaultDemand && err != nil {
			return fmt.Errorf("%s: step %d: %w", s.Name, i+1, err)
		}
	}
	return nil
}

// nodesOf gives the brokers in a role, now.
func (c *Cluster) nodesOf(t experiments.Target) []*node {
	at := ghost.TP{Topic: t.Topic, Partition: t.Partition}
	var id int32
	switch t.Role {
	case experiments.RoleBroker:
		id = t.Number
	case experiments.RoleLeader:
		id = c.ghost.Leader(at)
	case experiments.RoleController:
		id = c.tree.controller
	case experiments.RoleFollower:
		if isr := c.ghost.InSync(at); len(isr) > 0 {
			id = slices.Min(isr)
		}
	case experiments.RoleLagging:
		st := c.ghost.StateOf(at)
		for _, r := range st.Replicas {
			if !slices.Contains(st.ISR, r) {
				id = r
			}
		}
	case experiments.RoleBrokers:
		return c.nodes
	}
	if id < 1 || int(id) > len(c.nodes) {
		return nil
	}
	return c.nodes[id-1 : id]
}

// endsOf gives the places in the network of a target.
func (c *Cluster) endsOf(t experiments.Target) []end {
	switch t.Role {
	case experiments.RoleCoord:
		return []end{coordEnd}
	case experiments.RoleProducer:
		return []end{c.producers[int(t.Number)%len(c.producers)].end}
	case experiments.RoleConsumer:
		return []end{c.consumers[int(t.Number)%len(c.consumers)].end}
	}
	var all []end
	for _, n := range c.nodesOf(t) {
		all = append(all, n.end)
	}
	return all
}

// forever is how long a fault lasts that only the heal ends.
const forever = 24 * time.Hour

// act lets one fault happen.
func (c *Cluster) act(f *experiments.Fault) {
	target, with := f.Targets()
	lasts := f.For
	if lasts == 0 {
		lasts = forever
	}
	if c.actStory(f) {
		return
	}
	switch f.Kind {
	case experiments.FaultMove:
		c.move(tp(target.Partition), c.nodesOf(with))
		return
	case experiments.FaultReassign:
		c.reassign(tp(target.Partition), f.Replicas)
		return
	case experiments.FaultHold:
		for _, a := range c.endsOf(target) {
			for _, b := range c.endsOf(with) {
				c.hold(a, b, f.Message, lasts)
			}
		}
		return
	case experiments.FaultLose:
		c.lose()
		return
	case experiments.FaultRelease:
		c.releaseAll(f.Message)
		return
	case experiments.FaultHeal:
		c.mendAll()
		c.releaseAll("")
		c.service.Up()
		for _, n := range c.nodes {
			c.boot(n)
		}
		return
	case experiments.FaultAway:
		c.service.Down()
		c.after(nil, lasts, c.service.Up)
		return
	case experiments.FaultPartition, experiments.FaultOneWay, experiments.FaultSlowLink:
		for _, a := range c.endsOf(target) {
			for _, b := range c.endsOf(with) {
				c.actLink(f, a, b, lasts)
			}
		}
		return
	}
	for _, n := range c.nodesOf(target) {
		c.actNode(f, n, lasts)
	}
}

func (c *Cluster) actLink(f *experiments.Fault, a, b end, lasts time.Duration) {
	switch {
	case a == b:
	case f.Kind == experiments.FaultSlowLink:
		c.net.link(a, b).slow, c.net.link(b, a).slow = f.By, f.By
	default:
		c.cutFor(cut{a, b, f.Kind == experiments.FaultPartition}, lasts)
	}
}

func (c *Cluster) actNode(f *experiments.Fault, n *node, lasts time.Duration) {
	if n.live == nil {
		if f.Kind == experiments.FaultRestart {
			c.boot(n)
		}
		return
	}
	i := n.live
	switch f.Kind {
	case experiments.FaultKill, experiments.FaultPowerOff, experiments.FaultDiskSwap, experiments.FaultBounce:
		c.die(n, f.Kind == experiments.FaultPowerOff || f.Kind == experiments.FaultDiskSwap)
		if f.Kind == experiments.FaultDiskSwap {
			n.disk = vfs.NewSim(n.wall)
			c.ghost.DiskSwapped(n.id)
		}
		if f.Kind == experiments.FaultBounce {
			lasts = 10 * time.Millisecond
		}
		c.after(nil, lasts, func() { c.boot(n) })
	case experiments.FaultStop:
		c.faultStop(n)
	case experiments.FaultPause:
		c.pause(&i.process)
		c.after(nil, lasts, func() {
			if !i.dead && i.paused {
				c.resume(&i.process)
			}
		})
	case experiments.FaultLostConns:
		c.faultLostConns(n)
	case experiments.FaultExpire:
		c.faultExpire(n)
	case experiments.FaultClockJump:
		n.skew += f.By
	case experiments.FaultDiskFull:
		i.fail = &failure{kinds: []vfs.OpKind{vfs.OpWrite}, in: 1, err: vfs.ErrNoSpace}
	case experiments.FaultWriteError:
		i.fail = &failure{kinds: []vfs.OpKind{vfs.OpWrite}, in: 1}
	case experiments.FaultSyncError:
		i.fail = &failure{kinds: []vfs.OpKind{vfs.OpSync, vfs.OpSyncEnd}, in: 1}
	case experiments.FaultTornWrite:
		i.crashIn, i.power = 1, true
	}
}
