package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/storage/record"
)

// openLive runs a whole broker in this process.
func openLive(t testing.TB, settings ...string) *Live {
	t.Helper()
	cfg, err := broker.ParseConfig(nil, append([]string{"listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=" + t.TempDir(), "message.max.bytes=8000000"}, settings...))
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := l.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}

func dialLive(t testing.TB, l *Live) *client {
	t.Helper()
	nc, err := net.Dial("tcp", l.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(time.Minute))
	return &client{nc, t}
}

// exchange sends a prepared frame and reads the answer into buf, without allocating.
func (c *client) exchange(frame, buf []byte) {
	if _, err := c.Write(frame); err != nil {
		c.t.Fatal(err)
	}
	if _, err := io.ReadFull(c, buf[:4]); err != nil {
		c.t.Fatal(err)
	}
	n := int(buf[0])<<24 | int(buf[1])<<16 | int(buf[2])<<8 | int(buf[3])
	if _, err := io.ReadFull(c, buf[:n]); err != nil {
		c.t.Fatal(err)
	}
}

func produceFrame(records int) []byte {
	b := record.NewBuilder(record.None)
	for range records {
		b.Append(time.Now().UnixMilli(), nil, make([]byte, 100))
	}
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, 1, 1000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = b.Build(nil)
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.Partitions = "t", []kmsg.ProduceRequestTopicPartition{p}
	req.Topics = append(req.Topics, topic)
	return encode(req, 1)
}

func fetchFrame(bytes int32) []byte {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 11, bytes, 1, 1000
	p := kmsg.NewFetchRequestTopicPartition()
	p.PartitionMaxBytes = bytes
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.Partitions = "t", append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return encode(req, 1)
}

// allocations is how many objects one exchange allocates in the whole process.
func allocations(c *client, frame []byte) float64 {
	const rounds = 100
	buf := make([]byte, 8<<20)
	for range 20 {
		c.exchange(frame, buf) // pools and hints settle
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		c.exchange(frame, buf)
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / rounds
}

func TestAllocationsDoNotGrowWithTheRecordsOfARequest(t *testing.T) {
	for _, validate := range []string{"batch", "records"} {
		t.Run(validate, func(t *testing.T) {
			c := dialLive(t, openLive(t, "lab.validate="+validate))
			create := kmsg.NewPtrMetadataRequest()
			create.Version, create.AllowAutoTopicCreation = 4, true
			topic := kmsg.NewMetadataRequestTopic()
			topic.Topic = kmsg.StringPtr("t")
			create.Topics = append(create.Topics, topic)
			c.exchange(encode(create, 1), make([]byte, 4096))

			few, many := allocations(c, produceFrame(10)), allocations(c, produceFrame(8000))
			t.Logf("produce: %.1f objects a request of 10 records, %.1f of 8,000", few, many)
			if many > few+5 {
				t.Errorf("produce allocates %.1f objects for 10 records and %.1f for 8,000", few, many)
			}
			few, many = allocations(c, fetchFrame(1)), allocations(c, fetchFrame(4<<20))
			t.Logf("fetch: %.1f objects an answer of 10 records, %.1f of some 40,000", few, many)
			if many > few+5 {
				t.Errorf("fetch allocates %.1f objects for 10 records and %.1f for some 40,000", few, many)
			}
		})
	}
}

func TestConnectionsLeaveDescriptorsForFiles(t *testing.T) {
	for _, c := range []struct {
		limit              uint64
		wanted             int
		files, connections int
	}{
		{1 << 20, 10_000, 1 << 16, 10_000},
		{20_000, 10_000, 9936, 10_000},
		{1024, 10_000, 256, 704},
		{1024, 100, 512, 100},
		{256, 10_000, 64, 128},
		{64, 10_000, 64, 1}, // too few for anything, and no reason to fail
		{1<<64 - 1, 10_000, 1 << 16, 10_000},
	} {
		if files, connections := shareDescriptors(c.limit, c.wanted); files != c.files || connections != c.connections {
			t.Errorf("of %d: %d files and %d connections, want %d and %d", c.limit, files, connections, c.files, c.connections)
		}
	}
}
