// Package sim runs the real broker in a world made of one seed: one goroutine,
// one event queue, virtual time that jumps from event to event, disks that
// lose power, connections that break.
//
// A run draws its configuration and its faults from the seed, lets clients
// produce and consume, breaks things, heals, and judges what every client saw
// (experiments/history). The same seed gives the same trace hash in any process:
// nothing here may look at the machine. The lint of internal/lint keeps it so.
//
// There are two worlds over one loop. World is a broker alone, one to three producers and
// a consumer. Cluster is several brokers, a network between them that can be cut, the
// model of the coordination service (broker/coord), and clients that follow leaders;
// package ghost knows what its brokers may not know, and judges them by it.
package sim

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// start is the wall time at which every world begins.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// event is something that happens at a time. It belongs to a process and is
// dropped when that is dead, or to the world (nil).
type event struct {
	at    time.Duration
	n     int64 // order of coming: ties are broken by it
	owner *process
	f     func() // nil once stopped
	index int    // in the queue; -1 when it is not there
}

// process is what an event may belong to. A paused one stands still, as in a long
// garbage collection: what comes due waits, in order, until it goes on.
type process struct {
	dead   bool
	paused bool
	held   []*event
}

type eventQueue []*event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	if q[i].at != q[j].at {
		return q[i].at < q[j].at
	}
	return q[i].n < q[j].n
}
func (q eventQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *eventQueue) Push(x any) {
	e := x.(*event)
	e.index = len(*q)
	*q = append(*q, e)
}
func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	e.index = -1
	return e
}

// loop is the world's time: the queue, the clock, the one source of chance.
type loop struct {
	now    time.Duration // virtual, since the start
	queue  eventQueue
	next   int64
	events int64 // that have happened
	rng    *rand.Rand
	trace  *trace
}

// after lets f happen d from now, for owner as long as it lives.
func (l *loop) after(owner *process, d time.Duration, f func()) *event {
	l.next++
	e := &event{at: l.now + max(d, 0), n: l.next, owner: owner, f: f}
	heap.Push(&l.queue, e)
	return e
}

// stop keeps an event from happening, and says whether it still could.
func (l *loop) stop(e *event) bool {
	if e.index >= 0 {
		heap.Remove(&l.queue, e.index)
		e.f = nil
		return true
	}
	waits := e.owner != nil && e.f != nil && slices.Contains(e.owner.held, e)
	if waits {
		e.f = nil
	}
	return waits
}

// pause lets nothing of p happen until resume.
func (l *loop) pause(p *process) { p.paused = true }

// resume lets what was held happen now, in order.
func (l *loop) resume(p *process) {
	p.paused = false
	for _, e := range p.held {
		if e.f != nil {
			e.at = l.now
			heap.Push(&l.queue, e)
		}
	}
	p.held = nil
}

// step lets the next event happen. false: there is none before end. A crash mark
// that comes out of it is given to crashed, and nowhere else.
func (l *loop) step(end time.Duration, crashed func(crashMark)) bool {
	for len(l.queue) > 0 {
		if l.queue[0].at > end {
			return false
		}
		e := heap.Pop(&l.queue).(*event)
		if o := e.owner; o != nil && (o.dead || o.paused) {
			if !o.dead {
				o.held = append(o.held, e)
			}
			continue
		}
		l.now = e.at
		l.events++
		f := e.f
		e.f = nil
		l.guarded(f, crashed)
		return true
	}
	return false
}

// guarded runs f, in which the process of an incarnation may die.
func (l *loop) guarded(f func(), crashed func(crashMark)) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case crashMark:
			crashed(r)
		default:
			panic(r)
		}
	}()
	f()
}

// Draws. Each is one use of the one source, so their order is part of the seed's story.

// chance is true in one of n cases.
func (l *loop) chance(n int) bool { return l.rng.IntN(n) == 0 }

// between draws a duration in [low, high), mostly near low: squaring favours the
// short ones, as real latencies do.
func (l *loop) between(low, high time.Duration) time.Duration {
	u := l.rng.Float64()
	return low + time.Duration(u*u*float64(high-low))
}

// pick draws one of some values.
func pick[T any](rng *rand.Rand, values ...T) T { return values[rng.IntN(len(values))] }
