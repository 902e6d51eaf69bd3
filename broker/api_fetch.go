package broker

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/replica"
	"github.com/tidemark-log/tidemark/storage"
)

// Fetch, versions 4-18, topics by id from 13.
//
// A fetch is answered at once when it finds min bytes, an error, or max wait 0;
// else it waits at its partitions until they have grown by enough, or max wait
// is over. Every answer reads again, so it never tells less than is visible.
//
// Left out: fetch sessions (each answer has session id 0, so clients send every
// partition each time),
// aborted transactions (there are none, so the last stable offset is the high
// watermark), the tags about other leaders.

// fetchOp is one fetch from request to answer. Who claims it first, of a woken
// partition, the timer and a closed connection, completes it.
type fetchOp struct {
	b        *Broker
	conn     ConnID
	version  int16
	minBytes int64
	maxBytes int
	topics   []fetchTopic
	reply    Reply
	rack     string // of the consumer (KIP-392)
	follower *follower

	claimed atomic.Bool
	bytes   atomic.Int64 // found at the first read, and grown since
	joining sync.Mutex   // held before a partition's lock, never after
	stop    func() bool  // the timer of max wait

	nextWoken              *fetchOp // under no lock: the claimer's
	registered             bool     // this and below: under fetchWaits.mu
	nextOfConn, prevOfConn *fetchOp
}

type fetchTopic struct {
	name  string
	id    topicID
	parts []fetchPart
}

// fetchPart is one partition of a fetch: what is asked, the answer, and its link in the partition's list.
type fetchPart struct {
	op          *fetchOp
	p           *partition
	index       int32
	epoch       int32 // that the client believes current; -1: none
	offset      int64
	maxBytes    int
	code        int16
	hw, start   int64
	region      storage.Region
	lastFetched int32            // a follower's: leader epoch of the record before offset
	diverging   replica.EpochEnd // and where its log parts from this one, if it does
	preferred   int32            // a consumer's: the replica it had better ask; noBroker: this one
	seenBytes   int64            // the partition's visibleBytes that op knows of
	next, prev  *fetchPart
	linked      bool
}

func (b *Broker) handleFetch(conn ConnID, req *kmsg.FetchRequest, reply Reply) {
	op, code := b.newFetch(conn, req, reply)
	if code != codeNone {
		op.topics = nil
		reply(Answer{Fetch: op.encode(code)})
		return
	}
	bytes, failed := op.read()
	if failed || bytes >= op.minBytes || req.MaxWaitMillis <= 0 || op.partitions() == 0 { // without partitions it would wait for nothing
		reply(Answer{Fetch: op.encode(codeNone)})
		return
	}
	op.release() // a fetch that waits pins nothing
	op.wait(bytes, time.Duration(req.MaxWaitMillis)*time.Millisecond)
}

// partitions counts what the fetch names.
func (op *fetchOp) partitions() (n int) {
	for i := range op.topics {
		n += len(op.topics[i].parts)
	}
	return n
}

// newFetch resolves a request. Topic names of known topics are the topic's own,
// so a fetch that waits holds nothing of the receive buffer: unknown ones are answered at once.
func (b *Broker) newFetch(conn ConnID, req *kmsg.FetchRequest, reply Reply) (*fetchOp, int16) {
	cfg := b.cfg.Load()
	op := &fetchOp{b: b, conn: conn, version: req.Version, minBytes: int64(req.MinBytes), reply: reply}
	op.maxBytes = min(max(int(req.MaxBytes), 0), cfg.FetchMaxBytes)
	op.minBytes = min(op.minBytes, int64(op.maxBytes)) // more never comes, as Kafka sees it too
	if req.SessionID != 0 {
		return op, codeFetchSessionIDNotFound
	}
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	if code := op.ofFollower(req); code != codeNone {
		return op, code
	}
	parts := make([]fetchPart, n)
	op.topics = make([]fetchTopic, len(req.Topics))
	m := b.meta.Load()
	for i := range req.Topics {
		rt, t := &req.Topics[i], &op.topics[i]
		var known *topic
		unknown := codeUnknownTopicOrPartition
		if req.Version >= 13 {
			known, unknown = m.byID[rt.TopicID], codeUnknownTopicID
		} else {
			known = m.topics[rt.Topic]
		}
		t.name, t.id = rt.Topic, rt.TopicID
		if known != nil {
			t.name = known.name
		}
		t.parts, parts = parts[:len(rt.Partitions)], parts[len(rt.Partitions):]
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			f := &t.parts[j]
			f.op, f.index, f.offset, f.maxBytes = op, rp.Partition, rp.FetchOffset, int(rp.PartitionMaxBytes)
			f.epoch, f.hw, f.start = rp.CurrentLeaderEpoch, -1, -1
			f.preferred = noBroker
			f.lastFetched, f.diverging = rp.LastFetchedEpoch, replica.NoEpochEnd
			f.p, f.code = known.find(rp.Partition, unknown)
		}
	}
	return op, codeNone
}

// read fills in the answer: regions in the request's order until max bytes are
// full. The first batch found is given however long it is, so that a consumer
// always gets on.
func (op *fetchOp) read() (bytes int64, failed bool) {
	left := op.maxBytes
	for i := range op.topics {
		for j := range op.topics[i].parts {
			f := &op.topics[i].parts[j]
			if f.p != nil {
				f.p.fetch(f, left, bytes == 0)
			}
			failed = failed || f.code != codeNone || f.diverging.End >= 0 || f.preferred != noBroker
			bytes += int64(f.region.Len)
			left -= min(left, f.region.Len)
		}
	}
	return bytes, failed
}

// fetch answers one part. first is true until a partition has given a batch.
func (p *partition) fetch(f *fetchPart, left int, first bool) {
	if p.repl == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.fetchLocked(nil, f, left, first)
		return
	}
	// A follower's fetch acknowledges, so it may move the high watermark.
	p.step(func(fx *effects) { p.fetchLocked(fx, f, left, first) })
}

func (p *partition) fetchLocked(fx *effects, f *fetchPart, left int, first bool) {
	f.hw, f.start, f.preferred = -1, -1, noBroker
	f.seenBytes = p.waitedBytes(f.op)
	if err := p.usable(); err != nil {
		f.code = codeOf(err)
		return
	}
	if p.repl != nil {
		p.replicaFetchLocked(fx, f, left, first)
		return
	}
	f.hw, f.start = p.visible, p.log.LogStartOffset()
	f.code = p.checkEpoch(f.epoch)
	switch {
	case f.code != codeNone:
	case f.offset < f.start || f.offset > p.log.LogEndOffset():
		f.code = codeOffsetOutOfRange
	default:
		p.readLocked(f, p.visible, left, first)
	}
}

// readLocked finds records for one part, none that reaches past end.
func (p *partition) readLocked(f *fetchPart, end int64, left int, first bool) {
	if f.offset >= end || left <= 0 && !first {
		return
	}
	limit := min(max(f.maxBytes, 0), left)
	region, err := p.log.Read(f.offset, end, limit)
	if err != nil {
		f.code = codeOf(err)
		if !errors.As(err, new(*storage.ProtocolError)) {
			p.reportRead(fmt.Sprintf("fetch at offset %d", f.offset), err)
		}
		return
	}
	if region.Len > limit && !first {
		region.Release()
		return
	}
	f.region = region
}

// checkEpoch holds a client's leader epoch against the partition's (KIP-320); -1: the client has none.
func (p *partition) checkEpoch(epoch int32) int16 {
	switch {
	case epoch < 0 || epoch == p.epoch:
		return codeNone
	case epoch < p.epoch:
		return codeFencedLeaderEpoch
	}
	return codeUnknownLeaderEpoch
}

// wait lets the fetch wait at its partitions. Between the read and the joining of
// a partition's list that partition may have grown, and the fetch would sleep
// through it: so joining compares bytes, as a growth would have done.
//
// The fetch may be claimed, by a partition or the timer, while it still joins
// others: leave waits for joining, so that no link stays behind.
func (op *fetchOp) wait(found int64, d time.Duration) {
	op.bytes.Store(found)
	enough := false
	op.joining.Lock()
	if !op.b.waits.add(op, op.b.cfg.Load().FetchWaitsMax) {
		op.joining.Unlock()
		op.reply(Answer{Fetch: op.encode(codeNone)})
		return
	}
	op.stop = op.b.env.After(d, func() {
		if op.claim() {
			op.complete()
		}
	})
	for i := range op.topics {
		for j := range op.topics[i].parts {
			enough = op.topics[i].parts[j].join() || enough
		}
	}
	op.joining.Unlock()
	if enough && op.claim() {
		op.complete()
	}
}

// join adds the part to its partition's list and reports whether the fetch has enough by now.
func (f *fetchPart) join() bool {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if f.p.usable() != nil {
		return true
	}
	bytes := f.p.waitedBytes(f.op)
	grown := bytes - f.seenBytes
	f.seenBytes = bytes
	if !f.p.waiting.joined(f.op) { // once: whoever appends looks at each link
		f.p.waiting.add(f)
	}
	return f.op.grow(grown)
}

// grow adds visible bytes and reports whether the fetch has enough.
func (op *fetchOp) grow(bytes int64) bool { return op.bytes.Add(bytes) >= op.minBytes }

// claim is true for one caller only.
func (op *fetchOp) claim() bool { return !op.claimed.Swap(true) }

// complete answers a claimed fetch with what is visible now. No lock is held.
func (op *fetchOp) complete() {
	op.leave()
	op.read()
	op.reply(Answer{Fetch: op.encode(codeNone)})
}

// drop ends a claimed fetch whose connection is gone.
func (op *fetchOp) drop() {
	op.leave()
	op.reply(Answer{Silent: true})
}

// leave ends the waiting of a claimed fetch.
func (op *fetchOp) leave() {
	op.joining.Lock()
	defer op.joining.Unlock()
	op.stop()
	for i := range op.topics {
		for j := range op.topics[i].parts {
			f := &op.topics[i].parts[j]
			f.p.mu.Lock()
			f.p.waiting.remove(f)
			f.p.mu.Unlock()
		}
	}
	op.b.waits.remove(op)
}

func (op *fetchOp) release() {
	for i := range op.topics {
		for j := range op.topics[i].parts {
			f := &op.topics[i].parts[j]
			f.region.Release()
			f.region = storage.Region{}
		}
	}
}
