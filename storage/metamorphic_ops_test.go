package storage

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"

	"github.com/tidemark-log/tidemark/storage/record"
)

// An operation of the metamorphic test. Where it names a place in the log it
// counts records, its ordinal: what an offset is under the logical scheme, and
// what each run translates into its own scheme's offsets.
type op interface{ String() string }

type (
	opAppend struct {
		batches   []byte // as a producer sends them
		meta      []batchMeta
		epoch     int32
		now       int64
		duplicate bool // a resend: nothing may be written
		refused   bool // a sequence that does not follow
	}
	opReplica struct {
		opAppend
		cut     []byte // the beginning of one more batch, left out
		garbage bool   // a bit flips on the way: nothing may be written
	}
	opAssign  struct{ epoch int32 }
	opRestart struct{ at int64 }
	opRead    struct {
		at, limit int64
		batches   int // how many to collect, across segments
		maxBytes  int
		hold      bool // keep the last region pinned and read it again later
	}
	opTimestamp    struct{ ts int64 }
	opEpoch        struct{ epoch int32 }
	opFlush        struct{}
	opRelease      struct{}
	opRetain       struct{ now, limit int64 }
	opTruncate     struct{ at int64 }
	opAdvanceStart struct{ at int64 }
	opReopen       struct {
		kill bool
		now  int64
	}
)

// batchMeta is what must come back of a batch, whatever the engine.
type batchMeta struct {
	ordinal int64
	records int64
	bytes   int
	maxTime int64
	payload uint32 // CRC of everything behind the fields that the broker may set
}

func (o opAppend) String() string {
	return fmt.Sprintf("append of %d batches in %d bytes, epoch %d, duplicate=%v refused=%v", len(o.meta), len(o.batches), o.epoch, o.duplicate, o.refused)
}
func (o opReplica) String() string {
	return fmt.Sprintf("replica's %s, %d bytes of another, garbage=%v", o.opAppend, len(o.cut), o.garbage)
}
func (o opAssign) String() string  { return fmt.Sprintf("assign epoch %d", o.epoch) }
func (o opRestart) String() string { return fmt.Sprintf("truncate fully and start at %d", o.at) }
func (o opRead) String() string {
	return fmt.Sprintf("read %d batches at %d below %d, %d bytes at a time", o.batches, o.at, o.limit, o.maxBytes)
}
func (o opTimestamp) String() string { return fmt.Sprintf("offset for timestamp %d", o.ts) }
func (o opEpoch) String() string     { return fmt.Sprintf("end offset for epoch %d", o.epoch) }
func (opFlush) String() string       { return "flush" }
func (opRelease) String() string     { return "release the pinned regions" }
func (o opRetain) String() string {
	return fmt.Sprintf("retain at %d below %d, then advance the log start there", o.now, o.limit)
}
func (o opTruncate) String() string     { return fmt.Sprintf("truncate at %d", o.at) }
func (o opAdvanceStart) String() string { return fmt.Sprintf("advance log start to %d", o.at) }
func (o opReopen) String() string       { return fmt.Sprintf("reopen, kill=%v", o.kill) }

// generator makes operations and follows what they do to the log, so that it
// can name places that exist.
type generator struct {
	rng       *rand.Rand
	now       int64
	epoch     int32
	start     int64
	base      int64       // where the log was begun last
	batches   []batchMeta // everything not truncated, also what lies below start
	producers [3]producerSeq
}

// producerSeq is an idempotent producer as it sees itself. One whose batches a
// truncation took is replaced by a new one.
type producerSeq struct {
	id   int64
	next int32
	sent []sentBatch // what a resend is recognised among
}

type sentBatch struct {
	bytes []byte
	meta  batchMeta
}

const metamorphicStart = 1_700_000_000_000 // ms

func generateOps(seed uint64, n int) []op {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 77)), now: metamorphicStart}
	for i := range g.producers {
		g.producers[i].id = int64(i)
	}
	ops := make([]op, n)
	for i := range ops {
		g.now += g.rng.Int64N(400)
		ops[i] = g.next()
	}
	return ops
}

func (g *generator) end() int64 {
	if n := len(g.batches); n > 0 {
		return g.batches[n-1].ordinal + g.batches[n-1].records
	}
	return g.base
}

func (g *generator) next() op {
	switch k := g.rng.IntN(100); {
	case k < 30:
		return g.append()
	case k < 38:
		return g.replica()
	case k < 40:
		if g.rng.IntN(2) == 0 {
			return g.restart()
		}
		g.epoch++
		return opAssign{g.epoch}
	case k < 60:
		return g.read()
	case k < 67:
		return opTimestamp{metamorphicStart + g.rng.Int64N(g.now-metamorphicStart+1000) - 500}
	case k < 75:
		return opEpoch{g.epoch - g.rng.Int32N(4)}
	case k < 81:
		return opFlush{}
	case k < 84:
		return opRelease{}
	case k < 87:
		limit := g.boundary()
		g.start = max(g.start, limit)
		return opRetain{g.now, limit}
	case k < 90:
		return g.truncate()
	case k < 93:
		at := g.start + g.rng.Int64N(g.end()-g.start+1)
		g.start = at
		return opAdvanceStart{at}
	default:
		return opReopen{kill: g.rng.IntN(2) == 0, now: g.now}
	}
}

// boundary is the ordinal of some batch at or after the log start, or the end.
func (g *generator) boundary() int64 {
	var all []int64
	for _, b := range g.batches {
		if b.ordinal >= g.start {
			all = append(all, b.ordinal)
		}
	}
	all = append(all, g.end())
	return all[g.rng.IntN(len(all))]
}

func (g *generator) append() op {
	p := &g.producers[g.rng.IntN(len(g.producers))]
	o := opAppend{epoch: g.epoch, now: g.now}
	switch k := g.rng.IntN(10); {
	case k < 4: // not idempotent, perhaps several batches at once
		for range 1 + g.rng.IntN(3) {
			o.add(g.batch(nil))
		}
	case k < 8 || len(p.sent) == 0:
		o.add(g.batch(p))
	case k == 8:
		again := p.sent[g.rng.IntN(len(p.sent))]
		o.duplicate = true
		o.add(slices.Clone(again.bytes), again.meta)
	default: // a gap in the sequence: it will not be there
		gap := producerSeq{id: p.id, next: p.next + 5}
		o.refused = true
		o.add(g.batch(&gap))
		g.batches = g.batches[:len(g.batches)-1]
	}
	return o
}

// replica is an append of what a leader of the current epoch answers.
func (g *generator) replica() op {
	o := opReplica{opAppend: opAppend{epoch: g.epoch, now: g.now}, garbage: g.rng.IntN(6) == 0}
	if o.garbage {
		known := len(g.batches)
		o.add(g.batch(nil))
		g.batches = g.batches[:known]
		return o
	}
	for range 1 + g.rng.IntN(3) {
		p := &g.producers[g.rng.IntN(len(g.producers))]
		if g.rng.IntN(2) == 0 {
			p = nil
		}
		o.add(g.batch(p))
	}
	if g.rng.IntN(2) == 0 {
		b, _ := g.batch(nil)
		g.batches = g.batches[:len(g.batches)-1]
		o.cut = b[:g.rng.IntN(len(b))]
	}
	return o
}

// restart begins the log anew, mostly above its end.
func (g *generator) restart() op {
	at := g.end() + []int64{0, 1, 1000}[g.rng.IntN(3)]
	if g.rng.IntN(3) == 0 {
		at = g.boundary()
	}
	g.batches, g.base, g.start = nil, at, at
	for i := range g.producers {
		g.producers[i] = producerSeq{id: g.producers[i].id + int64(len(g.producers))}
	}
	return opRestart{at}
}

func (o *opAppend) add(b []byte, m batchMeta) {
	o.batches = append(o.batches, b...)
	o.meta = append(o.meta, m)
}

// batch builds a batch of random shape, as the next of p's if p is not nil.
func (g *generator) batch(p *producerSeq) ([]byte, batchMeta) {
	b := record.NewBuilder(record.Codec(g.rng.IntN(5)))
	if p != nil {
		b.ProducerID, b.ProducerEpoch, b.BaseSequence = p.id, 0, p.next
	}
	records := 1 + g.rng.IntN([]int{1, 5, 60}[g.rng.IntN(3)])
	m := batchMeta{ordinal: g.end(), records: int64(records)}
	for range records {
		ts := g.now - g.rng.Int64N(300)
		m.maxTime = max(m.maxTime, ts)
		b.Append(ts, randomBytes(g.rng, g.rng.IntN(8)), randomBytes(g.rng, g.rng.IntN(200)))
	}
	batch := b.Build(nil)
	m.bytes, m.payload = len(batch), payloadSum(batch)
	g.batches = append(g.batches, m)
	if p != nil {
		p.next += int32(records)
		p.sent = append(p.sent[max(0, len(p.sent)-sequencesKept+1):], sentBatch{slices.Clone(batch), m})
	}
	return batch, m
}

// payloadSum covers what neither offset scheme changes: attributes, timestamps, producer, records.
func payloadSum(batch []byte) uint32 {
	sum := crc32.ChecksumIEEE(batch[21:23])
	return crc32.Update(sum, crc32.IEEETable, batch[27:])
}

func (g *generator) read() op {
	o := opRead{at: g.start, limit: g.end(), batches: 1 + g.rng.IntN(12), maxBytes: 1 << g.rng.IntN(17), hold: g.rng.IntN(4) == 0}
	switch g.rng.IntN(12) {
	case 0:
		o.at = g.start - 1 // refused, unless the log begins at 0
	case 1:
		o.at = g.end() + 1 // refused
	case 2:
		o.limit = g.boundary()
		fallthrough
	default:
		o.at += g.rng.Int64N(g.end() - g.start + 1)
	}
	return o
}

// truncate cuts at a batch, as a new leader's follower does; later batches have a new epoch.
func (g *generator) truncate() op {
	at := g.boundary()
	if g.rng.IntN(3) > 0 { // mostly near the end
		for i := len(g.batches) - 1; i >= max(0, len(g.batches)-3); i-- {
			if g.batches[i].ordinal >= g.start {
				at = g.batches[i].ordinal
			}
		}
	}
	for len(g.batches) > 0 && g.batches[len(g.batches)-1].ordinal >= at {
		g.batches = g.batches[:len(g.batches)-1]
	}
	for i := range g.producers {
		if p := &g.producers[i]; len(p.sent) > 0 && p.sent[len(p.sent)-1].meta.ordinal >= at {
			*p = producerSeq{id: p.id + int64(len(g.producers))}
		}
	}
	g.epoch++
	return opTruncate{at}
}
