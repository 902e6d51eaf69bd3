package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/experiments/history"
	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/record"
)

// config is what a seed draws before anything happens: the broker's switches, the
// clients, and which faults there are at all. Some faults are off in many seeds,
// so that what one hides another run shows.
type config struct {
	broker     broker.Config
	partitions int32
	promises   history.Promises
	producers  []producerConfig
	seeks      bool
	deletes    bool // DeleteRecords
	renews     bool // the topic is deleted and made again

	duration time.Duration // of the part with faults
	syncMax  time.Duration // longest fdatasync
	slow     time.Duration // longest that an answer waits to be sent: a slow reader

	kills, powerCuts, shutdowns, brokenConns, ioErrors bool
	faultEvery                                         time.Duration // mean time between faults
}

type producerConfig struct {
	idempotent  bool
	acks        int16
	retries     bool
	inFlightMax int
	codec       record.Codec
	every       time.Duration // mean time between batches
	batches     int           // in all
	rests       int           // after one batch in so many a pause of seconds (of a cluster); 0: never
}

// logDir is the broker's one log directory.
const logDir = "data"

// none is a limit that is never reached.
const none int64 = 1<<63 - 1

func draw(rng *rand.Rand) config {
	c := config{
		partitions: pick(rng, int32(1), 1, 2, 3),
		duration:   time.Duration(2+rng.IntN(6)) * time.Second,
		syncMax:    pick(rng, time.Millisecond, 10*time.Millisecond, 100*time.Millisecond),
		slow:       pick(rng, time.Millisecond, 50*time.Millisecond, 500*time.Millisecond),
		faultEvery: pick(rng, 200*time.Millisecond, 500*time.Millisecond, 2*time.Second),
		seeks:      rng.IntN(2) == 0,
		deletes:    rng.IntN(3) == 0,
		renews:     rng.IntN(4) == 0,
	}
	for !c.kills && !c.powerCuts && !c.shutdowns {
		c.kills, c.powerCuts, c.shutdowns = rng.IntN(2) == 0, rng.IntN(3) > 0, rng.IntN(3) == 0
	}
	c.brokenConns, c.ioErrors = rng.IntN(2) == 0, rng.IntN(4) == 0
	for range pick(rng, 1, 1, 2, 3) {
		c.producers = append(c.producers, drawProducer(rng))
	}
	c.drawBroker(rng)
	return c
}

func drawProducer(rng *rand.Rand) producerConfig {
	p := producerConfig{
		acks: pick(rng, int16(1), 1, -1, 0), retries: true, inFlightMax: pick(rng, 1, 2, 5),
		codec: pick(rng, record.None, record.None, record.None, record.LZ4, record.Snappy),
		every: pick(rng, 2*time.Millisecond, 10*time.Millisecond, 50*time.Millisecond), batches: 20 + rng.IntN(300),
	}
	if rng.IntN(2) == 0 {
		p.idempotent, p.acks = true, -1
	}
	if !p.idempotent {
		p.retries = p.acks != 0 && rng.IntN(2) == 0
	}
	return p
}

func (c *config) drawBroker(rng *rand.Rand) {
	b := broker.DefaultConfig()
	b.LogDirs = []string{logDir}
	b.Transfer = storage.TransferCopy
	b.AutoCreateTopics = false
	l := &b.Log
	l.SegmentBytes = pick(rng, int64(4<<10), 8<<10, 32<<10, 1<<20)
	l.IndexIntervalBytes = pick(rng, int64(0), 200, 1000, 4096)
	l.SegmentMs = pick(rng, int64(100), 1000, 7*24*3600*1000)
	l.SegmentJitterMs = pick(rng, int64(0), 0, 50)
	l.Preallocate = rng.IntN(3) == 0
	l.Cache = pick(rng, storage.CachePage, storage.CachePage, storage.CacheProcess)
	l.CacheBytes = 1 << 20
	l.Offsets = pick(rng, storage.OffsetsLogical, storage.OffsetsLogical, storage.OffsetsByte)
	l.LogAppendTime = rng.IntN(4) == 0
	l.RetentionMs = pick(rng, int64(-1), -1, 300, 2000)
	l.RetentionBytes = pick(rng, int64(-1), -1, 10<<10, 50<<10)
	l.FileDeleteDelayMs = pick(rng, int64(0), 20, 1000)
	l.FlushMessages = pick(rng, none, none, 1, 5)
	l.FlushMs = pick(rng, none, none, 5, 200)
	b.FlushGroup = rng.IntN(3) == 0
	b.Visibility = pick(rng, broker.VisibleCommitted, broker.VisibleCommitted, broker.VisibleFlushed)
	b.Validate = pick(rng, record.LevelBatch, record.LevelRecords)
	b.RetentionCheck = pick(rng, 20*time.Millisecond, 300*time.Millisecond)
	b.CheckpointInterval = pick(rng, 30*time.Millisecond, 500*time.Millisecond, 5*time.Second)
	b.StartCheckpoint = b.CheckpointInterval
	if err := (storage.Combination{Engine: l.Engine, Cache: l.Cache, Offsets: l.Offsets, Transfer: b.Transfer, Sim: true}).Check(); err != nil {
		panic("BUG: sim: drew an invalid combination: " + err.Error())
	}
	c.broker = b
	c.promises = history.Promises{
		AckIsDurable:   b.FlushGroup || l.FlushMessages == 1,
		ReadIsDurable:  b.Visibility == broker.VisibleFlushed,
		ByteOffsets:    l.Offsets == storage.OffsetsByte,
		RetentionBytes: l.RetentionBytes, RetentionMs: l.RetentionMs,
	}
}

func (c *config) String() string {
	l := &c.broker.Log
	s := fmt.Sprintf("%d partitions, segment %d B / %d ms, index every %d B, offsets %s, cache %s, flush every %s messages / %s ms, group %v, visible %s, retention %d ms / %d B, delete delay %d ms, checkpoint every %v, preallocate %v, append time %v",
		c.partitions, l.SegmentBytes, l.SegmentMs, l.IndexIntervalBytes, l.Offsets, l.Cache, limit(l.FlushMessages), limit(l.FlushMs), c.broker.FlushGroup, c.broker.Visibility,
		l.RetentionMs, l.RetentionBytes, l.FileDeleteDelayMs, c.broker.CheckpointInterval, l.Preallocate, l.LogAppendTime)
	s += fmt.Sprintf("; faults every %v:", c.faultEvery)
	for _, f := range []struct {
		on   bool
		name string
	}{{c.kills, " kill"}, {c.powerCuts, " power"}, {c.shutdowns, " shutdown"}, {c.brokenConns, " connections"}, {c.ioErrors, " I/O"}, {c.deletes, " DeleteRecords"}, {c.renews, " DeleteTopics"}} {
		if f.on {
			s += f.name
		}
	}
	for i, p := range c.producers {
		s += fmt.Sprintf("; producer %d: acks=%d idempotent=%v retries=%v in flight %d, %s, %d batches", i, p.acks, p.idempotent, p.retries, p.inFlightMax, p.codec, p.batches)
	}
	return s
}

func limit(n int64) string {
	if n == none {
		return "no"
	}
	return fmt.Sprint(n)
}
