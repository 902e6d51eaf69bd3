package controller

import (
	"slices"
	"time"
)

// doing is what a partition waits for.
type doing uint8

const (
	idle      doing = iota
	writing         // its state, alone or in a WriteTopic
	creating        // its state node
	reading         // its state
	reReading       // the topic's node, and then its state
)

type topic struct {
	name    string
	id      TopicID
	version int32 // of the topic's node
	minISR  int
	unclean bool
	parts   []*partition

	queued     bool         // in Controller.topicTodo
	wants      []*partition // whose assignment is to be written; each at most once
	creates    []*partition // whose state is to be created; each at most once
	written    []*partition // of the WriteTopic in flight, in its order
	reread     []*partition // of a WriteTopic that was not accepted: to be read after the topic
	busy       bool         // a WriteTopic or ReadTopics is in flight
	batchMax   int          // partitions in the next WriteTopic: halved by each conflict
	deleting   bool
	deleteSent bool // DeleteTopic is in flight
	gone       bool
	toDelete   int // replicas whose deletion was not confirmed yet
}

// partition is what the controller knows of one.
type partition struct {
	topic    *topic
	number   int32
	replicas []int32 // while a reassignment runs: the target first, then what goes
	adding   []int32
	removing []int32
	refs     []ref // in the index of each broker that is a replica or in the ISR

	known   bool  // its state node exists
	lost    bool  // its state node was there and is gone
	damaged bool  // its state node holds what cannot be read: nobody waits until somebody mends it
	state   State // last accepted
	version int32 // of the state node

	doing    doing
	queued   bool       // in Controller.todo
	wanted   bool       // in topic.wants or topic.creates
	again    bool       // its turn came while something was in flight
	stale    bool       // which of its replicas are offline has changed; told with the state that follows from it
	proposal State      // in flight, or of unknown outcome
	joins    bool       // proposal takes somebody into the ISR
	proposed Assignment // of the WriteTopic in flight
	paired   bool       // the WriteTopic in flight has its state too
	target   []int32    // replicas that are asked for; nil: none
	auto     bool       // a reassignment by tickReplace: counted in Controller.replacing

	preferred bool          // the preferred leader is wanted, once
	anyLeader bool          // an unclean election is allowed, once
	logs      []replicaLog  // of its replicas, while it has no leader
	logsUntil time.Duration // when those of replicas that were not there last are not waited for any more; 0: not said yet
	offline   []int32       // brokers whose log directory for it failed
	undeleted []int32       // brokers that have yet to confirm the deletion of the topic
	waiters   []*job        // that wait for it to come to rest

	laiFor     []int32 // brokers in whose LeaderAndISR queue it is
	seq        uint64  // of its last change that metadata shows
	prev, next *partition
}

type ref struct {
	b   *broker
	pos int // in b.partitions
}

func (p *partition) name() TopicPartition { return TopicPartition{p.topic.name, p.number} }

// preferredLeader is the first replica.
func (p *partition) preferredLeader() int32 {
	if len(p.replicas) == 0 {
		return NoLeader
	}
	return p.replicas[0]
}

// goal are the replicas that it will have when the reassignment, if any, is over.
func (p *partition) goal() []int32 { return without(p.replicas, p.removing) }

// minISR is min.insync.replicas as far as there are replicas (KIP-966). While they move, those that
// will go count: so it falls only with the switch, when the ISR has the whole target, and no
// commit passes by a member of the ELR before that.
func (p *partition) minISR() int { return min(max(p.topic.minISR, 1), len(p.replicas)) }

// settled: nothing is in flight and nothing is to be decided.
func (p *partition) settled() bool { return p.doing == idle && !p.queued && !p.wanted }

// job is a request, or a broker's start, that waits until partitions have come to rest.
type job struct {
	left int
	done func()
}

// await runs done when all of ps are settled; at the latest at the end of this Step if they are now.
func (c *Controller) await(ps []*partition, done func()) {
	j := &job{left: len(ps), done: done}
	for _, p := range ps {
		if p.damaged {
			j.left--
			continue
		}
		p.waiters = append(p.waiters, j)
		c.decideLater(p)
	}
	if j.left == 0 {
		done()
	}
}

// rest tells those who wait that p is settled.
func (c *Controller) rest(p *partition) {
	if len(p.waiters) == 0 || !p.settled() && !p.damaged {
		return
	}
	waiters := p.waiters
	p.waiters = nil
	for _, j := range waiters {
		if j.left--; j.left == 0 {
			j.done()
		}
	}
}

// find gives a partition, or nil.
func (c *Controller) find(tp TopicPartition) *partition {
	t := c.topics[tp.Topic]
	if t == nil || tp.Partition < 0 || int(tp.Partition) >= len(t.parts) {
		return nil
	}
	return t.parts[tp.Partition]
}

// broker is what the controller knows of a broker id, registered or not.
type broker struct {
	id         int32
	partitions []*partition // index: where it is a replica or in the ISR

	registered   bool
	reg          Broker
	starting     bool  // registered, but its earlier incarnation is not yet out of all states
	live         bool  // registered, and its start was dealt with
	ready        bool  // while starting: no state names its earlier incarnation any more
	unclean      bool  // while starting: it may have lost records
	handled      int64 // broker epoch up to which starts were dealt with; -1: not known
	incarnation  int   // counts starts, to tell a late job's
	shuttingDown bool

	away        bool
	awaySince   time.Duration
	replaceScan time.Duration // when its replicas are looked at next
	load        int           // replicas, while tickReplace chooses

	commands
}

// broker gives the entry of an id, making one.
func (c *Controller) broker(id int32) *broker {
	b := c.brokers[id]
	if b == nil {
		b = &broker{id: id, handled: -1}
		c.brokers[id] = b
		at, _ := slices.BinarySearch(c.brokerIDs, id)
		c.brokerIDs = slices.Insert(c.brokerIDs, at, id)
	}
	return b
}

// index makes the refs of p what its replicas and ISR say. C14: an id in the ISR that
// is no replica is followed too, so that it leaves the ISR when its broker dies.
func (c *Controller) index(p *partition) {
	for i := 0; i < len(p.refs); {
		if id := p.refs[i].b.id; slices.Contains(p.replicas, id) || c.cfg.Rules.TolerateForeignISR && slices.Contains(p.state.ISR, id) {
			i++
			continue
		}
		r := p.refs[i]
		last := len(r.b.partitions) - 1
		if moved := r.b.partitions[last]; moved != p {
			r.b.partitions[r.pos] = moved
			for j := range moved.refs {
				if moved.refs[j].b == r.b {
					moved.refs[j].pos = r.pos
				}
			}
		}
		r.b.partitions[last] = nil
		r.b.partitions = r.b.partitions[:last]
		p.refs = slices.Delete(p.refs, i, i+1)
	}
	add := func(ids []int32) {
		for _, id := range ids {
			if slices.ContainsFunc(p.refs, func(r ref) bool { return r.b.id == id }) {
				continue
			}
			b := c.broker(id)
			p.refs = append(p.refs, ref{b, len(b.partitions)})
			b.partitions = append(b.partitions, p)
		}
	}
	add(p.replicas)
	if c.cfg.Rules.TolerateForeignISR {
		add(p.state.ISR)
	}
}

// ref finds the broker of an id without the map: replicas are few.
func (c *Controller) lookup(p *partition, id int32) *broker {
	for i := range p.refs {
		if p.refs[i].b.id == id {
			return p.refs[i].b
		}
	}
	return c.brokers[id]
}

// usable: the replica's broker is live and its disk works.
func (c *Controller) usable(p *partition, id int32) bool {
	b := c.lookup(p, id)
	return b != nil && b.live && !slices.Contains(p.offline, id)
}

// staying: usable, and not about to stop.
func (c *Controller) staying(p *partition, id int32) bool {
	return c.usable(p, id) && !c.lookup(p, id).shuttingDown
}

// adopt takes a state that the store has accepted.
func (c *Controller) adopt(p *partition, s State, version int32) {
	if s.Leader != NoLeader {
		p.logs, p.logsUntil = nil, 0
	}
	p.known, p.state, p.version = true, s, version
	c.index(p)
	c.changed(p)
}

// changed: what metadata shows of p is new. It goes to the end of the list.
func (c *Controller) changed(p *partition) {
	p.stale = false
	c.changes.touch(p)
}

// changeList has every partition in the order of its last change. A broker that was told all
// up to a number needs what comes after, each once and as it is now: so a newer
// state replaces an older one in every broker's queue at the cost of one move.
type changeList struct {
	seq         uint64
	first, last *partition
}

func (l *changeList) touch(p *partition) {
	l.remove(p)
	l.seq++
	p.seq = l.seq
	p.prev = l.last
	if l.last == nil {
		l.first = p
	} else {
		l.last.next = p
	}
	l.last = p
}

func (l *changeList) remove(p *partition) {
	if p.seq == 0 {
		return
	}
	if p.prev == nil {
		l.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		l.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next, p.seq = nil, nil, 0
}

// after gives the oldest change after seq, or nil. It walks over what comes after seq.
func (l *changeList) after(seq uint64) *partition {
	if l.first != nil && l.first.seq > seq {
		return l.first
	}
	p := l.last
	if p == nil || p.seq <= seq {
		return nil
	}
	for p.prev.seq > seq {
		p = p.prev
	}
	return p
}

// without gives the members of a that are not in b, in a's order; a itself if that is all.
func without(a, b []int32) []int32 {
	if len(b) == 0 {
		return a
	}
	var out []int32
	for _, id := range a {
		if !slices.Contains(b, id) {
			out = append(out, id)
		}
	}
	return out
}

func subset(a, b []int32) bool {
	for _, id := range a {
		if !slices.Contains(b, id) {
			return false
		}
	}
	return true
}
