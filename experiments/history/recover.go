package history

import (
	"slices"

	"github.com/tidemark-log/tidemark/storage/record"
)

// Found says what a restart found gone of a partition.
type Found struct {
	Lost      int // known batches that are gone, legally
	LostAcked int // of them, acknowledged ones
}

// Recovered judges what a restart left of the log: data is everything from the log
// start to the log end offset. powerCut says that more than a process died since
// the last Recovered. now is wall time, ms.
//
// After a kill everything known is there: the page cache outlives a process.
// After a power cut everything promised durable is, and the log is the beginning
// of what it was. Known batches that are legally gone are forgotten.
func (p *Partition) Recovered(start, end int64, data []byte, powerCut bool, now int64) (Found, *Violation) {
	var found Found
	if v := p.StartIs(start, now); v != nil {
		return found, v
	}
	if powerCut && p.promise.ReadIsDurable && p.shown > end {
		return found, violation("S10: partition %d: consumers have read up to %d, and after a power cut the log ends at %d", p.Number, p.shown, end)
	}
	for i := range p.entries {
		e := &p.entries[i]
		if e.next <= end {
			continue
		}
		switch {
		case !powerCut:
			return found, violation("S26: partition %d: the log ends at %d after the mere death of a process: %s is gone", p.Number, end, e)
		case e.durable:
			return found, violation("S7: partition %d: the log ends at %d after a power cut: %s was acknowledged as durable and is gone", p.Number, end, e)
		}
		found.Lost++
		if e.acked {
			found.LostAcked++
		}
	}
	// The log was its own beginning before: whatever stands below its end must be what was known there.
	p.entries = slices.DeleteFunc(p.entries, func(e entry) bool { return e.takenFrom(end) })
	p.shown = min(p.shown, end)
	if len(data) > 0 {
		next, v := p.Read(start, data, end)
		switch {
		case v != nil:
			return found, v
		case next != end:
			return found, violation("S26: partition %d: the log can be read up to %d and ends at %d", p.Number, next, end)
		}
	} else if start != end {
		return found, violation("S26: partition %d: nothing can be read between %d and %d", p.Number, start, end)
	}
	return found, p.ordered(start)
}

// ordered judges the whole log, all of whose batches from start on are known now:
// for idempotent producers order (S14) and no gap within a session (S16). Others are
// promised neither: what a broken connection held may arrive behind its successors.
func (p *Partition) ordered(start int64) *Violation {
	type place struct {
		number   int64
		session  int64
		sequence int32 // next expected
	}
	last := map[int]place{}
	for i := range p.entries {
		e := &p.entries[i]
		if e.base < start {
			continue
		}
		b := e.batch
		l, seen := last[b.Producer]
		switch {
		case !seen:
		case b.Number < l.number && b.Session >= 0:
			return violation("S14: partition %d: %s stands behind batch %d", p.Number, e, l.number)
		case b.Session >= 0 && b.Session == l.session && b.Sequence != l.sequence:
			return violation("S16: partition %d: %s stands where its session's sequence is %d", p.Number, e, l.sequence)
		}
		last[b.Producer] = place{b.Number, b.Session, b.Sequence + b.Records}
	}
	return nil
}

// Identify gives the batch whose encoded records are those of batch, or nil.
func (p *Partition) Identify(batch []byte) *Batch { return p.sent[string(batch[record.HeaderSize:])] }
