package storage

import (
	"github.com/tidemark-log/tidemark/storage/record"
)

// sequencesKept is how many of a producer's last batches a resend is recognised
// among: as many as Kafka lets a producer have in flight (E3).
const sequencesKept = 5

// sequenceRange is one batch of an idempotent producer, as remembered.
type sequenceRange struct {
	first, last int32 // sequence numbers
	lastOffset  int64
	offsetDelta int32 // lastOffset - firstOffset
	timestamp   int64
}

func (r *sequenceRange) firstOffset() int64 { return r.lastOffset - int64(r.offsetDelta) }

// producerState is what one producer id last wrote here.
type producerState struct {
	id           int64
	epoch        int16
	batches      [sequencesKept]sequenceRange // the newest last
	n            int                          // how many of them; at the end of the array
	lastWritten  int64                        // wall time, ms
	older, newer *producerState
}

func (p *producerState) newest() *sequenceRange { return &p.batches[sequencesKept-1] }

// kept is the remembered batches, the oldest first.
func (p *producerState) kept() []sequenceRange { return p.batches[sequencesKept-p.n:] }

// producerStates is a partition's idempotent producers, in the order in which
// they last wrote. Bound: max, beyond which the one that has been silent longest
// is forgotten.
//
// State outlives the batches that it describes: a producer whose batches
// retention removed still finds its sequence known (KIP-360, E4).
type producerStates struct {
	max            int
	byID           map[int64]*producerState
	oldest, newest *producerState
}

// tentative is what the batches before, of the same Append, will have made of a
// producer's state. A client sends one batch, and never those of two producers.
type tentative struct {
	set   bool
	id    int64
	epoch int16
	last  int32
}

// nextSequence is the one after s; sequences wrap at 2^31.
func nextSequence(s int32) int32 { return int32((int64(s) + 1) & 0x7fffffff) }

// check says whether h may be appended: nil, nil if so; the remembered batch if it is a resend.
func (ps *producerStates) check(h record.Header, ahead *tentative) (dup *sequenceRange, err error) {
	epoch, last, known := int16(0), int32(0), false
	if p := ps.byID[h.ProducerID]; p != nil {
		for i, kept := 0, p.kept(); i < len(kept); i++ {
			if r := &kept[i]; h.ProducerEpoch == p.epoch && r.first == h.BaseSequence && r.last == h.LastSequence() {
				return r, nil
			}
		}
		epoch, known = p.epoch, true
		if p.n > 0 {
			last = p.newest().last
		} else {
			last = -1
		}
	}
	if ahead.set {
		if ahead.id != h.ProducerID {
			return nil, ErrInvalidRecord // batches of two producers in one request
		}
		epoch, last, known = ahead.epoch, ahead.last, true
	}
	switch {
	case known && h.ProducerEpoch < epoch:
		return nil, ErrInvalidProducerEpoch
	case !known && h.BaseSequence != 0:
		// Taking any first sequence would let a batch in ahead of its predecessor (E5).
		return nil, ErrUnknownProducerID
	case known && h.ProducerEpoch > epoch && h.BaseSequence != 0:
		return nil, ErrOutOfOrderSequence
	case known && h.ProducerEpoch == epoch && h.BaseSequence != nextSequence(last):
		return nil, ErrOutOfOrderSequence
	}
	*ahead = tentative{set: true, id: h.ProducerID, epoch: h.ProducerEpoch, last: h.LastSequence()}
	return nil, nil
}

// update takes in a batch that is in the log. Batches from a leader and from
// recovery come here unchecked.
func (ps *producerStates) update(h record.Header, now int64) {
	if h.ProducerID < 0 || h.Control() {
		return
	}
	p := ps.byID[h.ProducerID]
	if p == nil {
		p = ps.add(h.ProducerID, h.ProducerEpoch)
	}
	if p.epoch != h.ProducerEpoch {
		p.epoch, p.n = h.ProducerEpoch, 0
	}
	copy(p.batches[:], p.batches[1:])
	*p.newest() = sequenceRange{
		first: h.BaseSequence, last: h.LastSequence(),
		lastOffset: h.LastOffset(), offsetDelta: h.LastOffsetDelta, timestamp: h.MaxTimestamp,
	}
	p.n = min(p.n+1, sequencesKept)
	p.lastWritten = now
	ps.unlink(p)
	ps.push(p)
}

func (ps *producerStates) add(id int64, epoch int16) *producerState {
	if ps.byID == nil {
		ps.byID = make(map[int64]*producerState)
	}
	if len(ps.byID) >= max(ps.max, 1) {
		ps.forget(ps.oldest)
	}
	p := &producerState{id: id, epoch: epoch}
	ps.byID[id] = p
	ps.push(p)
	return p
}

func (ps *producerStates) forget(p *producerState) {
	ps.unlink(p)
	delete(ps.byID, p.id)
}

// expire forgets producers that have written nothing for age ms.
func (ps *producerStates) expire(now, age int64) {
	for ps.oldest != nil && now-ps.oldest.lastWritten >= age {
		ps.forget(ps.oldest)
	}
}

// clear forgets all.
func (ps *producerStates) clear() { *ps = producerStates{max: ps.max} }

func (ps *producerStates) push(p *producerState) {
	p.older, p.newer = ps.newest, nil
	if ps.newest != nil {
		ps.newest.newer = p
	} else {
		ps.oldest = p
	}
	ps.newest = p
}

func (ps *producerStates) unlink(p *producerState) {
	if p.older != nil {
		p.older.newer = p.newer
	} else {
		ps.oldest = p.newer
	}
	if p.newer != nil {
		p.newer.older = p.older
	} else {
		ps.newest = p.older
	}
	p.older, p.newer = nil, nil
}
