package broker

import (
	"github.com/tidemark-log/tidemark/broker/replica"
	"github.com/tidemark-log/tidemark/storage"
)

// effects is what a step of a partition leaves to do after its lock is released.
type effects struct {
	acks      []ack
	placed    []placed
	woken     wokenFetches
	sync      *storage.Flush
	syncBytes int64
	dirFailed error

	// Of a replicated partition: an ISR to be written, its state to be read again, an
	// ISR that was accepted, a follower that may fetch again.
	propose    *replica.Proposal
	reread     bool
	isrChanged bool
	fetchAgain bool
}

// carryOut does what a step of p left to do. No lock is held. A sync is asked
// for before the acks leave, so that the disk is busy while they do.
func (b *Broker) carryOut(p *partition, fx *effects) {
	if fx.dirFailed != nil {
		b.failDir(p.dir, fx.dirFailed)
	}
	if f, bytes := fx.sync, fx.syncBytes; f != nil {
		b.env.Sync(f.Steps, func(err error) { p.syncDone(f, bytes, err) })
	}
	if fx.propose != nil {
		b.proposeISR(p, fx.propose)
	}
	if fx.reread {
		b.rereadState(p)
	}
	if fx.isrChanged {
		b.noticeISR(p)
	}
	for i := range fx.acks {
		fx.acks[i].done(fx.acks[i].err)
	}
	for i := range fx.placed {
		fx.placed[i].owner.placed(fx.placed[i].a)
	}
	fx.woken.complete()
	if fx.fetchAgain {
		b.fetchers.wakeFor(p)
	}
}

// wokenFetches are claimed fetches in the order of their waking, linked by nextWoken.
type wokenFetches struct{ first, last *fetchOp }

func (w *wokenFetches) add(op *fetchOp) {
	if w.last == nil {
		w.first = op
	} else {
		w.last.nextWoken = op
	}
	w.last = op
}

func (w *wokenFetches) addAll(more wokenFetches) {
	switch {
	case more.first == nil:
	case w.last == nil:
		*w = more
	default:
		w.last.nextWoken, w.last = more.first, more.last
	}
}

// complete answers them. No lock is held.
func (w *wokenFetches) complete() {
	for op := w.first; op != nil; {
		next := op.nextWoken
		op.nextWoken = nil
		op.complete()
		op = next
	}
}
