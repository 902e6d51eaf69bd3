package sim

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/storage/record"
)

// consumer reads all partitions in one fetch after another, and now and then
// jumps back.
type consumer struct {
	w         *World
	conn      *conn
	positions []int64
	ends      []int64 // what the partitions reached at least when the fetch was sent
}

func newConsumer(w *World) *consumer {
	return &consumer{w: w, positions: make([]int64, w.cfg.partitions)}
}

func (c *consumer) connect() {
	if !c.w.admin.created {
		c.w.after(nil, 20*time.Millisecond, c.connect)
		return
	}
	c.conn = c.w.dial(func() {
		c.conn = nil
		c.connect()
	})
	if c.conn == nil {
		c.w.after(nil, 20*time.Millisecond, c.connect)
		return
	}
	c.fetch()
}

// fetchRequest asks for partitions from first on, one for each position.
func fetchRequest(positions []int64, first int32, bytesMax int32, wait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.SessionEpoch = -1, -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), 1, bytesMax
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = topicName
	for i, at := range positions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = first+int32(i), at, bytesMax, -1
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

func (c *consumer) fetch() {
	if c.w.cfg.seeks && c.w.chance(20) && !c.w.healed {
		c.seek()
	}
	rng := c.w.rng
	wait := pick(rng, 0, 5*time.Millisecond, 500*time.Millisecond)
	req := fetchRequest(c.positions, 0, pick(rng, int32(100), 2000, 60_000), wait)
	req.MinBytes = pick(rng, int32(1), 1, 500)
	if wait > 5*time.Millisecond {
		c.w.trace.probe("long poll")
	}
	asked := append([]int64(nil), c.positions...)
	c.ends = c.ends[:0]
	for _, p := range c.w.partitions {
		c.ends = append(c.ends, p.End())
	}
	generation := c.w.generation
	c.conn.ask(req, int16(5+rng.IntN(8)), func(r kmsg.Response) {
		again := generation != c.w.generation || generation%2 == 1
		if !again {
			again = c.fetched(asked, r.(*kmsg.FetchResponse))
		}
		c.fetchLater(again)
	})
}

// fetched takes in an answer; again says that a partition was not there to be read.
func (c *consumer) fetched(asked []int64, resp *kmsg.FetchResponse) (again bool) {
	if resp.ErrorCode != 0 {
		c.w.violated("a fetch is refused with error %d", resp.ErrorCode)
		return false
	}
	for _, part := range resp.Topics[0].Partitions {
		p := c.w.partitions[part.Partition]
		switch code := part.ErrorCode; {
		case code == 0:
			at := asked[part.Partition]
			next, v := p.Read(at, part.RecordBatches, part.HighWatermark)
			if v == nil {
				v = p.StartIs(max(part.LogStartOffset, p.Start()), c.w.wallMs())
			}
			if !c.w.judge(v) {
				return false
			}
			c.positions[part.Partition] = next
			if next > at {
				c.w.trace.say(c.w.now, "consumer: partition %d read from %d to %d", part.Partition, at, next)
			}
		case code == codeOffsetOutOfRange:
			c.outOfRange(part.Partition, part.LogStartOffset)
		case retriable(code):
			again = true
		default:
			c.w.violated("a fetch of partition %d at %d is refused with error %d", part.Partition, asked[part.Partition], code)
			return false
		}
	}
	return again
}

func (c *consumer) fetchLater(again bool) {
	d := c.w.between(0, 5*time.Millisecond)
	if again {
		d += 50 * time.Millisecond
	}
	conn := c.conn
	c.w.after(nil, d, func() {
		if c.conn == conn && conn != nil {
			c.fetch()
		}
	})
}

// outOfRange goes on where the log begins now, or where it ends.
func (c *consumer) outOfRange(partition int32, logStart int64) {
	at, end := c.positions[partition], c.ends[partition]
	if at >= logStart && at <= end {
		c.w.violated("S22: partition %d: offset %d is refused as out of range, the log starts at %d and reaches %d at least", partition, at, logStart, end)
		return
	}
	c.w.trace.probe("offset out of range")
	c.positions[partition] = max(logStart, min(at, end))
	c.w.trace.say(c.w.now, "consumer: partition %d: offset %d is out of range, goes to %d", partition, at, c.positions[partition])
}

// seek goes back to a batch, or into one.
func (c *consumer) seek() {
	i := c.w.rng.IntN(len(c.positions))
	bases := c.w.partitions[i].Bases()
	if len(bases) == 0 {
		return
	}
	n := c.w.rng.IntN(len(bases))
	to := bases[n]
	if n+1 < len(bases) && c.w.chance(2) {
		to += c.w.rng.Int64N(bases[n+1] - to)
		c.w.trace.probe("seek into a batch")
	}
	c.w.trace.say(c.w.now, "consumer: partition %d: seeks to %d", i, to)
	c.positions[i] = to
}

// nextOffset is the offset behind the whole batches in data.
func nextOffset(data []byte, at int64) int64 {
	for h := range record.Batches(data) {
		at = h.NextOffset()
	}
	return at
}
