package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/internal/need"
	"github.com/tidemark-log/tidemark/storage/record"
)

// TestRecordsFromOneByteTo10MiB sends each size with each client, alone in its batch or not.
func TestRecordsFromOneByteTo10MiB(t *testing.T) {
	clients := stockClients(t)
	b := startBroker(t, t.TempDir(), "message.max.bytes=25165824", "log.segment.bytes=50000000")
	var sent []message
	for i, size := range []int{1, 1, 100, 10_000, 1 << 20, 1, 10 << 20, 1} {
		sent = append(sent, message{key: "k", value: strings.Repeat(string(rune('a'+i)), size)})
	}
	for _, w := range clients {
		t.Run(w.name, func(t *testing.T) {
			ctx := patient(t)
			createTopic(t, b, w.name)
			if err := w.produce(ctx, b.addr, w.name, record.None, sent); err != nil {
				t.Fatal(err)
			}
			for _, r := range clients {
				got, err := r.consume(ctx, b.addr, w.name, 0, len(sent))
				if err != nil {
					t.Fatalf("%s: %v", r.name, err)
				}
				checkMessages(t, r.name, got, sent, true)
			}
		})
	}
}

func TestTooLargeARecordIsRefusedToEveryClient(t *testing.T) {
	clients := stockClients(t)
	b := startBroker(t, t.TempDir())
	for _, w := range clients {
		topic := "small-" + w.name
		createTopic(t, b, topic, "max.message.bytes=1000")
		if err := w.produce(patient(t), b.addr, topic, record.None, []message{{key: "k", value: strings.Repeat("x", 2000)}}); err == nil {
			t.Errorf("%s was told that 2000 bytes are stored where 1000 are allowed", w.name)
		}
		if err := w.produce(patient(t), b.addr, topic, record.None, someMessages(topic, 1)); err != nil {
			t.Errorf("%s, after a refusal: %v", w.name, err)
		}
	}
}

// TestTransactionsAreRefusedAtOnce asks in every client's way; each must get an error and not wait for ever.
func TestTransactionsAreRefusedAtOnce(t *testing.T) {
	b := startBroker(t, t.TempDir())
	createTopic(t, b, "orders")
	t.Run("franz-go", func(t *testing.T) {
		c := client(t, b, kgo.TransactionalID("tx"), kgo.RetryTimeout(5*time.Second))
		err := c.BeginTransaction()
		if err == nil {
			err = c.ProduceSync(patient(t), &kgo.Record{Topic: "orders", Value: []byte("x")}).FirstErr()
		}
		refused(t, err)
	})
	t.Run("sarama", func(t *testing.T) {
		cfg := saramaClient{}.config()
		cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests, cfg.Producer.Transaction.ID = true, 1, "tx"
		cfg.Producer.Transaction.Retry.Max = 1
		p, err := sarama.NewSyncProducer([]string{b.addr}, cfg)
		if err == nil {
			defer p.Close()
			if err = p.BeginTxn(); err == nil {
				_, _, err = p.SendMessage(&sarama.ProducerMessage{Topic: "orders", Value: sarama.StringEncoder("x")})
			}
		}
		refused(t, err)
	})
	t.Run("kafka-go", func(t *testing.T) {
		c := &kafka.Client{Addr: kafka.TCP(b.addr)}
		r, err := c.InitProducerID(patient(t), &kafka.InitProducerIDRequest{TransactionalID: "tx", TransactionTimeoutMs: 1000})
		if err == nil {
			err = r.Error
		}
		refused(t, err)
	})
	t.Run("kcat", func(t *testing.T) {
		k := kcat{need.Tool(t, "kcat")}
		_, err := k.run(patient(t), "x\n", "-P", "-b", b.addr, "-t", "orders", "-X", "transactional.id=tx", "-X", "transaction.timeout.ms=10000", "-X", "message.timeout.ms=5000")
		refused(t, err)
	})
	t.Run("requests of a transaction", func(t *testing.T) {
		c := client(t, b, kgo.RetryTimeout(5*time.Second))
		for _, req := range []kmsg.Request{kmsg.NewPtrAddPartitionsToTxnRequest(), kmsg.NewPtrAddOffsetsToTxnRequest(), kmsg.NewPtrEndTxnRequest()} {
			_, err := c.Request(patient(t), req)
			refused(t, err)
		}
	})
	t.Run("a transactional batch", func(t *testing.T) {
		batch := record.NewBuilder(record.None)
		batch.Transactional, batch.ProducerID, batch.ProducerEpoch, batch.BaseSequence = true, 1, 0, 0
		batch.Append(time.Now().UnixMilli(), nil, []byte("x"))
		req := produceRequest("orders", batch.Build(nil))
		id := "tx"
		req.TransactionID = &id
		resp, err := req.RequestWith(patient(t), client(t, b))
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		}
		refused(t, err)
	})
	if end := endOffset(t, b, "orders"); end != 0 {
		t.Errorf("%d records were stored all the same", end)
	}
}

func refused(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Error("a transaction was begun")
	} else if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no refusal but silence: %v", err)
	} else {
		t.Logf("refused: %v", err)
	}
}

func produceRequest(topic string, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func endOffset(t testing.TB, b served, topic string) int64 {
	t.Helper()
	ends, err := adminClient(t, b).ListEndOffsets(patient(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	return end.Offset
}

// TestIdempotentProducersOfEveryKind writes with the clients that can be idempotent; their producer ids are on disk.
func TestIdempotentProducersOfEveryKind(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	sent := someMessages("idempotent", 50)
	check := func(t *testing.T, topic string) {
		for _, h := range batchesOnDisk(t, dir, topic) {
			if h.ProducerID < 0 || h.BaseSequence < 0 {
				t.Fatalf("the batch at offset %d has producer id %d and sequence %d: not idempotent", h.BaseOffset, h.ProducerID, h.BaseSequence)
			}
		}
		got, err := franz{}.consume(patient(t), b.addr, topic, 0, len(sent))
		if err != nil {
			t.Fatal(err)
		}
		checkMessages(t, topic, got, sent, true)
	}
	t.Run("franz-go", func(t *testing.T) {
		createTopic(t, b, "franz")
		if err := (franz{}).produce(patient(t), b.addr, "franz", record.None, sent); err != nil {
			t.Fatal(err)
		}
		check(t, "franz")
	})
	t.Run("sarama", func(t *testing.T) {
		createTopic(t, b, "sarama")
		cfg := saramaClient{}.config()
		cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1
		p, err := sarama.NewSyncProducer([]string{b.addr}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for _, m := range sent {
			if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: "sarama", Key: sarama.StringEncoder(m.key), Value: sarama.StringEncoder(m.value)}); err != nil {
				t.Fatal(err)
			}
		}
		check(t, "sarama")
	})
	t.Run("kcat", func(t *testing.T) {
		k := kcat{need.Tool(t, "kcat")}
		createTopic(t, b, "kcat")
		var lines strings.Builder
		for _, m := range sent {
			fmt.Fprintf(&lines, "%s\t%s\n", m.key, m.value)
		}
		if _, err := k.run(patient(t), lines.String(), "-P", "-b", b.addr, "-t", "kcat", "-K", "\t", "-X", "enable.idempotence=true"); err != nil {
			t.Fatal(err)
		}
		check(t, "kcat")
	})
}

// TestLongPollEndsWhenARecordComes waits longer than the test may take: only the record can end it.
func TestLongPollEndsWhenARecordComes(t *testing.T) {
	b := startBroker(t, t.TempDir())
	createTopic(t, b, "orders")
	consumer := client(t, b, kgo.ConsumeTopics("orders"), kgo.FetchMaxWait(10*patience), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := make(chan kgo.Fetches, 1)
	ctx := patient(t)
	go func() { got <- consumer.PollFetches(ctx) }()
	for b.counters().Status.FetchesWaiting == 0 {
		if ctx.Err() != nil {
			t.Fatal("no fetch waits")
		}
		time.Sleep(time.Millisecond) // until the fetch waits
	}
	produce(t, client(t, b), "orders", 1, 10)
	f := <-got
	if err := f.Err(); err != nil || f.NumRecords() != 1 {
		t.Fatalf("%d records, %v", f.NumRecords(), err)
	}
}

func TestTopicsThroughKadm(t *testing.T) {
	b := startBroker(t, t.TempDir())
	admin, ctx := adminClient(t, b), patient(t)
	retention := "123456"
	created, err := admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &retention}, "orders")
	if err != nil || created.NumPartitions != 3 || created.ID == (kadm.TopicID{}) {
		t.Fatalf("%+v %v", created, err)
	}
	for want, try := range map[error]func() error{
		kerr.TopicAlreadyExists:       func() error { _, err := admin.CreateTopic(ctx, 1, 1, nil, "orders"); return err },
		kerr.InvalidTopicException:    func() error { _, err := admin.CreateTopic(ctx, 1, 1, nil, "../../etc/passwd"); return err },
		kerr.InvalidReplicationFactor: func() error { _, err := admin.CreateTopic(ctx, 1, 3, nil, "three"); return err },
		kerr.InvalidConfig: func() error {
			v := "soon"
			_, err := admin.CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": &v}, "bad")
			return err
		},
		kerr.UnknownTopicOrPartition: func() error { _, err := admin.DeleteTopic(ctx, "nothing"); return err },
		kerr.InvalidPartitions:       func() error { r, err := admin.UpdatePartitions(ctx, 2, "orders"); return cmpErr(err, r["orders"].Err) },
	} {
		if err := try(); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	described, err := admin.DescribeTopicConfigs(ctx, "orders")
	if err != nil || configValue(described, "retention.ms") != "123456" || configValue(described, "cleanup.policy") != "delete" {
		t.Errorf("%+v %v", described, err)
	}
	if altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.bytes", Value: kadm.StringPtr("1000000")}, {Op: kadm.DeleteConfig, Name: "retention.ms"}}, "orders"); err != nil || altered[0].Err != nil {
		t.Errorf("%+v %v", altered, err)
	}
	described, err = admin.DescribeTopicConfigs(ctx, "orders")
	if err != nil || configValue(described, "segment.bytes") != "1000000" || configValue(described, "retention.ms") != "604800000" {
		t.Errorf("after the change: %+v %v", described, err)
	}
	if r, err := admin.CreatePartitions(ctx, 2, "orders"); err != nil || r["orders"].Err != nil {
		t.Errorf("%+v %v", r, err)
	}
	topics, err := admin.ListTopics(ctx)
	if err != nil || len(topics["orders"].Partitions) != 5 || topics["orders"].Partitions[4].Leader != topics["orders"].Partitions[0].Leader {
		t.Errorf("%+v %v", topics, err)
	}
	if dirs, err := admin.DescribeAllLogDirs(ctx, nil); err != nil || len(dirs.Sorted()) != 1 {
		t.Errorf("%+v %v", dirs, err)
	}
	if _, err := admin.DeleteTopic(ctx, "orders"); err != nil {
		t.Error(err)
	}
	// A new client: the old one answers from what it has cached.
	if topics, err = adminClient(t, b).ListTopics(ctx); err != nil || topics.Has("orders") {
		t.Errorf("deleted, and still %+v %v", topics, err)
	}
	if again, err := admin.CreateTopic(ctx, 1, 1, nil, "orders"); err != nil || again.ID == created.ID {
		t.Errorf("a new topic of the old name: %+v %v", again, err)
	}
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func configValue(all kadm.ResourceConfigs, name string) string {
	for _, r := range all {
		for _, c := range r.Configs {
			if c.Key == name {
				return c.MaybeValue()
			}
		}
	}
	return ""
}

func TestTopicsThroughSarama(t *testing.T) {
	b := startBroker(t, t.TempDir())
	admin, err := sarama.NewClusterAdmin([]string{b.addr}, saramaClient{}.config())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	value := "200000"
	if err := admin.CreateTopic("orders", &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"segment.bytes": &value}}, false); err != nil {
		t.Fatal(err)
	}
	if err := admin.CreateTopic("orders", &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		t.Errorf("created twice: %v", err)
	}
	topics, err := admin.ListTopics()
	if err != nil || topics["orders"].NumPartitions != 2 || topics["orders"].ConfigEntries["segment.bytes"] == nil || *topics["orders"].ConfigEntries["segment.bytes"] != value {
		t.Errorf("%+v %v", topics, err)
	}
	if err := admin.CreatePartitions("orders", 4, nil, false); err != nil {
		t.Error(err)
	}
	value = "300000"
	if err := admin.AlterConfig(sarama.TopicResource, "orders", map[string]*string{"segment.bytes": &value}, false); err != nil {
		t.Error(err)
	}
	resource := &sarama.ConfigResource{Type: sarama.TopicResource, Name: "orders", ConfigNames: []string{"segment.bytes"}}
	configs, err := admin.DescribeConfigs([]*sarama.ConfigResource{resource}, sarama.DescribeConfigsOptions{})
	if err != nil || len(configs) != 1 || len(configs[0].Configs) != 1 || configs[0].Configs[0].Value != value {
		t.Errorf("%+v %v", configs, err)
	}
	described, err := admin.DescribeTopics([]string{"orders"})
	if err != nil || len(described) != 1 || len(described[0].Partitions) != 4 {
		t.Errorf("%+v %v", described, err)
	}
	if err := admin.DeleteTopic("orders"); err != nil {
		t.Error(err)
	}
}

// TestDeleteRecordsMovesTheLogStart deletes with kadm and sarama, and reads with every client from where records are left.
func TestDeleteRecordsMovesTheLogStart(t *testing.T) {
	clients := stockClients(t)
	for _, offsets := range []string{"logical", "byte"} {
		t.Run(offsets, func(t *testing.T) {
			b := startBroker(t, t.TempDir(), "lab.offsets="+offsets)
			createTopic(t, b, "orders")
			ctx := patient(t)
			for range 10 {
				if err := (franz{}).produce(ctx, b.addr, "orders", record.None, someMessages("orders", 10)); err != nil {
					t.Fatal(err)
				}
			}
			all, err := franz{}.consume(ctx, b.addr, "orders", 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			var to kadm.Offsets
			to.AddOffset("orders", 0, all[30].offset, -1)
			if r, err := adminClient(t, b).DeleteRecords(ctx, to); err != nil || r.Error() != nil {
				t.Fatalf("%+v %v", r, err)
			}
			admin, err := sarama.NewClusterAdmin([]string{b.addr}, saramaClient{}.config())
			if err != nil {
				t.Fatal(err)
			}
			defer admin.Close()
			if err := admin.DeleteRecords("orders", map[int32]int64{0: all[45].offset}); err != nil {
				t.Fatal(err)
			}
			if _, err := (franz{}).consume(ctx, b.addr, "orders", all[44].offset, 1); !errors.Is(err, kerr.OffsetOutOfRange) {
				t.Errorf("a deleted record: %v, want %v", err, kerr.OffsetOutOfRange)
			}
			for _, c := range clients {
				got, err := c.consume(ctx, b.addr, "orders", all[45].offset, 55)
				if err != nil || !slices.Equal(got, all[45:]) {
					t.Errorf("%s: %v %s", c.name, err, firstDifference(got, all[45:]))
				}
			}
		})
	}
}
