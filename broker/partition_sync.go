package broker

import (
	"slices"

	"github.com/tidemark-log/tidemark/storage"
)

// syncState is what a partition knows of its syncs. One is in flight at a time.
// Under group commit appends that come meanwhile share the next one. Without it
// (lab.flush.group=off) an append that asks for a sync while one is in flight is put off, and
// so is all that comes behind it: each gets a sync of its own; see partition_putoff.go.
//
// Invariant: waiters ascend by upTo, and each is answered once, with success
// only after a sync that began after its append has succeeded.
type syncState struct {
	inFlight  *storage.Flush
	again     bool         // what was appended since wants another flush
	unflushed int64        // records appended since the last flush began
	timer     func() bool  // stops the timer of log.flush.interval.ms; nil: none runs
	waiters   []syncWaiter // bounded by the requests in flight
	idle      func()       // to be called when no sync is in flight
	putOff    putOffQueue
	recovered int64 // what opening found behind the recovery point ends here, until its sync is over; else 0
}

type syncWaiter struct {
	upTo int64 // everything below must be durable
	done func(error)
}

// ack is a waiter whose wait is over.
type ack struct {
	done func(error)
	err  error
}

func (s *syncState) wait(upTo int64, done func(error)) {
	// A resend waits for an offset that others have passed already.
	i := len(s.waiters)
	for i > 0 && s.waiters[i-1].upTo > upTo {
		i--
	}
	s.waiters = append(s.waiters, syncWaiter{})
	copy(s.waiters[i+1:], s.waiters[i:])
	s.waiters[i] = syncWaiter{upTo, done}
}

// awaits reports whether an append that ended at upTo waits for its sync. One of the
// life before may have: nobody knows, and so its resend does.
func (s *syncState) awaits(upTo int64) bool {
	return upTo <= s.recovered || slices.ContainsFunc(s.waiters, func(w syncWaiter) bool { return w.upTo == upTo })
}

// take removes the waiters up to flushed and gives them their answer.
func (s *syncState) take(flushed int64, err error) []ack {
	n := 0
	for n < len(s.waiters) && s.waiters[n].upTo <= flushed {
		n++
	}
	if n == 0 {
		return nil
	}
	acks := make([]ack, n)
	for i, w := range s.waiters[:n] {
		acks[i] = ack{w.done, err}
	}
	kept := copy(s.waiters, s.waiters[n:])
	clear(s.waiters[kept:])
	s.waiters = s.waiters[:kept]
	return acks
}

// flushLocked begins a sync of everything appended until now, or notes that one
// must follow the one in flight, which began before the latest appends.
func (p *partition) flushLocked(fx *effects) {
	if p.sync.inFlight != nil {
		p.sync.again = true
		return
	}
	p.sync.again = false
	p.sync.unflushed = 0
	f := p.log.BeginFlush()
	if f == nil {
		// Nothing to do, or the log has failed, and its directory with it.
		if fx.dirFailed = p.dir.store.Offline(); fx.dirFailed == nil {
			p.flushed(fx, p.appendedBytes)
		}
		return
	}
	p.sync.inFlight = f
	fx.sync, fx.syncBytes = f, p.appendedBytes
}

// syncDone is the event that ends a sync. bytes is appendedBytes when it began.
func (p *partition) syncDone(f *storage.Flush, bytes int64, err error) {
	var idle func()
	p.step(func(fx *effects) { idle = p.endSync(fx, f, bytes, err) })
	if idle != nil {
		idle()
	}
}

// endSync gives what waited for no sync to be in flight, when none is.
func (p *partition) endSync(fx *effects, f *storage.Flush, bytes int64, err error) (idle func()) {
	if p.sync.inFlight != f {
		panic("BUG: broker: a sync ended that was not in flight")
	}
	p.sync.inFlight = nil
	if p.b.static.Faults.TrustFailedSync {
		err = nil
	}
	p.log.EndFlush(f, err)
	switch {
	case err != nil:
		// What the file holds is unknown. The directory goes offline, which
		// answers all that wait, here and in its other partitions, with an error.
		fx.dirFailed = err
	case p.dir.isOffline() || p.gone != nil:
		// The waiters were answered when that happened.
	default:
		p.flushed(fx, bytes)
		if p.sync.again || len(p.sync.waiters) > 0 {
			p.flushLocked(fx)
		}
		p.appendPutOff(fx)
	}
	if p.sync.inFlight == nil {
		idle, p.sync.idle = p.sync.idle, nil
	}
	return idle
}

// flushed answers what a finished sync covers. Acks leave here and nowhere
// earlier: FlushedOffset moves in EndFlush, after the sync succeeded.
func (p *partition) flushed(fx *effects, bytes int64) {
	upTo := p.log.FlushedOffset()
	if upTo >= p.sync.recovered {
		p.sync.recovered = 0
	}
	if p.repl != nil {
		p.replicaFlushed(fx)
	} else if p.cfg.Load().Visibility == VisibleFlushed {
		p.advanceVisible(fx, upTo, bytes)
	}
	if p.b.static.Faults.ShareEarlierSync {
		upTo = p.log.LogEndOffset()
	}
	fx.acks = append(fx.acks, p.sync.take(upTo, nil)...)
}

// flushAll calls done after everything appended until now is durable.
func (p *partition) flushAll(done func(error)) {
	var err error
	p.step(func(fx *effects) {
		if err = p.usable(); err == nil {
			p.sync.wait(p.log.LogEndOffset(), done)
			p.flushLocked(fx)
		}
	})
	if err != nil {
		done(err)
	}
}

// whenIdle calls f once no sync is in flight: only then may the log be closed.
func (p *partition) whenIdle(f func()) {
	p.mu.Lock()
	busy := p.sync.inFlight != nil
	if before := p.sync.idle; busy {
		p.sync.idle = func() {
			if before != nil {
				before()
			}
			f()
		}
	}
	p.mu.Unlock()
	if !busy {
		f()
	}
}
