// Package history judges what clients of a log saw: what was acknowledged must be
// there, what is read must be what was written, at one offset and in order.
//
// It knows nothing of how the run was made. A simulation and a run of live
// processes tell it the same things: Sent, Acked, Read, and what a restart found.
// The invariants' names (S12, …) are those of the failure catalogue.
//
// Batches are told apart by their encoded records, which therefore have to be
// unique in a run: put a number into each.
package history

import (
	"fmt"
	"slices"

	"github.com/tidemark-log/tidemark/storage/record"
)

// Promises are what the log under test is configured to keep.
type Promises struct {
	// AckIsDurable: an acknowledged batch survives a power cut.
	AckIsDurable bool
	// ReadIsDurable: only what survives a power cut is shown to consumers.
	ReadIsDurable bool
	// ByteOffsets: an offset is a position; the broker rewrites the last offset delta and the CRC.
	ByteOffsets bool
	// RetentionBytes and RetentionMs say what may be deleted; negative: nothing by that rule.
	RetentionBytes, RetentionMs int64
}

// Batch is a batch as a producer sent it. Its fields but Sequence and Session do not change after Sent.
type Batch struct {
	Partition int32
	Producer  int   // whose
	Session   int64 // producer id of the idempotent session, or -1
	Sequence  int32 // base sequence in that session, or -1
	Number    int64 // counts the producer's batches to this partition
	Timestamp int64 // largest, ms
	Records   int32
	Bytes     []byte // whole, as sent

	// Once: the producer never sends it again outside an idempotent session, so it is there once at most.
	Once bool

	gone   bool // with its topic
	places int  // where it is bound, in its partition
	place  int64
}

// Partition is what is known of one partition's log: the batches that an
// acknowledgement or a read bound to an offset.
//
// Invariant: entries ascend and do not overlap.
type Partition struct {
	Number  int32
	promise Promises
	sent    map[string]*Batch // by encoded records; shared by all partitions
	entries []entry
	start   int64 // log start offset, as last heard
	deleted int64 // the largest offset that DeleteRecords named
	shown   int64 // everything below was read by a consumer
}

type entry struct {
	base, next int64 // [base, next)
	batch      *Batch
	acked      bool
	durable    bool // promised to survive a power cut
}

// Violation is a broken promise, in words that name the invariant.
type Violation struct{ Text string }

func (v *Violation) Error() string { return v.Text }

func violation(format string, args ...any) *Violation {
	return &Violation{fmt.Sprintf(format, args...)}
}

// New makes the histories of n partitions that share one set of producers.
func New(n int, p Promises) []*Partition {
	sent := map[string]*Batch{}
	all := make([]*Partition, n)
	for i := range all {
		all[i] = &Partition{Number: int32(i), promise: p, sent: sent}
	}
	return all
}

// Sent notes a batch before its first send.
func (p *Partition) Sent(b *Batch) { p.sent[string(b.Bytes[record.HeaderSize:])] = b }

// Start is the log start offset as last heard.
func (p *Partition) Start() int64 { return p.start }

// End is the offset behind everything known.
func (p *Partition) End() int64 {
	if n := len(p.entries); n > 0 {
		return p.entries[n-1].next
	}
	return p.start
}

// Bases gives the base offsets of the known batches that are not deleted.
func (p *Partition) Bases() []int64 {
	var all []int64
	for _, e := range p.entries {
		if e.base >= p.start {
			all = append(all, e.base)
		}
	}
	return all
}

// find gives the place of the entry that holds offset, or where one would be.
func (p *Partition) find(offset int64) (i int, found bool) {
	i, found = slices.BinarySearchFunc(p.entries, offset, func(e entry, o int64) int {
		switch {
		case e.next <= o:
			return -1
		case e.base > o:
			return 1
		}
		return 0
	})
	return i, found
}

// bind says that batch b lies at [base, next).
func (p *Partition) bind(base, next int64, b *Batch) (*entry, *Violation) {
	i, found := p.find(base)
	if found {
		e := &p.entries[i]
		if e.base != base || e.batch != b || e.next != next {
			return nil, violation("S12: partition %d offset %d is both in %s and in %s", p.Number, base, e, &entry{base: base, next: next, batch: b})
		}
		return e, nil
	}
	if i < len(p.entries) && p.entries[i].base < next {
		return nil, violation("S12: partition %d: %s overlaps %s", p.Number, &entry{base: base, next: next, batch: b}, &p.entries[i])
	}
	if b.Session >= 0 || b.Once {
		if b.places > 0 {
			return nil, violation("S15: partition %d: a batch of an idempotent producer lies at two places: %s and offset %d", p.Number, &entry{base: b.place, next: b.place + next - base, batch: b}, base)
		}
	}
	b.places++
	b.place = base
	p.entries = slices.Insert(p.entries, i, entry{base: base, next: next, batch: b})
	return &p.entries[i], nil
}

func (e *entry) String() string {
	return fmt.Sprintf("[%d, %d) batch %d of producer %d (id %d, sequence %d)", e.base, e.next, e.batch.Number, e.batch.Producer, e.batch.Session, e.batch.Sequence)
}

// Acked notes that the broker acknowledged b at base.
func (p *Partition) Acked(b *Batch, base int64) *Violation {
	next := base + int64(b.Records)
	if p.promise.ByteOffsets {
		next = base + int64(len(b.Bytes))
	}
	if base < p.start { // deleted by now: there is nothing to hold it against
		if _, found := p.find(base); !found {
			return nil
		}
	}
	e, v := p.bind(base, next, b)
	if v == nil {
		e.acked = true
		e.durable = e.durable || p.promise.AckIsDurable
	}
	return v
}

// AllDurable notes that everything known has been made durable: a clean shutdown.
func (p *Partition) AllDurable() {
	for i := range p.entries {
		p.entries[i].durable = true
	}
}

// Renewed notes that the topic was deleted and made again. What was acknowledged
// may never be read again; another batch its producer may still send.
func (p *Partition) Renewed() {
	for i := range p.entries {
		p.entries[i].batch.gone = p.entries[i].acked
		p.entries[i].batch.places = 0
	}
	p.entries, p.start, p.deleted, p.shown = nil, 0, 0, 0
}

// Reset forgets what lay at end and above: an unclean election has taken it, as it may.
func (p *Partition) Reset(end int64) {
	p.entries = slices.DeleteFunc(p.entries, func(e entry) bool { return e.takenFrom(end) })
	p.shown = min(p.shown, end)
}

// takenFrom says whether the entry goes when the log ends at end, and lets its batch be bound again.
func (e *entry) takenFrom(end int64) bool {
	if e.next <= end {
		return false
	}
	e.batch.places--
	return true
}

// Deletes notes a DeleteRecords before it is sent: it may move the log start.
func (p *Partition) Deletes(offset int64) { p.deleted = max(p.deleted, offset) }

// StartIs notes the log start offset that the broker told at wall time now (ms).
func (p *Partition) StartIs(offset, now int64) *Violation {
	if offset <= p.start {
		p.start = offset // it may go back at a crash, when its checkpoint was not written yet
		return nil
	}
	for i := range p.entries {
		e := &p.entries[i]
		if e.next <= p.start || e.next > offset || e.next <= p.deleted {
			continue
		}
		byAge := p.promise.RetentionMs >= 0 && now-e.batch.Timestamp > p.promise.RetentionMs
		// How much is left cannot be held against the rule: there may be batches that nobody knows of.
		bySize := p.promise.RetentionBytes >= 0
		if !byAge && !bySize {
			return violation("S23: partition %d: the log starts at %d, and nothing allows to delete %s", p.Number, offset, e)
		}
	}
	p.start = offset
	return nil
}

// Shown is the offset below which consumers have read; for ReadIsDurable.
func (p *Partition) Shown() int64 { return p.shown }
