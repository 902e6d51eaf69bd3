package history

import (
	"github.com/tidemark-log/tidemark/storage/record"
)

// Read judges what a fetch at offset gave: whole batches, back to back in offsets
// as in bytes, each exactly as it was sent, none at or above limit (the high
// watermark of the same answer). It gives the offset to fetch next.
func (p *Partition) Read(offset int64, data []byte, limit int64) (next int64, v *Violation) {
	next = offset
	first := true
	for len(data) > 0 {
		h, batch, rest, err := record.Next(data)
		if err != nil {
			if first {
				return next, violation("S26: partition %d offset %d: what was read is no batch: %v", p.Number, offset, err)
			}
			return next, nil // cut off by max bytes
		}
		if v := p.readBatch(h, batch); v != nil {
			return next, v
		}
		switch {
		case !first && h.BaseOffset != next:
			return next, violation("S22: partition %d: after offset %d comes a batch at %d", p.Number, next-1, h.BaseOffset)
		case first && h.NextOffset() <= offset:
			return next, violation("S25: partition %d: a fetch at %d got a batch that ends at %d", p.Number, offset, h.NextOffset())
		case first && h.BaseOffset > offset && !p.between(offset, h.BaseOffset):
			return next, violation("S22: partition %d: a fetch at %d got a batch at %d", p.Number, offset, h.BaseOffset)
		case h.NextOffset() > limit:
			return next, violation("S10: partition %d: a batch up to %d was served with a high watermark of %d", p.Number, h.NextOffset(), limit)
		}
		first = false
		next = h.NextOffset()
		data = rest
	}
	if !first {
		p.shown = max(p.shown, next)
	}
	return next, nil
}

// between allows what sarama needs of byte offsets: a fetch behind the record
// count of a batch, inside its bytes, is answered from the next batch.
func (p *Partition) between(offset, base int64) bool {
	if !p.promise.ByteOffsets {
		return false
	}
	i, found := p.find(offset)
	if !found { // inside a batch that nobody knows of
		return i == len(p.entries) || p.entries[i].base >= base
	}
	return p.entries[i].next == base
}

// readBatch finds the batch that was sent in the one that was read, and binds it.
func (p *Partition) readBatch(h record.Header, batch []byte) *Violation {
	if _, err := record.Check(batch); err != nil {
		return violation("S26: partition %d offset %d: a damaged batch was served: %v", p.Number, h.BaseOffset, err)
	}
	b := p.sent[string(batch[record.HeaderSize:])]
	switch {
	case b == nil:
		return violation("S11: partition %d offset %d: nobody sent the batch that was read (%d bytes, producer id %d, sequence %d)", p.Number, h.BaseOffset, len(batch), h.ProducerID, h.BaseSequence)
	case b.gone:
		return violation("S11: partition %d offset %d: the batch that was read went with its topic, which was deleted (batch %d of producer %d)", p.Number, h.BaseOffset, b.Number, b.Producer)
	case b.Partition != p.Number:
		return violation("S11: partition %d offset %d: the batch that was read belongs to partition %d", p.Number, h.BaseOffset, b.Partition)
	case h.RecordCount != b.Records || len(batch) != len(b.Bytes):
		return violation("S11: partition %d offset %d: %d records in %d bytes were read, %d in %d were sent", p.Number, h.BaseOffset, h.RecordCount, len(batch), b.Records, len(b.Bytes))
	case h.ProducerID != b.Session || h.BaseSequence != b.Sequence:
		return violation("S11: partition %d offset %d: producer id %d and sequence %d were read, %d and %d were sent", p.Number, h.BaseOffset, h.ProducerID, h.BaseSequence, b.Session, b.Sequence)
	}
	_, v := p.bind(h.BaseOffset, h.NextOffset(), b)
	return v
}
