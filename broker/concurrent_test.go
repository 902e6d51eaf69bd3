package broker_test

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/env/real"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
	"github.com/tidemark-log/tidemark/storage/vfs/syscount"
)

// live is a broker in the live environment, on a real disk.
func live(t *testing.T, settings ...string) *broker.Broker {
	t.Helper()
	cfg, err := broker.ParseConfig(nil, append([]string{"log.dirs=" + t.TempDir()}, settings...))
	if err != nil {
		t.Fatal(err)
	}
	b := broker.New(real.New(vfs.NewReal("", new(syscount.Counters)), slog.New(slog.DiscardHandler)), cfg)
	started := make(chan error)
	b.Start(func(err error) { started <- err })
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return b
}

// call is a request and its answer.
func call(b *broker.Broker, conn broker.ConnID, body kmsg.Request) broker.Answer {
	answer := make(chan broker.Answer, 1)
	b.Handle(broker.Request{Conn: conn, Body: body, Local: "x:1"}, func(a broker.Answer) { answer <- a })
	return <-answer
}

func createTopic(b *broker.Broker, name string) int16 {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: name, NumPartitions: 2, ReplicationFactor: 1}}
	return call(b, 0, req).Body.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode
}

// TestManyConnectionsAtOnce runs producers, consumers that poll, and topics that
// come and go, side by side under the race detector. Consumers must see each
// record of the lasting topic once and in order, and everything that waits must be answered.
func TestManyConnectionsAtOnce(t *testing.T) {
	for name, settings := range map[string][]string{
		"log":     {"lab.flush.group=on", "log.flush.interval.ms=1"},
		"flushed": {"lab.visibility=flushed", "log.flush.interval.messages=5", "log.flush.interval.ms=1"},
		"process": {"lab.cache=process", "lab.fetch.transfer=copy"},
		"byte":    {"lab.offsets=byte"},
		"btree":   {"lab.storage.engine=btree", "lab.fetch.transfer=copy", "lab.flush.group=on"},
	} {
		t.Run(name, func(t *testing.T) { manyConnections(t, live(t, append(settings, "log.segment.bytes=4096")...)) })
	}
}

func manyConnections(t *testing.T, b *broker.Broker) {
	const producers, consumers, batches = 4, 4, 30
	if code := createTopic(b, "t"); code != 0 {
		t.Fatalf("create: error code %d", code)
	}
	var all, others sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for range batches {
				req := produceRequest(batchOf(3))
				req.Topics[0].Partitions[0].Partition = int32(p % 2)
				a := call(b, broker.ConnID(p), req).Body.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
				if a.ErrorCode != 0 {
					t.Errorf("produce: error code %d", a.ErrorCode)
				}
			}
		})
	}
	for c := range consumers {
		all.Go(func() {
			if err := consume(t, b, broker.ConnID(100+c), int32(c%2), producers/2*batches*3); err != nil {
				t.Error(err)
			}
		})
	}
	var stop atomic.Bool
	others.Go(func() {
		for i := 0; !stop.Load(); i++ {
			name := fmt.Sprint("passing-", i%3)
			createTopic(b, name)
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.Version, req.TopicNames = 1, []string{name}
			call(b, 200, req)
			b.Status()
		}
	})
	others.Go(func() { // polls that nothing ends but the connection's end, or a deletion
		for i := 0; !stop.Load(); i++ {
			conn := broker.ConnID(300 + i)
			answered := make(chan broker.Answer, 1)
			b.Handle(broker.Request{Conn: conn, Body: pollRequest("passing-1", 0, 0, 10_000)}, func(a broker.Answer) { answered <- a })
			b.Disconnected(conn)
			if a := <-answered; a.Fetch != nil {
				a.Fetch.Release()
			}
		}
	})
	all.Wait()
	stop.Store(true)
	others.Wait()
	if n := b.Status().FetchesWaiting; n != 0 {
		t.Errorf("%d fetches wait for ever", n)
	}
	stopped := make(chan error)
	b.Shutdown(func(err error) { stopped <- err })
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func pollRequest(topic string, partition int32, offset int64, waitMillis int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxBytes, req.MaxWaitMillis = 11, 1, 1<<20, waitMillis
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	req.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	return req
}

// consume polls one partition until it has seen so many records.
func consume(t *testing.T, b *broker.Broker, conn broker.ConnID, partition int32, records int64) error {
	for offset := int64(0); records > 0; {
		a := call(b, conn, pollRequest("t", partition, offset, 60_000))
		wire := fetchBytes(t, a.Fetch)
		a.Fetch.Release()
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = 11
		if err := resp.ReadFrom(wire); err != nil {
			return err
		}
		p := &resp.Topics[0].Partitions[0]
		if p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
			return fmt.Errorf("fetch at %d: error code %d, %d bytes", offset, p.ErrorCode, len(p.RecordBatches))
		}
		for h := range record.Batches(p.RecordBatches) {
			if h.BaseOffset != offset {
				return fmt.Errorf("batch at %d where %d was due", h.BaseOffset, offset)
			}
			offset = h.NextOffset()
			records -= int64(h.RecordCount)
		}
	}
	return nil
}
