package broker_test

import (
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/brokertest"
	"github.com/tidemark-log/tidemark/storage/record"
)

// started is a running broker with topic t of one partition, over a simulated disk.
func started(t testing.TB, settings ...string) (*brokertest.Env, *broker.Broker) {
	t.Helper()
	cfg, err := broker.ParseConfig(nil, append([]string{"log.dirs=/data"}, settings...))
	if err != nil {
		t.Fatal(err)
	}
	e := brokertest.New(nil, 1)
	b := broker.New(e, cfg)
	b.Start(func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	})
	e.Run()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: 1, ReplicationFactor: 1}}
	b.Handle(broker.Request{Body: req}, func(broker.Answer) {})
	e.Run()
	return e, b
}

func batchOf(records int) []byte {
	b := record.NewBuilder(record.None)
	for i := range records {
		b.Append(brokertest.Start.UnixMilli(), nil, []byte("value "+strconv.Itoa(i)))
	}
	return b.Build(nil)
}

func produceRequest(batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 9, 1
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: batch}}}}
	return req
}

// TestProduceAllocatesPerRequestNotPerRecord: what the simulated disk keeps of the
// bytes is subtracted by appending to the same broker with both sizes.
func TestProduceAllocatesPerRequestNotPerRecord(t *testing.T) {
	for _, validate := range []string{"batch", "records"} {
		_, b := started(t, "lab.validate="+validate)
		perRequest := func(records int) float64 {
			batch := batchOf(records)
			req := produceRequest(batch)
			answered := 0
			reply := func(a broker.Answer) {
				if a.Body.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode == 0 {
					answered++
				}
			}
			n := testing.AllocsPerRun(200, func() { b.Handle(broker.Request{Body: req}, reply) })
			if answered != 201 {
				t.Fatalf("%d of 201 produced", answered)
			}
			return n
		}
		one, many := perRequest(1), perRequest(1000)
		t.Logf("lab.validate=%s: %v allocations for a batch of 1 record, %v for 1000", validate, one, many)
		// The simulated disk notes each 4 KiB page that a 17 KB batch dirties.
		if many > one+12 {
			t.Errorf("lab.validate=%s: %v allocations for 1 record, %v for 1000: none may be per record", validate, one, many)
		}
		if one > 24 {
			t.Errorf("lab.validate=%s: %v allocations for a request", validate, one)
		}
	}
}

// TestFetchAllocatesPerRequestNotPerBatch: finding a fetch's end may read the index.
func TestFetchAllocatesPerRequestNotPerBatch(t *testing.T) {
	_, b := started(t)
	batch := batchOf(10)
	for range 1000 {
		b.Handle(broker.Request{Body: produceRequest(batch)}, func(broker.Answer) {})
	}
	perRequest := func(maxBytes int32) float64 {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.MaxBytes, req.MinBytes = 11, maxBytes, 1
		p := kmsg.NewFetchRequestTopicPartition()
		p.PartitionMaxBytes = maxBytes
		req.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{p}}}
		return testing.AllocsPerRun(200, func() {
			b.Handle(broker.Request{Body: req}, func(a broker.Answer) {
				if a.Fetch.Parts[0].Region.Len == 0 {
					t.Fatal("nothing fetched")
				}
				a.Fetch.Release()
			})
		})
	}
	one, many := perRequest(1), perRequest(100_000)
	t.Logf("%v allocations for a fetch of one batch, %v for hundreds", one, many)
	if many > one+2 || one > 12 {
		t.Errorf("%v allocations for a fetch of one batch, %v for hundreds: a small constant is wanted", one, many)
	}
}

// TestARequestThatNamesTooMuchIsRefused: its answer could be many times its own length.
func TestARequestThatNamesTooMuchIsRefused(t *testing.T) {
	_, b := started(t)
	ask := func(n int) broker.Answer {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version = 5
		req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: make([]kmsg.ListOffsetsRequestTopicPartition, n)}}
		var answer broker.Answer
		b.Handle(broker.Request{Body: req}, func(a broker.Answer) { answer = a })
		return answer
	}
	if a := ask(99_999); a.Body == nil {
		t.Fatal("a request within the bound is refused")
	}
	if a := ask(100_000); a.Body != nil || !a.Close {
		t.Fatal("a request over the bound is answered")
	}
}
