package broker

import (
	"errors"
	"sync"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/replica"
)

// isrWrites are the ISRs that leaders want written. One that is proposed while few are
// under way goes at once; those that come in crowds, as when thousands of followers have caught up with a
// broker that came back, go together.
type isrWrites struct {
	mu       sync.Mutex
	waiting  []*isrWrite // bounded by the partitions: each has one proposal at a time
	inFlight int         // transactions
}

// isrWrite is one proposal: the operations that write it, and where in them the state is set.
type isrWrite struct {
	p   *partition
	seq uint64
	ops []coord.Op // checks of the joiner, then the set
}

const (
	isrWritesInFlightMax = 2
	isrWritesTogetherMax = 64
)

// proposeISR writes the ISR that the leader of p wants, if nobody has changed the state
// since (C5), and the joiner is still the incarnation that caught up (C3).
func (b *Broker) proposeISR(p *partition, pr *replica.Proposal) {
	state := coord.PartitionState{
		ControllerEpoch: p.controllerEpoch(), Leader: b.static.BrokerID, LeaderEpoch: pr.LeaderEpoch,
		ISR: pr.ISR, ELR: pr.ELR, LastLeader: coord.NoBroker, LastKnownELR: p.lastKnownBeside(pr), // while somebody leads: what the controller would write
	}
	w := &isrWrite{p: p, seq: pr.Seq}
	if pr.Joiner >= 0 {
		if pr.JoinerEpoch >= 0 {
			w.ops = append(w.ops, coord.CheckOp(coord.BrokerEpochPath(pr.Joiner), int32(pr.JoinerEpoch)))
		}
		w.ops = append(w.ops, coord.CheckOp(coord.BrokerIDPath(pr.Joiner), coord.AnyVersion))
	}
	w.ops = append(w.ops, coord.SetOp(coord.PartitionStatePath(p.topic, p.index), state.Encode(), pr.PartitionEpoch))
	b.isrWrites.mu.Lock()
	b.isrWrites.waiting = append(b.isrWrites.waiting, w)
	b.isrWrites.mu.Unlock()
	b.runISRWrites()
}

// runISRWrites begins transactions while there is something to write and few are under way.
func (b *Broker) runISRWrites() {
	q := &b.isrWrites
	for {
		q.mu.Lock()
		n := min(len(q.waiting), isrWritesTogetherMax)
		if n == 0 || q.inFlight >= isrWritesInFlightMax {
			q.mu.Unlock()
			return
		}
		some := q.waiting[:n:n]
		if q.waiting = q.waiting[n:]; len(q.waiting) == 0 {
			q.waiting = nil
		}
		q.inFlight++
		q.mu.Unlock()
		b.writeISRs(some, func() {
			q.mu.Lock()
			q.inFlight--
			q.mu.Unlock()
			b.runISRWrites()
		})
	}
}

// writeISRs writes ISRs in one transaction. Where one of them cannot be, none was written, and each is tried on its own.
func (b *Broker) writeISRs(writes []*isrWrite, done func()) {
	var ops []coord.Op
	for _, w := range writes {
		ops = append(ops, w.ops...)
	}
	b.cluster.client().Multi(ops, func(results []coord.Result, err error) {
		if refused := errors.Is(err, coord.ErrBadVersion) || errors.Is(err, coord.ErrNoNode); len(writes) > 1 && (refused || errors.Is(err, coord.ErrTooLarge)) {
			end := newCountdown(len(writes), done)
			for i := range writes {
				b.writeISRs(writes[i:i+1], end.done)
			}
			end.done()
			return
		}
		for at, i := 0, 0; i < len(writes); i++ {
			own := results[min(at, len(results)):min(at+len(writes[i].ops), len(results))]
			at += len(writes[i].ops)
			writes[i].written(own, err)
		}
		done()
	})
}

// written tells the leader what became of its proposal; results are those of its own operations.
func (w *isrWrite) written(results []coord.Result, err error) {
	p := w.p
	p.step(func(fx *effects) {
		if p.usable() != nil {
			return
		}
		l := p.repl.leader
		switch joinerGone := failedAmong(results, len(w.ops)-1); {
		case err == nil:
			p.led(fx, l.Accepted(w.seq, results[len(results)-1].Stat.Version))
			p.tellISR()
		case joinerGone:
			p.led(fx, l.JoinerGone(w.seq))
		case errors.Is(err, coord.ErrBadVersion), errors.Is(err, coord.ErrNoNode):
			p.led(fx, l.Refused(w.seq))
		default:
			p.led(fx, l.Unknown(w.seq))
		}
	})
}
