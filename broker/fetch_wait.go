package broker

import (
	"maps"
	"slices"
	"sync"
)

// fetchWaitList is the fetches that wait at one partition, under its lock. A
// fetch may wait at many partitions; its part of each is a link of that list, so
// that joining and leaving cost the same however many others wait.
type fetchWaitList struct{ first *fetchPart }

func (l *fetchWaitList) add(f *fetchPart) {
	f.prev, f.next = nil, l.first
	if l.first != nil {
		l.first.prev = f
	}
	l.first = f
	f.linked = true
}

// joined is true when the fetch that joined last is op: it names this partition twice.
func (l *fetchWaitList) joined(op *fetchOp) bool { return l.first != nil && l.first.op == op }

func (l *fetchWaitList) remove(f *fetchPart) {
	if !f.linked {
		return
	}
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		l.first = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	}
	f.prev, f.next, f.linked = nil, nil, false
}

// advance tells the waiting fetches that visible bytes have grown to bytes, and
// collects those that have enough. Followers wait for appended bytes instead.
func (l *fetchWaitList) advance(fx *effects, bytes int64, follower bool) {
	for f := l.first; f != nil; {
		next := f.next
		if f.op.isFollower() != follower {
			f = next
			continue
		}
		grown := bytes - f.seenBytes
		f.seenBytes = bytes
		if f.op.grow(grown) && f.op.claim() {
			l.remove(f)
			fx.woken.add(f.op)
		}
		f = next
	}
}

// wakeAll collects all waiting fetches: their partition has an error to tell them.
func (l *fetchWaitList) wakeAll(fx *effects) {
	for f := l.first; f != nil; {
		next := f.next
		l.remove(f)
		if f.op.claim() {
			fx.woken.add(f.op)
		}
		f = next
	}
}

// fetchWaits counts the waiting fetches of the broker and knows them by
// connection, so that a closed connection takes its own with it.
type fetchWaits struct {
	mu     sync.Mutex
	count  int
	parts  int                 // partitions that they name
	byConn map[ConnID]*fetchOp // first of a list through nextOfConn
	closed bool
}

// waitingPartsMax bounds the partitions that all waiting fetches name together, each of
// which is some 150 bytes: a fetch may name 100,000, and the same one again and again.
const waitingPartsMax = 1_000_000

// add lets op wait, unless max do already, or name too much, or the broker stops.
func (w *fetchWaits) add(op *fetchOp, max int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.count >= max || w.parts+op.partitions() > waitingPartsMax {
		return false
	}
	if w.byConn == nil {
		w.byConn = map[ConnID]*fetchOp{}
	}
	w.count++
	w.parts += op.partitions()
	first := w.byConn[op.conn]
	op.prevOfConn, op.nextOfConn = nil, first
	if first != nil {
		first.prevOfConn = op
	}
	w.byConn[op.conn] = op
	op.registered = true
	return true
}

func (w *fetchWaits) remove(op *fetchOp) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !op.registered {
		return
	}
	op.registered = false
	w.count--
	w.parts -= op.partitions()
	if op.nextOfConn != nil {
		op.nextOfConn.prevOfConn = op.prevOfConn
	}
	switch {
	case op.prevOfConn != nil:
		op.prevOfConn.nextOfConn = op.nextOfConn
	case op.nextOfConn != nil:
		w.byConn[op.conn] = op.nextOfConn
	default:
		delete(w.byConn, op.conn)
	}
	op.prevOfConn, op.nextOfConn = nil, nil
}

// close answers all waiting fetches with what there is, and lets none wait any more.
func (w *fetchWaits) close() {
	w.mu.Lock()
	w.closed = true
	var ops []*fetchOp
	for _, conn := range slices.Sorted(maps.Keys(w.byConn)) {
		for op := w.byConn[conn]; op != nil; op = op.nextOfConn {
			ops = append(ops, op)
		}
	}
	w.mu.Unlock()
	for _, op := range ops {
		if op.claim() {
			op.complete()
		}
	}
}

// ofConn gives the fetches that wait for a connection.
func (w *fetchWaits) ofConn(c ConnID) []*fetchOp {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ops []*fetchOp
	for op := w.byConn[c]; op != nil; op = op.nextOfConn {
		ops = append(ops, op)
	}
	return ops
}

// waitingNow is how many fetches wait.
func (w *fetchWaits) waitingNow() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}
