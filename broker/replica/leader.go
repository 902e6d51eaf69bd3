package replica

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-log/tidemark/broker/rules"
)

// Settings of a partition as its leader needs them.
type Settings struct {
	MinISR int           // min.insync.replicas; more than there are replicas counts as all of them
	LagMax time.Duration // replica.lag.time.max.ms
	// DurableBeforeAck: an ack promises that the record is synced. The leader's own copy
	// then counts as far as Flushed told, a follower's because it syncs before it fetches.
	DurableBeforeAck bool
}

// Position is what the leader knows of another replica, or of a foreign id in the ISR (C14).
type Position struct {
	ID       BrokerID
	LEO      Offset      // from its last fetch that counted; -1: none in this leader epoch
	Epoch    BrokerEpoch // of the incarnation that fetched; taken together with LEO (KAFKA-15221)
	Assigned bool        // a replica of the partition
	Eligible bool        // may join the ISR: alive and not shutting down (KIP-841)
	InISR    bool        // in the accepted ISR

	FetchedAt  time.Duration // when the last fetch that counted came
	CaughtUpAt time.Duration // when it last had all that the leader had
	leoThen    Offset        // the leader's log end offset at FetchedAt
	counts     bool          // the high watermark waits for it: it may be elected, or may be soon
}

// Leader is one partition's leader, or has been: the zero of New leads nothing until Become.
//
// Invariants: HighWatermark <= LEO; within a leader epoch the high watermark never
// falls; the ISR contains the leader itself.
type Leader struct {
	rules rules.Rules
	self  BrokerID
	cfg   Settings

	leading    bool
	epoch      LeaderEpoch
	epochStart Offset // log end offset when the epoch began
	leo        Offset
	flushed    Offset
	hw         Offset
	acked      Offset // acks=all below it may be answered; the high watermark but for A8

	replicas       []BrokerID // ascending, self included
	isr            []BrokerID // accepted, ascending
	elr            []BrokerID // accepted, ascending; waited for like the ISR: lowering min.insync.replicas must not pass them
	partitionEpoch PartitionEpoch
	others         []Position // ascending by ID
	alive          []BrokerID // who may join the ISR, if aliveKnown
	aliveKnown     bool

	pending pendingISR
	effects Effects
}

// Effects are what to do after a call, in the order of the fields. The value and what
// it points to are good until the next call.
type Effects struct {
	// Deposed: a newer leader epoch was seen in the state. Refuse reads and appends, and
	// answer what waits with NOT_LEADER_OR_FOLLOWER; the controller's command will follow.
	Deposed bool
	// Advanced: HighWatermark or AckOffset moved. Answer what waited for it, wake consumers.
	Advanced bool
	// ISRChanged: the accepted ISR or ELR is another. Tell the controller (isr_change_notification).
	// If MayAppendAll fails now, answer waiting acks=all with NOT_ENOUGH_REPLICAS_AFTER_APPEND.
	ISRChanged bool
	// Propose: write the ISR, and report what came of it under the proposal's Seq.
	Propose *Proposal
	// Reread the partition's state, and report it by StateRead, until that has worked.
	Reread bool
}

// NewLeader is a partition's leader before its first Become.
func NewLeader(r rules.Rules, self BrokerID, cfg Settings) *Leader {
	return &Leader{rules: r, self: self, cfg: cfg, epoch: NoEpoch}
}

// BecomeLeader is a LeaderAndIsr command that makes this broker the leader.
type BecomeLeader struct {
	State    State
	Replicas []BrokerID
	LEO      Offset
	Flushed  Offset // up to where the own log is synced
	HW       Offset
	Now      time.Duration
}

// Become begins a leader epoch. The driver has given the log's epoch cache the epoch
// at LEO before (KAFKA-7415). Commands of epochs up to the present one are errors; a
// change of the state within the epoch goes to StateChanged.
func (l *Leader) Become(in BecomeLeader) (Effects, error) {
	s := &in.State
	switch {
	case s.Leader != l.self:
		return Effects{}, fmt.Errorf("replica: broker %d told to lead as broker %d", l.self, s.Leader)
	case s.LeaderEpoch <= l.epoch:
		return Effects{}, fmt.Errorf("replica: told to lead in epoch %d after epoch %d", s.LeaderEpoch, l.epoch)
	case !slices.Contains(s.ISR, l.self):
		return Effects{}, fmt.Errorf("replica: broker %d told to lead with an ISR of %v", l.self, s.ISR)
	}
	l.begin()
	l.leading, l.epoch, l.epochStart = true, s.LeaderEpoch, in.LEO
	l.leo, l.flushed, l.hw = in.LEO, min(in.Flushed, in.LEO), min(in.HW, in.LEO)
	l.acked = l.hw
	l.pending.clear()
	l.adopt(s)
	if l.rules.ResetFollowerState {
		l.others = l.others[:0]
	}
	l.assign(in.Replicas, in.Now)
	for i := range l.others {
		if p := &l.others[i]; p.InISR {
			p.CaughtUpAt = in.Now // it has LagMax to be heard of
		}
	}
	l.advance()
	// Nobody has fetched in this epoch, so nobody joins; but by positions kept from before (C12).
	for i := range l.others {
		l.maybeGrow(&l.others[i])
	}
	return l.done(), nil
}

// Resign ends the leadership; the epoch stays known.
func (l *Leader) Resign() {
	l.leading = false
	l.pending.clear()
}

// Appended tells the log end offset after an append.
func (l *Leader) Appended(leo Offset) Effects {
	l.begin()
	if !l.leading {
		return l.done()
	}
	if leo < l.leo {
		panic(fmt.Sprintf("BUG: replica: the leader's log end offset falls from %d to %d", l.leo, leo))
	}
	l.leo = leo
	l.advance()
	return l.done()
}

// Flushed tells up to where the own log is synced.
func (l *Leader) Flushed(to Offset) Effects {
	l.begin()
	if l.leading && to > l.flushed {
		l.flushed = min(to, l.leo)
		l.advance()
	}
	return l.done()
}

// SetSettings takes over a changed configuration.
func (l *Leader) SetSettings(cfg Settings) Effects {
	l.begin()
	l.cfg = cfg
	l.advance()
	return l.done()
}

// SetReplicas takes over a changed replica set within a leader epoch (reassignment).
// A replica that leaves is forgotten; one that comes starts with an unknown position.
// One that leaves and comes back between two calls looks unchanged: the controller
// bumps the leader epoch with each change of the set (C12).
func (l *Leader) SetReplicas(replicas []BrokerID, now time.Duration) Effects {
	l.begin()
	if l.leading {
		l.assign(replicas, now)
		l.advance()
	}
	return l.done()
}

// SetEligible tells who may join the ISR: brokers that are alive and not shutting down.
// Without a call all are. One that stops being eligible is left in the ISR: the
// controller takes it out (C2, KIP-841).
func (l *Leader) SetEligible(alive []BrokerID) {
	l.alive, l.aliveKnown = append(l.alive[:0], alive...), true
	for i := range l.others {
		p := &l.others[i]
		p.Eligible = slices.Contains(alive, p.ID)
	}
}

// begin and done enclose every call: effects are collected between them.
func (l *Leader) begin() { l.effects = Effects{} }

func (l *Leader) done() Effects {
	switch {
	case l.hw > l.leo:
		panic(fmt.Sprintf("BUG: replica: high watermark %d > log end offset %d", l.hw, l.leo))
	case l.leading && !slices.Contains(l.isr, l.self):
		panic(fmt.Sprintf("BUG: replica: leader %d is not in its ISR %v", l.self, l.isr))
	}
	return l.effects
}

// advance moves the high watermark to the smallest log end offset of those who may be
// elected, and what acks=all waits for with it.
func (l *Leader) advance() {
	if !l.leading {
		return
	}
	if low := l.committed(); low > l.hw {
		l.hw = low
		l.effects.Advanced = true
	}
	acked := l.hw
	if !l.rules.AckAllMaximalISR {
		acked = l.copies(l.minISR())
	}
	if acked > l.acked {
		l.acked = acked
		l.effects.Advanced = true
	}
}

// committed is where the high watermark may stand now.
func (l *Leader) committed() Offset {
	if l.rules.HWRequiresMinISR && len(l.isr) < l.minISR() {
		return unknown
	}
	low := l.own()
	for i := range l.others {
		if p := &l.others[i]; p.counts {
			low = min(low, p.LEO)
		}
	}
	return low
}

// own is up to where the leader's own copy counts.
func (l *Leader) own() Offset {
	if l.cfg.DurableBeforeAck {
		return min(l.flushed, l.leo)
	}
	return l.leo
}

// copies is the largest offset below which any n replicas hold everything: what was
// acked before acks meant the ISR (A8).
func (l *Leader) copies(n int) Offset {
	best := unknown
	consider := func(at Offset) {
		holders := 0
		if l.own() >= at {
			holders++
		}
		for i := range l.others {
			if l.others[i].LEO >= at {
				holders++
			}
		}
		if holders >= n {
			best = max(best, at)
		}
	}
	consider(l.own())
	for i := range l.others {
		consider(min(l.others[i].LEO, l.own()))
	}
	return best
}

// minISR is min.insync.replicas, but never more than there are replicas and never none.
func (l *Leader) minISR() int { return max(1, min(l.cfg.MinISR, len(l.replicas))) }

// assign makes others hold the replicas and whoever else is in the ISR.
func (l *Leader) assign(replicas []BrokerID, now time.Duration) {
	l.replicas = ascending(l.replicas, replicas)
	for i := range l.others {
		p := &l.others[i]
		if p.Assigned = slices.Contains(l.replicas, p.ID); !p.Assigned {
			p.LEO = unknown // its log may go; it may still be in an ISR, and come back (C12)
		}
	}
	for _, id := range l.replicas {
		if id != l.self {
			p := l.position(id, now)
			p.Assigned = true
		}
	}
	l.mark(now)
}

// mark brings what is known of each other replica in line with the ISR and what is
// proposed, and forgets those that are neither assigned nor in an ISR.
func (l *Leader) mark(now time.Duration) {
	for _, id := range l.isr {
		if id != l.self {
			l.position(id, now)
		}
	}
	keep := l.others[:0]
	for _, p := range l.others {
		p.InISR = slices.Contains(l.isr, p.ID)
		p.counts = p.InISR || slices.Contains(l.elr, p.ID) || l.mayBeAccepted(p.ID)
		if p.Assigned || p.counts {
			keep = append(keep, p)
		}
	}
	l.others = keep
}

// position finds the entry of a broker and makes it where there is none.
func (l *Leader) position(id BrokerID, now time.Duration) *Position {
	i, found := slices.BinarySearchFunc(l.others, id, func(p Position, id BrokerID) int { return int(p.ID) - int(id) })
	if !found {
		l.others = slices.Insert(l.others, i, Position{ID: id, LEO: unknown, Epoch: -1, Eligible: !l.aliveKnown || slices.Contains(l.alive, id), FetchedAt: now, CaughtUpAt: now, leoThen: l.leo})
	}
	return &l.others[i]
}

// Counting gives the replicas that the high watermark is the minimum over:
// this broker, the accepted ISR, and an ISR that may be accepted yet.
func (l *Leader) Counting() []BrokerID {
	counting := []BrokerID{l.self}
	for i := range l.others {
		if l.others[i].counts {
			counting = append(counting, l.others[i].ID)
		}
	}
	slices.Sort(counting)
	return counting
}
