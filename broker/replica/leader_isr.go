package replica

import (
	"slices"
	"time"
)

// Proposal is an ISR that the leader wants written: one multi of
//
//	check /brokers/epochs/Joiner at version JoinerEpoch   where Joiner >= 0 and JoinerEpoch >= 0 (C3)
//	check /brokers/ids/Joiner exists                      where Joiner >= 0: one that is not registered stays out (C2)
//	set the partition's state at version PartitionEpoch   -1: whatever its version (C5 off)
//
// Its outcome is reported by Accepted, Refused, JoinerGone or Unknown.
type Proposal struct {
	Seq            uint64 // names it; an outcome of another is dropped
	LeaderEpoch    LeaderEpoch
	ISR, ELR       []BrokerID // ascending
	PartitionEpoch PartitionEpoch
	Joiner         BrokerID // -1: the ISR shrinks
	JoinerEpoch    BrokerEpoch
}

// pendingISR is the change that is under way; one at a time.
//
// After an unknown outcome the write may still arrive, so the proposal stays pending,
// and so counted (C1), and is repeated as it was until the state's version has moved on
// or the joiner's check has failed: from then on no earlier copy of it can succeed.
type pendingISR struct {
	Proposal
	phase      pendingPhase
	joinerGone bool // the joiner's check failed: never again, once the state has shown that it did not succeed before
}

type pendingPhase int8

const (
	idle    pendingPhase = iota
	asked                // the write is under way
	reading              // its outcome is not known or not success: the state is being read
	again                // to be repeated at the next Tick
)

// ProposedISR is the ISR of the change that is under way, nil when none is; good until the next call.
func (l *Leader) ProposedISR() []BrokerID {
	if l.pending.phase == idle {
		return nil
	}
	return l.pending.ISR
}

func (p *pendingISR) clear() {
	p.phase, p.joinerGone = idle, false
}

// mayBeAccepted: the high watermark waits for members of an ISR that the coordination
// service may already have (C1).
func (l *Leader) mayBeAccepted(id BrokerID) bool {
	return l.rules.MaximalISR && l.pending.phase != idle && slices.Contains(l.pending.ISR, id)
}

// Tick is called about every half LagMax: it proposes to drop members of the ISR that
// lag, and repeats a change that did not get through.
func (l *Leader) Tick(now time.Duration) Effects {
	l.begin()
	switch {
	case !l.leading:
	case l.pending.phase == again:
		l.pending.phase = asked
		l.pending.Seq++
		l.effects.Propose = &l.pending.Proposal
	case l.pending.phase == idle:
		l.maybeShrink(now)
	}
	return l.done()
}

// maybeShrink proposes the ISR without those that have not had all the leader had for
// LagMax. The leader itself stays.
func (l *Leader) maybeShrink(now time.Duration) {
	isr := l.pending.ISR[:0]
	for _, id := range l.isr {
		if id == l.self {
			isr = append(isr, id)
			continue
		}
		p := l.position(id, now)
		if !p.Assigned && !l.rules.TolerateForeignISR {
			return // the lookup of id among the replicas failed, and this round with it (C14)
		}
		if p.Assigned && !l.lags(p, now) {
			isr = append(isr, id)
		}
	}
	l.pending.ISR = isr
	// An ELR is of no use beside an ISR that is large enough, which it is when
	// min.insync.replicas was lowered; until it is gone the high watermark waits for it.
	if len(isr) < len(l.isr) || len(l.elr) > 0 && len(isr) >= l.minISR() {
		l.propose(-1, -1)
	}
}

func (l *Leader) lags(p *Position, now time.Duration) bool {
	return p.LEO < l.leo && now-p.CaughtUpAt > l.cfg.LagMax
}

// maybeGrow proposes the ISR with p in it, if p has all that was ever committed: what
// is below the high watermark, and, as a new leader's own may be behind, below the
// start of the leader's epoch, which no earlier leader's passed (B6).
func (l *Leader) maybeGrow(p *Position) {
	if !l.leading || l.pending.phase != idle || p.InISR || !p.Assigned || !p.Eligible {
		return
	}
	from := l.hw
	if l.rules.ISRJoinAtEpochStart {
		from = max(from, l.epochStart)
	}
	if p.LEO < from {
		return
	}
	epoch := BrokerEpoch(-1)
	if l.rules.ISRBrokerEpoch {
		epoch = p.Epoch
	}
	l.pending.ISR = append(append(l.pending.ISR[:0], l.isr...), p.ID)
	slices.Sort(l.pending.ISR)
	l.propose(p.ID, epoch)
}

// propose sends the ISR in l.pending on its way, with the ELR that goes with it.
func (l *Leader) propose(joiner BrokerID, epoch BrokerEpoch) {
	p := &l.pending
	p.Seq++
	p.phase, p.joinerGone = asked, false
	p.LeaderEpoch, p.PartitionEpoch = l.epoch, -1
	if l.rules.ConditionalISRWrite {
		p.PartitionEpoch = l.partitionEpoch
	}
	p.Joiner, p.JoinerEpoch = joiner, epoch
	p.ELR = l.nextELR(p.ELR[:0])
	l.mark(0)
	l.effects.Propose = &p.Proposal
}

// nextELR appends to elr who stays eligible outside the proposed ISR. While it is below
// min.insync.replicas nothing is committed, so those who leave it, and those who were
// eligible before, have all that is (A6). Once it is not, later records need not reach them.
func (l *Leader) nextELR(elr []BrokerID) []BrokerID {
	if !l.rules.ELR || len(l.pending.ISR) >= l.minISR() {
		return elr
	}
	for _, ids := range [2][]BrokerID{l.isr, l.elr} {
		for _, id := range ids {
			if !slices.Contains(l.pending.ISR, id) && !slices.Contains(elr, id) && slices.Contains(l.replicas, id) {
				elr = append(elr, id)
			}
		}
	}
	slices.Sort(elr)
	return elr
}

// Accepted tells that the proposal is written, and the version it got.
func (l *Leader) Accepted(seq uint64, version PartitionEpoch) Effects {
	l.begin()
	if l.outcomeOf(seq) {
		l.commit(version)
	}
	return l.done()
}

// Refused tells that the state had another version: nothing was written, by this try.
func (l *Leader) Refused(seq uint64) Effects { return l.reread(seq, false) }

// Unknown tells that no answer came: the proposal may be written, or still be.
func (l *Leader) Unknown(seq uint64) Effects { return l.reread(seq, false) }

// JoinerGone tells that the check on the joiner failed: it is another incarnation, or
// not registered. Nothing was written by this try, and nothing will be by later ones.
func (l *Leader) JoinerGone(seq uint64) Effects { return l.reread(seq, true) }

func (l *Leader) reread(seq uint64, joinerGone bool) Effects {
	l.begin()
	if l.outcomeOf(seq) {
		l.pending.phase = reading
		l.pending.joinerGone = joinerGone
		l.effects.Reread = true
	}
	return l.done()
}

func (l *Leader) outcomeOf(seq uint64) bool {
	return l.leading && l.pending.phase == asked && l.pending.Seq == seq
}

// StateRead tells the partition's state as it was read after Reread.
func (l *Leader) StateRead(s State, now time.Duration) Effects {
	l.begin()
	if l.leading && l.pending.phase == reading {
		l.pending.phase = again
		l.observe(&s, now)
	}
	return l.done()
}

// StateChanged tells the partition's state as the controller pushed it, in this leader epoch.
func (l *Leader) StateChanged(s State, now time.Duration) Effects {
	l.begin()
	if l.leading {
		l.observe(&s, now)
	}
	return l.done()
}

// observe takes over a state that is newer than what is known.
func (l *Leader) observe(s *State, now time.Duration) {
	if s.LeaderEpoch > l.epoch || s.LeaderEpoch == l.epoch && (s.Leader != l.self || !slices.Contains(s.ISR, l.self)) {
		l.Resign()
		l.effects.Deposed = true
		return
	}
	p := &l.pending
	known := l.partitionEpoch
	switch {
	case s.LeaderEpoch < l.epoch || s.PartitionEpoch < known:
		return // older than what is known
	case s.PartitionEpoch == known:
		if p.phase == again && p.joinerGone {
			l.dropJoiner(now)
		}
		return
	case p.phase != idle && !l.rules.EqualStateIsSuccess:
		return // only the retry's own success would do, and its version is the old one (C7)
	}
	// Whether it is what was wanted, by a try whose answer was lost, or another's
	// change: tries with the old version cannot succeed any more.
	p.clear()
	changed := !sameSet(l.isr, s.ISR) || !sameSet(l.elr, s.ELR)
	l.adopt(s)
	l.mark(now)
	l.effects.ISRChanged = changed
	l.advance()
}

// commit makes the proposal the accepted state.
func (l *Leader) commit(version PartitionEpoch) {
	p := &l.pending
	l.isr = append(l.isr[:0], p.ISR...)
	l.elr = append(l.elr[:0], p.ELR...)
	l.partitionEpoch = version
	p.clear()
	l.mark(0)
	l.effects.ISRChanged = true
	l.advance()
}

// dropJoiner gives up a growth whose joiner is not the incarnation that had caught up.
func (l *Leader) dropJoiner(now time.Duration) {
	p := l.position(l.pending.Joiner, now)
	p.LEO = unknown // until it fetches, as whoever it is now
	l.pending.clear()
	l.mark(now)
	l.advance()
}

func (l *Leader) adopt(s *State) {
	l.isr = ascending(l.isr, s.ISR)
	l.elr = ascending(l.elr, s.ELR)
	l.partitionEpoch = s.PartitionEpoch
}
