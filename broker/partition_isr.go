package broker

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/broker/replica"
)

// failedAmong is true when one of the first n operations is what made a transaction fail.
func failedAmong(results []coord.Result, n int) bool {
	for i := range results[:min(n, len(results))] {
		if e := results[i].Err; e != nil && !errors.Is(e, coord.ErrRuntimeInconsistency) {
			return true
		}
	}
	return false
}

// controllerEpoch is the newest controller epoch that this broker has seen, in commands or in
// the partition's state: what it writes must not say that an older one wrote last (S27).
func (p *partition) controllerEpoch() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.b.member.commandEpoch.Load(), p.repl.controllerEpoch)
}

// lastKnownBeside is the state's LastKnownELR beside a new ISR: it ends when that is large enough.
func (p *partition) lastKnownBeside(pr *replica.Proposal) []int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.repl
	if len(pr.ISR) >= min(max(int(p.cfg.Load().MinISR), 1), len(q.replicas)) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(q.lastKnown), func(id int32) bool { return slices.Contains(pr.ISR, id) || slices.Contains(pr.ELR, id) })
}

// tellISR notes what the accepted ISR is, for answers about it. Under the lock.
func (p *partition) tellISR() {
	p.repl.isr = append([]int32(nil), p.repl.leader.ISR()...)
}

// rereadState reads the partition's state after a write that may or may not have come through.
func (b *Broker) rereadState(p *partition) {
	p.mu.Lock()
	busy := p.repl.reading
	p.repl.reading = true
	p.mu.Unlock()
	if busy {
		return
	}
	b.cluster.client().Get(coord.PartitionStatePath(p.topic, p.index), nil, func(data []byte, st coord.Stat, err error) {
		var state coord.PartitionState
		if err == nil {
			state, err = coord.DecodePartitionState(data)
		}
		p.step(func(fx *effects) {
			p.repl.reading = false
			switch {
			case p.usable() != nil:
			case err != nil:
				if !errors.Is(err, coord.ErrConnectionLoss) && !errors.Is(err, coord.ErrSessionExpired) {
					p.b.report(env.Warn, "state of %s-%d: %v", p.topic, p.index, err)
				}
				p.b.env.After(coordRetry, func() { p.b.rereadState(p) })
			default:
				p.repl.controllerEpoch = max(p.repl.controllerEpoch, state.ControllerEpoch)
				p.repl.lastKnown = state.LastKnownELR
				p.led(fx, p.repl.leader.StateRead(replica.State{
					Leader: state.Leader, LeaderEpoch: state.LeaderEpoch, ISR: state.ISR, ELR: state.ELR, PartitionEpoch: st.Version,
				}, p.b.env.Now()))
				if p.repl.leader.Leading() {
					p.tellISR()
				}
			}
		})
	})
}

// startReplicaTick has the leader look for laggards, about twice in the time that a
// laggard has.
func (p *partition) startReplicaTick() {
	q := p.repl
	if q.ticking {
		return
	}
	q.ticking = true
	var tick func()
	tick = func() {
		p.step(func(fx *effects) {
			if p.usable() != nil || !q.leader.Leading() {
				q.ticking = false
				return
			}
			p.led(fx, q.leader.Tick(p.b.env.Now()))
			p.b.env.After(p.tickPause(), tick)
		})
	}
	p.b.env.After(p.tickPause(), tick)
}

func (p *partition) tickPause() time.Duration {
	return max(p.cfg.Load().ReplicaLagMax/2, time.Millisecond)
}

// isrNotices collects partitions whose ISR their leader has changed, and tells the
// controller of them together.
type isrNotices struct {
	mu      sync.Mutex
	waiting []coord.TopicPartition
	pending bool
}

// isrNoticePause is how long changes are collected (Kafka: 5 s after the last, at most 60 s).
const isrNoticePause = 50 * time.Millisecond

// isrNoticeMax bounds the partitions of one notice, whose node is at most 1 MiB.
const isrNoticeMax = 3000

// noticeISR tells the controller, soon, that p's ISR was changed, so that it and through it all brokers know.
func (b *Broker) noticeISR(p *partition) {
	n := &b.notices
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(n.waiting, coord.TopicPartition{Topic: p.topic, Partition: p.index})
	if !n.pending {
		n.pending = true
		b.env.After(isrNoticePause, b.sendNotices)
	}
}

func (b *Broker) sendNotices() {
	n := &b.notices
	n.mu.Lock()
	some := n.waiting[:min(len(n.waiting), isrNoticeMax)]
	n.waiting = n.waiting[len(some):]
	n.pending = len(n.waiting) > 0
	more := n.pending
	n.mu.Unlock()
	if more {
		b.env.After(isrNoticePause, b.sendNotices)
	}
	if len(some) == 0 || b.state.Load() >= stateStopped {
		return
	}
	b.cluster.client().Create(coord.ISRChangePrefix, coord.EncodeISRChange(some), coord.Sequential, func(_ string, _ coord.Stat, err error) {
		if err == nil || b.state.Load() >= stateStopping {
			return
		}
		b.env.After(coordRetry, func() { // told twice is better than never
			n.mu.Lock()
			n.waiting = append(some, n.waiting...)
			pending := n.pending
			n.pending = true
			n.mu.Unlock()
			if !pending {
				b.sendNotices()
			}
		})
	})
}
