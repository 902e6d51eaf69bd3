package broker

import (
	"errors"
	"slices"
	"time"

	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/broker/replica"
	"github.com/tidemark-log/tidemark/storage"
)

// replication is what a partition of a replicated cluster has beside its log: its
// part as leader or follower (package replica decides), and who waits for the ISR.
// It is nil in a cluster of one. Everything is under the partition's lock.
type replication struct {
	leader   *replica.Leader
	follower *replica.Follower

	// told is false until the first LeaderAndIsr of this incarnation: before it,
	// nobody knows what the log is good for.
	told     bool
	waiting  []*commitWaiter // ascending by upTo; bounded by the requests in flight
	marks    []byteMark      // of appends that are not visible yet, ascending
	flushing bool            // the follower waits for a sync before its next fetch
	isr, elr []int32         // as the controller told last, for answers about it
	// lastKnown is the state's LastKnownELR, which the leader writes along while its ISR is below min.insync.replicas.
	lastKnown []int32
	reading   bool // the state is being read again
	replicas  []int32
	leaderID  int32
	ticking   bool // the leader's timer runs
	// controllerEpoch is the newest that a state of this partition named.
	controllerEpoch int32
}

// commitWaiter is an acks=all append that waits for the ISR.
type commitWaiter struct {
	upTo int64
	done func(error)
	stop func() bool // its timeout's
}

// byteMark says how many bytes had been appended when the log ended at offset.
type byteMark struct{ offset, bytes int64 }

// byteMarksMax bounds the marks. Beyond, the last one moves: waiting fetches hear a little later.
const byteMarksMax = 4096

var (
	errNotLeader       = &storage.ProtocolError{Code: codeNotLeaderOrFollower, Name: "NOT_LEADER_OR_FOLLOWER"}
	errNotEnough       = &storage.ProtocolError{Code: codeNotEnoughReplicas, Name: "NOT_ENOUGH_REPLICAS"}
	errNotEnoughAfter  = &storage.ProtocolError{Code: codeNotEnoughReplicasAfter, Name: "NOT_ENOUGH_REPLICAS_AFTER_APPEND"}
	errRequestTimedOut = &storage.ProtocolError{Code: codeRequestTimedOut, Name: "REQUEST_TIMED_OUT"}
)

// replicaSettings are a partition's settings as package replica needs them.
func (c *Config) replicaSettings() replica.Settings {
	return replica.Settings{MinISR: int(c.MinISR), LagMax: c.ReplicaLagMax, DurableBeforeAck: c.durableBeforeAck()}
}

// durableBeforeAck is true where the flush policy promises that what is acknowledged is synced.
func (c *Config) durableBeforeAck() bool { return c.FlushGroup || c.Log.FlushMessages == 1 }

// replicate gives a partition, whose log is open, its part in replication.
func (p *partition) replicate(highWatermark int64) {
	cfg := p.cfg.Load()
	p.repl = &replication{
		leader:   replica.NewLeader(p.b.rules, p.b.static.BrokerID, cfg.replicaSettings()),
		follower: replica.NewFollower(p.b.rules, p.log, cfg.durableBeforeAck()),
		leaderID: noBroker,
	}
	p.epoch = -1
	p.visible = min(highWatermark, p.log.LogEndOffset())
}

// leads is true while this broker leads the partition. Under its lock.
func (p *partition) leads() bool { return p.repl == nil || p.repl.leader.Leading() }

// committed is the high watermark, whatever consumers may see. Under the lock.
func (p *partition) committed() int64 {
	switch {
	case p.repl == nil:
		return p.visible
	case p.repl.leader.Leading():
		return p.repl.leader.HighWatermark()
	case p.repl.told:
		return p.repl.follower.HighWatermark()
	}
	return p.visible
}

// role is what a LeaderAndIsr says of one partition.
type role struct {
	leader          int32
	leaderEpoch     int32
	isr, elr        []int32
	lastKnown       []int32
	replicas        []int32
	partitionEpoch  int32
	controllerEpoch int32
}

func (r *role) state() replica.State {
	return replica.State{Leader: r.leader, LeaderEpoch: r.leaderEpoch, ISR: r.isr, ELR: r.elr, PartitionEpoch: r.partitionEpoch}
}

// become takes a role. follow is true when the partition has to be fetched from r.leader.
func (p *partition) become(r *role) (code int16, follow bool) {
	p.step(func(fx *effects) {
		if err := p.usable(); err != nil {
			code = codeOf(err)
			return
		}
		q := p.repl
		switch {
		case q.told && r.leaderEpoch < p.epoch:
			code = codeStaleLeaderEpochOnCommand
			return
		case q.told && r.leaderEpoch == p.epoch:
			p.sameEpoch(fx, r)
		case r.leader == p.b.static.BrokerID:
			code = p.becomeLeader(fx, r)
		default:
			code = p.becomeFollower(fx, r)
		}
		follow = code == codeNone && !q.leader.Leading() && q.follower.Phase() != replica.Stopped
	})
	return code, follow
}

// codeStaleLeaderEpochOnCommand: the replica knows a newer leader epoch than the command.
const codeStaleLeaderEpochOnCommand = codeFencedLeaderEpoch

// sameEpoch takes over an ISR or a replica set that changed within the leader epoch.
func (p *partition) sameEpoch(fx *effects, r *role) {
	q := p.repl
	q.isr, q.elr, q.lastKnown, q.replicas = r.isr, r.elr, r.lastKnown, r.replicas
	q.controllerEpoch = max(q.controllerEpoch, r.controllerEpoch)
	if q.leader.Leading() {
		p.led(fx, q.leader.StateChanged(r.state(), p.b.env.Now()))
		if q.leader.Leading() {
			p.led(fx, q.leader.SetReplicas(r.replicas, p.b.env.Now()))
		}
	}
}

func (p *partition) becomeLeader(fx *effects, r *role) int16 {
	q := p.repl
	hw, leo := p.committed(), p.log.LogEndOffset()
	// The epoch is known before anything is appended or answered in it (KAFKA-7415).
	if err := p.log.AssignEpoch(r.leaderEpoch, leo); err != nil {
		p.changeFailed(fx, err)
		return codeStorageError
	}
	e, err := q.leader.Become(replica.BecomeLeader{
		State: r.state(), Replicas: r.replicas, LEO: leo, Flushed: p.log.FlushedOffset(), HW: hw, Now: p.b.env.Now(),
	})
	if err != nil {
		p.b.report(env.Error, "%s-%d: %v", p.topic, p.index, err)
		return codeUnknownServerError
	}
	q.follower.Stop(r.leaderEpoch, hw)
	p.took(r)
	p.b.observeLeader(p, r)
	p.led(fx, e)
	p.syncForHighWatermark(fx)
	p.startReplicaTick()
	return codeNone
}

// syncForHighWatermark syncs what no append will ask a sync for: what opening found, and what was appended before acks
// promised one. The high watermark counts the leader's log as far as it is synced, so without this it
// would stand below what was acknowledged until somebody appends.
func (p *partition) syncForHighWatermark(fx *effects) {
	if p.repl.leader.Leading() && p.cfg.Load().durableBeforeAck() && p.log.FlushedOffset() < p.log.LogEndOffset() {
		p.flushLocked(fx)
	}
}

func (p *partition) becomeFollower(fx *effects, r *role) int16 {
	q := p.repl
	hw := p.committed()
	if q.leader.Leading() {
		q.leader.Resign()
		p.failCommitWaiters(fx, errNotLeader)
	}
	do, err := q.follower.Become(replica.BecomeFollower{Leader: r.leader, LeaderEpoch: r.leaderEpoch, HW: hw, Flushed: p.log.FlushedOffset()})
	if err != nil {
		p.b.report(env.Error, "%s-%d: %v", p.topic, p.index, err)
		return codeUnknownServerError
	}
	p.took(r)
	p.b.observeFollower(p, r)
	p.waiting.wakeAll(fx) // those who fetch here learn who leads
	if err := p.followed(fx, do, nil); err != nil {
		return codeStorageError
	}
	return codeNone
}

// took notes the role that was taken.
func (p *partition) took(r *role) {
	q := p.repl
	q.told, q.leaderID, q.flushing = true, r.leader, false
	q.controllerEpoch = max(q.controllerEpoch, r.controllerEpoch)
	q.isr, q.elr, q.lastKnown, q.replicas = r.isr, r.elr, r.lastKnown, r.replicas
	p.epoch = r.leaderEpoch
}

// led carries out what a call of the leader left to do.
func (p *partition) led(fx *effects, e replica.Effects) {
	q := p.repl
	if e.Deposed {
		q.follower.Stop(p.epoch, q.leader.HighWatermark()) // not what it was when this broker followed last
		p.failCommitWaiters(fx, errNotLeader)
		p.waiting.wakeAll(fx)
	}
	if e.Advanced {
		p.leaderAdvanced(fx)
	}
	if e.ISRChanged {
		fx.isrChanged = true
		if !q.leader.MayAppendAll() {
			p.failCommitWaiters(fx, errNotEnoughAfter)
		}
	}
	if e.Propose != nil {
		proposal := *e.Propose
		proposal.ISR, proposal.ELR = slices.Clone(proposal.ISR), slices.Clone(proposal.ELR)
		fx.propose = &proposal
	}
	fx.reread = fx.reread || e.Reread
}

// leaderAdvanced answers what waited for the high watermark, and shows consumers more.
func (p *partition) leaderAdvanced(fx *effects) {
	q := p.repl
	acked := q.leader.AckOffset()
	n := 0
	for n < len(q.waiting) && q.waiting[n].upTo <= acked {
		fx.acks = append(fx.acks, ack{q.waiting[n].ended(), nil})
		n++
	}
	q.waiting = slices.Delete(q.waiting, 0, n)
	p.showVisible(fx)
}

// ended stops the timeout and gives whom to answer.
func (w *commitWaiter) ended() func(error) {
	if w.stop != nil {
		w.stop()
	}
	return w.done
}

// showVisible moves the offset up to which consumers may read to where it may be.
func (p *partition) showVisible(fx *effects) {
	to := p.committed()
	switch p.cfg.Load().Visibility {
	case VisibleFlushed:
		to = min(to, p.log.FlushedOffset())
	case VisibleAppended:
		to = p.log.LogEndOffset()
	}
	if to <= p.visible {
		return
	}
	p.visible = to
	bytes := p.bytesUpTo(to)
	p.visibleBytes = max(bytes, p.visibleBytes+1) // something came, so who waits for anything hears
	if o := p.b.observer; o != nil {
		o.HighWatermark(p.topic, p.index, to, p.counting())
	}
	p.waiting.advance(fx, p.visibleBytes, false)
}

// counting are the replicas whose log end offsets the high watermark is the minimum of; nil on a follower.
func (p *partition) counting() []int32 {
	if p.repl == nil || !p.repl.leader.Leading() {
		return nil
	}
	return p.repl.leader.Counting()
}

// bytesUpTo is how many bytes had been appended when the log ended at offset, and
// forgets the marks below.
func (p *partition) bytesUpTo(offset int64) int64 {
	q := p.repl
	if offset >= p.log.LogEndOffset() {
		q.marks = q.marks[:0]
		return p.appendedBytes
	}
	n, bytes := 0, p.visibleBytes
	for n < len(q.marks) && q.marks[n].offset <= offset {
		bytes = q.marks[n].bytes
		n++
	}
	q.marks = slices.Delete(q.marks, 0, n)
	return bytes
}

func (p *partition) markBytes() {
	q := p.repl
	m := byteMark{p.log.LogEndOffset(), p.appendedBytes}
	if len(q.marks) >= byteMarksMax {
		q.marks[len(q.marks)-1] = m
		return
	}
	q.marks = append(q.marks, m)
}

// failCommitWaiters answers all that wait for the ISR with why.
func (p *partition) failCommitWaiters(fx *effects, why error) {
	if p.repl == nil {
		return
	}
	for i := range p.repl.waiting {
		fx.acks = append(fx.acks, ack{p.repl.waiting[i].ended(), why})
	}
	p.repl.waiting = p.repl.waiting[:0]
}

// waitCommitted lets done wait until everything below upTo is committed, at most for d.
func (p *partition) waitCommitted(upTo int64, d time.Duration, done func(error)) {
	q := p.repl
	i := len(q.waiting)
	for i > 0 && q.waiting[i-1].upTo > upTo { // a resend waits for less than others do
		i--
	}
	w := &commitWaiter{upTo: upTo, done: done}
	w.stop = p.b.env.After(d, func() {
		p.step(func(fx *effects) {
			if i := slices.Index(q.waiting, w); i >= 0 {
				fx.acks = append(fx.acks, ack{w.done, errRequestTimedOut})
				q.waiting = slices.Delete(q.waiting, i, i+1)
			}
		})
	})
	q.waiting = slices.Insert(q.waiting, i, w)
}

// replicaAppended tells replication of an append that this leader made.
func (p *partition) replicaAppended(fx *effects) {
	p.markBytes()
	p.led(fx, p.repl.leader.Appended(p.log.LogEndOffset()))
	p.showVisible(fx) // lab.visibility=appended
	p.waiting.advance(fx, p.appendedBytes, true)
}

// replicaFlushed tells replication that a sync has ended.
func (p *partition) replicaFlushed(fx *effects) {
	q := p.repl
	to := p.log.FlushedOffset()
	if q.leader.Leading() {
		p.led(fx, q.leader.Flushed(to))
		p.showVisible(fx)
		return
	}
	q.follower.Flushed(to)
	p.showVisible(fx)
	if q.flushing {
		q.flushing = false
		fx.fetchAgain = true
	}
}

// changeFailed handles a change of the log that failed: a failed write takes its directory offline.
func (p *partition) changeFailed(fx *effects, err error) {
	if errors.As(err, new(*storage.WriteError)) {
		fx.dirFailed = err
		return
	}
	p.b.report(env.Error, "%s-%d: %v", p.topic, p.index, err)
}
