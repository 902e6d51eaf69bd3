package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/internal/workers"
)

// pending is one request whose answer has not been written.
type pending struct {
	pipe          *pipeline
	next          *pending // the request after it, in order of arrival
	key           int16
	version       int16
	correlationID int32
	flexible      bool
	cost          int64         // bytes: its frame's, for a fetch what it asks for, and once answered the answer's weight
	began         time.Duration // metrics.now
	answered      bool
	answer        broker.Answer
}

// pipeline keeps the responses of a connection in the order of its requests.
//
// Whoever sets writing writes: it takes answered requests from the head, writes
// them without the lock, and goes on until the head is unanswered. That is the
// reader's goroutine when the answer came while it was inside Handle (the usual
// produce: no goroutine is woken), and one started for it when it came later (a
// long poll, an ack after a sync). So a reply never blocks the one who gives it.
//
// Invariant: writing, or the head is unanswered, or the head is being handled by
// the reader, which looks again when Handle has returned.
//
// Reading stops while countMax requests have no written answer, or while what they
// cost comes to more than costMax; one request is always admitted.
type pipeline struct {
	countMax int
	costMax  int64

	write func(batch []*pending) error // in order, outside the lock
	fail  func(error)                  // called once, when a write failed or an answer asked for the end

	mu         sync.Mutex
	changed    sync.Cond // there is room, or it is empty, or it is closed
	head, tail *pending
	count      int
	cost       int64
	ready      int      // answered and still in the queue
	answers    int64    // written so far
	handling   *pending // what the reader is inside Handle with
	writing    bool
	closed     bool
	admitting  bool       // the reader waits for room
	batch      []*pending // reused by the writer
}

func newPipeline(countMax int, costMax int64, write func([]*pending) error, fail func(error)) *pipeline {
	p := &pipeline{countMax: countMax, costMax: costMax, write: write, fail: fail}
	p.changed.L = &p.mu
	return p
}

// admit queues a request that the reader is about to hand to Handle. It waits
// while the connection is at a bound; false means that the connection is closed.
func (p *pipeline) admit(q *pending) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && p.count > 0 && (p.count >= p.countMax || p.cost+q.cost > p.costMax) {
		p.admitting = true
		p.changed.Wait()
	}
	p.admitting = false
	if p.closed {
		return false
	}
	q.pipe = p
	if p.tail == nil {
		p.head = q
	} else {
		p.tail.next = q
	}
	p.tail = q
	p.count++
	p.cost += q.cost
	p.handling = q
	return true
}

// reply is the broker.Reply of one request.
func (q *pending) reply(a broker.Answer) {
	p := q.pipe
	weight := weigh(&a)
	p.mu.Lock()
	again := q.answered
	q.answered, q.answer = true, a
	q.cost += weight
	p.cost += weight
	closed := p.closed
	p.ready++
	if q == p.head && q != p.handling && !p.writing && !closed {
		p.writing = true
		workers.Go(p.drain)
	}
	p.mu.Unlock()
	switch {
	case again:
		panic(fmt.Sprintf("BUG: server: second reply to request %d (api key %d)", q.correlationID, q.key))
	case closed:
		q.release()
	}
}

// handled says that Handle has returned for the newest request. The reader
// writes what is ready.
func (p *pipeline) handled() {
	p.mu.Lock()
	p.handling = nil
	write := p.head != nil && p.head.answered && !p.writing && !p.closed
	p.writing = p.writing || write
	if write {
		p.drainLocked()
	}
	p.mu.Unlock()
}

// drain is drainLocked for a goroutine of its own.
func (p *pipeline) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drainLocked()
}

// drainLocked writes answers until the head has none, with the lock given back
// meanwhile. The caller has set writing.
func (p *pipeline) drainLocked() {
	for {
		batch := p.take()
		if len(batch) == 0 {
			p.writing = false
			return
		}
		p.mu.Unlock()
		err := p.write(batch)
		cost := int64(0)
		for _, q := range batch {
			cost += q.cost
			q.release()
		}
		p.mu.Lock()
		p.count -= len(batch)
		p.answers += int64(len(batch))
		p.cost -= cost
		clear(batch)
		p.changed.Broadcast()
		if err != nil {
			p.writing = false
			p.mu.Unlock()
			p.fail(err)
			p.mu.Lock()
			return
		}
	}
}

// take removes the answered requests at the head. The batch is good until the next take.
func (p *pipeline) take() []*pending {
	p.batch = p.batch[:0]
	for !p.closed && p.head != nil && p.head.answered {
		q := p.head
		p.head, q.next = q.next, nil
		if p.head == nil {
			p.tail = nil
		}
		p.ready--
		p.batch = append(p.batch, q)
	}
	return p.batch
}

// close drops everything unanswered; replies that come later are released.
func (p *pipeline) close() {
	p.mu.Lock()
	p.closed = true
	q := p.head
	p.head, p.tail = nil, nil
	p.changed.Broadcast()
	// Who was answered is decided here; the others are released by their reply.
	var answered []*pending
	for ; q != nil; q = q.next {
		p.count--
		p.cost -= q.cost
		if q.answered {
			answered = append(answered, q)
		}
	}
	p.mu.Unlock()
	for _, q := range answered {
		q.release()
	}
}

// waitEmpty returns when every request admitted has been answered and written,
// or the connection is closed.
func (p *pipeline) waitEmpty() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && p.count > 0 {
		p.changed.Wait()
	}
}

// pipeState is a pipeline at one moment.
type pipeState struct {
	writing   bool  // an answer is being written, perhaps to a client that does not read
	waiting   bool  // one is there that has not been written, perhaps behind an endless long poll
	inFlight  int   // requests without a written answer
	answers   int64 // written so far
	admitting bool  // the reader waits for room, and reads nothing
}

func (p *pipeline) state() pipeState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return pipeState{p.writing, p.writing || p.ready > 0, p.count, p.answers, p.admitting}
}

// release gives up what the answer holds. No lock of the pipeline is held: what
// a pin does when it goes is the storage layer's business.
func (q *pending) release() {
	if q.answer.Fetch != nil {
		q.answer.Fetch.Release()
	}
	q.answer = broker.Answer{}
}
