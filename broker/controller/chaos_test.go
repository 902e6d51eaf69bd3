package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-log/tidemark/broker/rules"
)

const tailLines = 60

// chaos is a world with a seed. It checks after each write: the leader is in the ISR; ISR and ELR
// are disjoint and of the replicas; the leader epoch rises with each change of the leader and never falls, one
// leader has each; who is elected from ISR or ELR holds everything that was committed. Of each command: it
// says what was accepted. At the end, with everybody back: each partition has a leader, and
// all brokers know what the store says.
type chaos struct {
	*world
	rng           *rand.Rand
	ids           []int32
	clean         map[int32]int64
	run           map[int32]int64 // clean starts in a row
	complete      map[string]bool // TopicID/partition/broker: it has all that was committed
	leaderOf      map[string]int32
	history       map[string]string // TopicID/partition/version: state
	notify        []TopicPartition
	brokersMoved  bool
	topicsMoved   []string
	marksMoved    bool
	deposed       []Effect // of earlier controllers
	made          int
	log           []string
	failed        string
	reached       map[string]int
	healing       bool
	forgetHandled bool
	dropFailed    bool
}

func newChaos(r rules.Rules, seed uint64) *chaos {
	c := &chaos{
		rng: rand.New(rand.NewPCG(seed, 1)), clean: map[int32]int64{}, run: map[int32]int64{},
		complete: map[string]bool{}, leaderOf: map[string]int32{}, history: map[string]string{}, reached: map[string]int{},
	}
	cfg := Config{Rules: r, WritesInFlightMax: 1 + c.rng.IntN(8), PartitionsPerCommandMax: 1 + c.rng.IntN(4), CreatesPerWriteMax: 1 + c.rng.IntN(3), PartitionsPerTopicWrite: 1 + c.rng.IntN(3)}
	if c.rng.IntN(2) == 0 {
		cfg.ReplaceAfter = time.Second
	}
	if c.rng.IntN(2) == 0 {
		cfg.PreferredCheck = time.Second
	}
	c.world = newWorld(cfg)
	c.print = func(format string, args ...any) { c.log = append(c.log, "  "+fmt.Sprintf(format, args...)) }
	c.writes = c.outcome
	c.afterWrite = c.checkWrite
	c.logOf = func(id int32, tp TopicPartition) (int32, int64, int64) {
		if c.complete[c.key(tp, id)] {
			return 0, 0, 100
		}
		return 0, 0, int64(90 + id)
	}
	for id := range int32(3 + c.rng.IntN(3)) {
		c.ids = append(c.ids, id+1)
		c.epochs[id+1], c.clean[id+1] = -1, -1
	}
	return c
}

func (c *chaos) tail() string { return strings.Join(c.log[max(0, len(c.log)-tailLines):], "\n") }

func (c *chaos) fail(format string, args ...any) {
	if c.failed == "" {
		c.failed = fmt.Sprintf(format, args...)
	}
}

func (c *chaos) say(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf("%v ", c.now)+fmt.Sprintf(format, args...))
}

func (c *chaos) outcome() Outcome {
	if c.healing || c.rng.IntN(12) > 0 {
		return Accepted
	}
	c.reached["unknown write"]++
	return []Outcome{Unknown, lost}[c.rng.IntN(2)]
}

func (c *chaos) live(steps int) {
	for _, id := range c.ids {
		c.register(id)
	}
	c.createTopic()
	c.becomeController()
	for i := 0; i < steps && c.failed == ""; i++ {
		c.random()
	}
	c.heal()
}

func (c *chaos) becomeController() {
	c.reached["elected anew"]++
	for _, e := range c.pending {
		switch e.(type) {
		case ReadBrokers, ReadTopics, ReadStates:
		default:
			c.deposed = append(c.deposed, e)
		}
	}
	c.say("new controller")
	if c.forgetHandled {
		c.handled = nil
		for _, b := range c.brokers() {
			c.handled = append(c.handled, BrokerEpoch{b.ID, b.Epoch})
		}
	}
	c.elect()
	c.notify, c.brokersMoved, c.topicsMoved, c.marksMoved = nil, false, nil, false
}

func (c *chaos) random() {
	if c.c.replacing > 0 {
		c.reached["replacing"]++
	}
	if c.resigned != "" {
		c.becomeController()
	}
	id := c.ids[c.rng.IntN(len(c.ids))]
	switch n := c.rng.IntN(100); {
	case n < 45:
		c.carryOutAny()
	case n < 60:
		c.changeISR()
	case n < 68:
		c.news()
	case n < 72:
		c.die(id, c.rng.IntN(2) == 0)
	case n < 78:
		c.register(id)
	case n < 82:
		c.now += time.Duration(c.rng.IntN(800)) * time.Millisecond
		c.step(Tick{})
	case n < 83:
		c.becomeController()
	case n < 85:
		c.createTopic()
	case n < 86:
		c.deleteTopic()
	case n < 90:
		c.moveReplicas()
	case n < 92:
		c.step(ElectLeaders{Request: 1, Unclean: false})
	case n < 94:
		if b, ok := c.registered[id]; ok {
			c.say("shutdown %d", id)
			c.step(ControlledShutdown{uint64(id) + 100, id, b.Epoch})
		}
	default:
		if len(c.deposed) > 0 {
			i := c.rng.IntN(len(c.deposed))
			e := c.deposed[i]
			c.deposed = slices.Delete(c.deposed, i, i+1)
			c.say("deposed: %s", show(e))
			switch in := c.do(e).(type) {
			case CommandDone:
				if in.Code != 0 {
					c.reached["stale command"]++
				}
			default:
				c.reached["fenced write"]++
			}
		}
	}
	c.collect()
}

// collect looks at what was answered.
func (c *chaos) collect() {
	for _, a := range c.answered {
		if a.Request >= 100 && a.Code == 0 {
			c.reached["shutdown answered"]++
			if len(a.Partitions) > 0 {
				c.reached["refused shutdown"]++
			}
			if id := int32(a.Request - 100); len(a.Partitions) == 0 && c.rng.IntN(2) == 0 {
				c.die(id, true)
			}
		}
	}
	c.answered = nil
}

func (c *chaos) carryOutAny() {
	if len(c.pending) == 0 {
		return
	}
	i := c.rng.IntN(len(c.pending))
	e := c.pending[i]
	c.say("do %s", strings.SplitN(show(e), "\n", 2)[0])
	if s, ok := e.(Send); ok {
		c.checkCommand(s)
		if !c.healing && c.rng.IntN(10) == 0 {
			c.pending = slices.Delete(c.pending, i, i+1)
			if c.rng.IntN(2) == 0 {
				c.do(s)
			}
			c.step(CommandDone{Broker: s.To.ID, Seq: s.Seq, Failed: !c.dropFailed})
			return
		}
	}
	before, stale := len(c.topics), false
	if w, ok := e.(WriteStates); ok {
		stale = !c.mayWrite(w.Writes[0])
	}
	c.carryOut(i)
	if stale {
		c.reached["conflict"]++
	}
	if len(c.topics) < before {
		c.reached["topic deleted"]++
	}
}

func (c *chaos) news() {
	switch {
	case c.brokersMoved && c.rng.IntN(2) == 0:
		c.brokersMoved = false
		c.say("brokers %v", c.brokers())
		c.step(BrokersRead{c.brokers()})
	case len(c.topicsMoved) > 0:
		names := c.topicsMoved
		c.topicsMoved = nil
		c.step(c.do(ReadTopics{names}))
	case c.marksMoved:
		c.marksMoved = false
		c.step(DeleteTopics{slices.Clone(c.marks)})
	case len(c.notify) > 0:
		tps := c.notify
		c.notify = nil
		c.say("isr changed %v", tps)
		c.step(c.do(ReadStates{tps}))
	}
}

func (c *chaos) key(tp TopicPartition, more any) string {
	return fmt.Sprintf("%x/%d/%v", c.topics[tp.Topic].ID[:4], tp.Partition, more)
}

// die ends a process and its registration. Who stops cleanly notes its epoch on disk.
func (c *chaos) die(id int32, clean bool) {
	p := c.processes[id]
	if p == nil {
		return
	}
	c.say("die %d clean=%v", id, clean)
	c.clean[id] = -1
	if clean {
		c.clean[id] = p.broker.Epoch
	}
	c.kill(id)
	c.brokersMoved = true
}

// register starts a new incarnation, when no state names the old one as leader or in ISR (A7). After an
// unclean end it may have lost something.
func (c *chaos) register(id int32) {
	if c.processes[id] != nil {
		return
	}
	lossy := c.clean[id] == -1 || c.clean[id] != c.epochs[id]
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		for _, s := range c.topics[name].states {
			if (s.Leader == id || slices.Contains(s.ISR, id)) && c.cfg.Rules.FenceBeforeReregister && c.cfg.Rules.ELR {
				return
			}
		}
	}
	if lossy {
		c.reached["unclean start"]++
		c.run[id] = 0
	}
	if lossy && c.rng.IntN(3) > 0 { // not every unclean start has lost something
		for _, name := range slices.Sorted(maps.Keys(c.topics)) {
			for n := range c.topics[name].Partitions {
				delete(c.complete, c.key(TopicPartition{name, int32(n)}, id))
			}
		}
	}
	if !lossy {
		c.reached["clean start"]++
		c.run[id]++
	}
	c.epochs[id]++
	c.say("register %d@%d clean=%d", id, c.epochs[id], c.clean[id])
	c.start(Broker{ID: id, Epoch: c.epochs[id], CleanEpoch: c.clean[id], CleanRun: max(0, c.run[id]-1), Rack: []string{"a", "b"}[id%2]})
	c.brokersMoved = true
}

func (c *chaos) createTopic() {
	if len(c.topics) > 3 {
		return
	}
	c.made++
	name := []string{"t", "u", "v", "w"}[c.rng.IntN(4)]
	if c.topics[name] != nil {
		return
	}
	t := &storedTopic{Topic{Name: name, MinISR: 1 + c.rng.IntN(2), ID: TopicID{byte(c.made), byte(c.made >> 8)}}, map[int32]*storedState{}}
	var brokers []Broker
	for _, id := range c.ids {
		brokers = append(brokers, Broker{ID: id})
	}
	replicas, err := Place(brokers, 1+c.rng.IntN(3), 1+c.rng.IntN(3), 0, c.rng.IntN(9), c.rng.IntN(9))
	if err != nil {
		panic(err)
	}
	for _, r := range replicas {
		t.Partitions = append(t.Partitions, Assignment{Replicas: r})
	}
	c.topics[name] = t
	c.say("topic %s %v", name, replicas)
	c.topicsMoved = append(c.topicsMoved, name)
}

func (c *chaos) anyPartition() (TopicPartition, *storedTopic) {
	names := slices.Sorted(maps.Keys(c.topics))
	if len(names) == 0 {
		return TopicPartition{}, nil
	}
	t := c.topics[names[c.rng.IntN(len(names))]]
	return TopicPartition{t.Name, int32(c.rng.IntN(len(t.Partitions)))}, t
}

func (c *chaos) deleteTopic() {
	if tp, t := c.anyPartition(); t != nil && !slices.Contains(c.marks, tp.Topic) {
		c.say("delete %s", tp.Topic)
		c.marks = append(c.marks, tp.Topic)
		c.marksMoved = true
	}
}

func (c *chaos) moveReplicas() {
	tp, t := c.anyPartition()
	if t == nil {
		return
	}
	target := slices.Clone(c.ids)
	c.rng.Shuffle(len(target), func(i, j int) { target[i], target[j] = target[j], target[i] })
	target = target[:1+c.rng.IntN(3)]
	if c.rng.IntN(4) == 0 {
		target = nil
	}
	c.say("reassign %s %v", tp, target)
	c.step(Reassign{Request: 2, Partitions: []Reassignment{{tp, target}}})
}

// changeISR is a leader's conditional write: it takes out a follower, or takes in one that
// runs, is registered, and follows it in this leader epoch.
func (c *chaos) changeISR() {
	tp, t := c.anyPartition()
	if t == nil {
		return
	}
	c.changeISROf(tp, c.rng.IntN(3) == 0 && !c.healing)
}

func (c *chaos) changeISROf(tp TopicPartition, shrink bool) {
	s := c.topics[tp.Topic].states[tp.Partition]
	if s == nil || s.Leader == NoLeader || !c.follows(s.Leader, tp, s) {
		return
	}
	told := c.processes[s.Leader].replicas[tp]
	n := &storedState{s.State, s.version + 1}
	n.ISR = slices.Clone(s.ISR)
	if shrink {
		if len(n.ISR) < 2 {
			return
		}
		out := n.ISR[c.rng.IntN(len(n.ISR))]
		if out == s.Leader {
			return
		}
		n.ISR = without(n.ISR, []int32{out})
		n.ELR = append(slices.Clone(n.ELR), out)
	} else {
		id := told.Replicas[c.rng.IntN(len(told.Replicas))]
		if slices.Contains(n.ISR, id) || !c.follows(id, tp, s) || c.registered[id].Epoch != c.processes[id].broker.Epoch {
			return
		}
		n.ISR = append(n.ISR, id)
		n.ELR = without(n.ELR, []int32{id})
		c.complete[c.key(tp, id)] = true
	}
	if !c.cfg.Rules.ELR || len(n.ISR) >= c.minISR(tp, told) {
		n.ELR = nil
	}
	c.say("leader %d of %s: %s", s.Leader, tp, showState(n.State))
	c.topics[tp.Topic].states[tp.Partition] = n
	c.checkWrite(tp, s, n)
	c.notify = append(c.notify, tp)
}

func (c *chaos) minISR(tp TopicPartition, told PartitionInfo) int {
	return min(c.topics[tp.Topic].MinISR, len(told.Replicas))
}

func (c *chaos) follows(id int32, tp TopicPartition, s *storedState) bool {
	p := c.processes[id]
	if p == nil {
		return false
	}
	i, ok := p.replicas[tp]
	return ok && i.LeaderEpoch == s.LeaderEpoch && i.TopicID == c.topics[tp.Topic].ID
}

func (c *chaos) checkWrite(tp TopicPartition, old, new *storedState) {
	a := c.topics[tp.Topic].Partitions[tp.Partition]
	if new.Leader != NoLeader && !slices.Contains(new.ISR, new.Leader) {
		c.fail("%s: leader not in ISR: %s", tp, showState(new.State))
	}
	for _, id := range new.ISR {
		if slices.Contains(new.ELR, id) {
			c.fail("%s: %d in ISR and ELR: %s", tp, id, showState(new.State))
		}
	}
	if !subset(new.ISR, a.Replicas) || !subset(new.ELR, a.Replicas) {
		c.fail("%s: replicas %v: %s", tp, a.Replicas, showState(new.State))
	}
	if old != nil && (new.LeaderEpoch < old.LeaderEpoch || new.Leader != old.Leader && new.LeaderEpoch == old.LeaderEpoch) {
		c.fail("%s: leader epoch: from %s to %s", tp, showState(old.State), showState(new.State))
	}
	if led, ok := c.leaderOf[c.key(tp, new.LeaderEpoch)]; ok && led != new.Leader {
		c.fail("%s: two leaders in epoch %d: %d, %d", tp, new.LeaderEpoch, led, new.Leader)
	}
	c.leaderOf[c.key(tp, new.LeaderEpoch)] = new.Leader
	c.history[c.key(tp, new.version)] = showState(State{Leader: new.Leader, LeaderEpoch: new.LeaderEpoch, ISR: new.ISR, LastLeader: NoLeader})
	if new.Leader == NoLeader {
		c.reached["no leader"]++
	}
	if old == nil { // nothing was written before
		for _, id := range a.Replicas {
			c.complete[c.key(tp, id)] = true
		}
	} else if new.Leader != NoLeader && (new.Leader != old.Leader || new.LeaderEpoch != old.LeaderEpoch) {
		c.checkElection(tp, old, new)
	}
	if len(a.Adding) == 0 && len(a.Replicas) > 0 && old != nil && len(new.ISR) > 0 && subset(new.ISR, a.Replicas) && new.LeaderEpoch > old.LeaderEpoch && !subset(old.ISR, a.Replicas) {
		c.reached["switched"]++
	}
	c.committed(tp, new)
}

// committed: the ISR is large enough, so that something may be committed that others do not have.
func (c *chaos) committed(tp TopicPartition, s *storedState) {
	a := c.topics[tp.Topic].Partitions[tp.Partition]
	if s.Leader == NoLeader || len(s.ISR) < min(c.topics[tp.Topic].MinISR, len(a.Replicas)) {
		return
	}
	for _, id := range c.ids {
		if !slices.Contains(s.ISR, id) {
			delete(c.complete, c.key(tp, id))
		}
	}
}

func (c *chaos) checkElection(tp TopicPartition, old, new *storedState) {
	switch l := new.Leader; {
	case slices.Contains(old.ISR, l) || slices.Contains(old.ELR, l):
		if slices.Contains(old.ISR, l) {
			c.reached["leader from ISR"]++
		} else {
			c.reached["leader from ELR"]++
		}
		if !c.complete[c.key(tp, l)] {
			c.fail("%s: %d is elected, which has lost records: from %s to %s", tp, l, showState(old.State), showState(new.State))
		}
	case len(old.ISR)+len(old.ELR) == 0 && (len(old.LastKnownELR) > 0 || !c.cfg.Rules.CompareLogs && l == old.LastLeader):
		c.reached["longest log"]++
		has := func(id int32) bool { return c.complete[c.key(tp, id)] }
		if !has(l) && slices.ContainsFunc(c.topics[tp.Topic].Partitions[tp.Partition].Replicas, func(id int32) bool {
			return has(id) && (slices.Contains(old.LastKnownELR, id) || !c.cfg.Rules.CompareLogs)
		}) {
			c.fail("%s: %d is elected, which has lost records, and another has them all: from %s to %s", tp, l, showState(old.State), showState(new.State))
		}
		c.complete[c.key(tp, l)] = true // what it has is all there is
	default:
		c.fail("%s: %d is elected, which nothing speaks for: from %s to %s", tp, l, showState(old.State), showState(new.State))
	}
}

func (c *chaos) checkCommand(s Send) {
	check := func(i PartitionInfo) {
		if t := c.topics[i.Partition.Topic]; i.Leader == LeaderDuringDelete || t == nil || t.ID != i.TopicID {
			return
		}
		got := showState(State{Leader: i.Leader, LeaderEpoch: i.LeaderEpoch, ISR: i.ISR, LastLeader: NoLeader})
		if want := c.history[c.key(i.Partition, i.PartitionEpoch)]; got != want {
			c.fail("%s: command says %q, the store said %q", i.Partition, got, want)
		}
	}
	switch command := s.Command.(type) {
	case *LeaderAndISR:
		for _, i := range command.Partitions {
			check(i)
		}
	case *UpdateMetadata:
		for _, i := range command.Partitions {
			check(i)
		}
	}
}

// heal brings everybody back, ends faults, and demands that all is well.
func (c *chaos) heal() {
	c.healing = true
	for range 300 {
		if c.failed != "" {
			return
		}
		if c.resigned != "" {
			c.becomeController()
		}
		for _, id := range c.ids {
			if b := c.c.brokers[id]; b != nil && b.shuttingDown {
				c.die(id, true) // who asked, stops
			}
			c.register(id)
		}
		for _, name := range slices.Sorted(maps.Keys(c.topics)) {
			for n := range c.topics[name].Partitions {
				c.changeISROf(TopicPartition{name, int32(n)}, false)
			}
		}
		for range 6 {
			c.news()
		}
		for range 500 {
			if len(c.pending) == 0 {
				break
			}
			c.carryOutAny()
		}
		c.answered = nil
		c.now += 200 * time.Millisecond
		c.step(Tick{})
	}
	c.checkEnd()
}

func (c *chaos) checkEnd() {
	if c.failed != "" {
		return
	}
	if len(c.pending) > 0 || c.c.writesInFlight != 0 || len(c.c.todo) > 0 || len(c.c.topicTodo) > 0 || c.c.replacing != 0 {
		c.fail("no rest: %d pending, %d writes in flight, %d to do, %d topics to do, %d replacing", len(c.pending), c.c.writesInFlight, len(c.c.todo), len(c.c.topicTodo), c.c.replacing)
	}
	for p := c.c.changes.first; p != nil; p = p.next {
		if !p.settled() {
			c.fail("%s is not at rest: doing %d, queued %v, wanted %v", p.name(), p.doing, p.queued, p.wanted)
		}
	}
	if len(c.marks) > 0 {
		c.fail("topics %v are not deleted", c.marks)
	}
	for _, id := range c.ids {
		if c.processes[id] == nil {
			c.fail("broker %d cannot come back", id)
			return
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		t := c.topics[name]
		for n, a := range t.Partitions {
			tp := TopicPartition{name, int32(n)}
			s := t.states[int32(n)]
			switch {
			case s == nil:
				c.fail("%s was never created", tp)
				return
			case s.Leader == NoLeader:
				c.fail("%s has no leader: %s", tp, showState(s.State))
			case len(a.Adding)+len(a.Removing) > 0:
				c.fail("%s still moves: %+v %s", tp, a, showState(s.State))
			}
			for _, id := range c.ids {
				c.checkKnown(id, tp, a, s)
			}
		}
	}
	for _, id := range c.ids {
		for _, tp := range slices.SortedFunc(maps.Keys(c.processes[id].replicas), func(a, b TopicPartition) int { return strings.Compare(a.String(), b.String()) }) {
			if t := c.topics[tp.Topic]; t == nil || int(tp.Partition) >= len(t.Partitions) || !slices.Contains(t.Partitions[tp.Partition].Replicas, id) {
				c.fail("broker %d still knows a replica of %s", id, tp)
			}
		}
	}
}

func (c *chaos) checkKnown(id int32, tp TopicPartition, a Assignment, s *storedState) {
	p := c.processes[id]
	if slices.Contains(a.Replicas, id) {
		// A change of the ISR by the leader is not told to followers, but leader and replicas are.
		if i, ok := p.replicas[tp]; !ok || i.Leader != s.Leader || i.LeaderEpoch != s.LeaderEpoch || !slices.Equal(i.Replicas, a.Replicas) {
			if b := c.c.brokers[id]; !b.shuttingDown {
				c.fail("%s: broker %d knows %+v, the store has %s", tp, id, i, showState(s.State))
			}
		}
	}
	if i, ok := p.metadata[tp]; !ok || i.Leader != s.Leader || i.PartitionEpoch != s.version || !slices.Equal(i.Replicas, a.Replicas) || len(i.Offline) > 0 {
		c.fail("%s: metadata of broker %d knows %+v, the store has v%d %s", tp, id, i, s.version, showState(s.State))
	}
}
