package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-log/tidemark/internal/need"
	"github.com/tidemark-log/tidemark/storage/record"
)

// message is a record as every client can give it back. Key and value are text
// without tabs and line breaks, so that kcat can, too.
type message struct {
	offset    int64
	timestamp int64 // ms
	key       string
	value     string
}

// stockClient is one Kafka client library, used on partition 0 of a topic.
type stockClient interface {
	// produce sends all messages, acks=all, compressed, and returns once they are acknowledged.
	produce(ctx context.Context, addr, topic string, codec record.Codec, messages []message) error
	// consume reads n messages from offset on; fewer only with an error.
	consume(ctx context.Context, addr, topic string, offset int64, n int) ([]message, error)
	// offsetAt asks for the first offset at or after a timestamp.
	offsetAt(ctx context.Context, addr, topic string, timestamp int64) (int64, error)
}

// bigMessage is what clients are told that a message may have, in bytes.
const bigMessage = 24 << 20

type namedClient struct {
	name string
	stockClient
}

// stockClients gives every client that this machine has.
func stockClients(t *testing.T) []namedClient {
	clients := []namedClient{{"franz-go", franz{}}, {"sarama", saramaClient{}}, {"kafka-go", kafkaGo{}}}
	// A subtest, so that a missing kcat skips itself and not the others.
	t.Run("kcat", func(t *testing.T) {
		clients = append(clients, namedClient{"kcat", kcat{need.Tool(t, "kcat")}})
	})
	return clients
}

type franz struct{}

func (franz) produce(ctx context.Context, addr, topic string, codec record.Codec, messages []message) error {
	codecs := map[record.Codec]kgo.CompressionCodec{record.None: kgo.NoCompression(), record.Gzip: kgo.GzipCompression(), record.Snappy: kgo.SnappyCompression(), record.LZ4: kgo.Lz4Compression(), record.Zstd: kgo.ZstdCompression()}
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ProducerBatchCompression(codecs[codec]), kgo.ProducerBatchMaxBytes(bigMessage), kgo.BrokerMaxWriteBytes(2*bigMessage))
	if err != nil {
		return err
	}
	defer c.Close()
	var records []*kgo.Record
	for _, m := range messages {
		records = append(records, &kgo.Record{Topic: topic, Key: []byte(m.key), Value: []byte(m.value)})
	}
	return c.ProduceSync(ctx, records...).FirstErr()
}

func (franz) consume(ctx context.Context, addr, topic string, offset int64, n int) ([]message, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(offset)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxBytes(2*bigMessage), kgo.FetchMaxPartitionBytes(bigMessage), kgo.BrokerMaxReadBytes(4*bigMessage))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var got []message
	for len(got) < n {
		f := c.PollFetches(ctx)
		if err := f.Err0(); err != nil {
			return got, err
		}
		for _, e := range f.Errors() {
			return got, e.Err
		}
		f.EachRecord(func(r *kgo.Record) {
			got = append(got, message{r.Offset, r.Timestamp.UnixMilli(), string(r.Key), string(r.Value)})
		})
	}
	return got[:n], nil
}

func (franz) offsetAt(ctx context.Context, addr, topic string, timestamp int64) (int64, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	listed, err := kadm.NewClient(c).ListOffsetsAfterMilli(ctx, timestamp, topic)
	if err != nil {
		return 0, err
	}
	o, ok := listed.Lookup(topic, 0)
	if !ok {
		return 0, errors.New("no answer for the partition")
	}
	return o.Offset, o.Err
}

type saramaClient struct{}

func (saramaClient) config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.MaxMessageBytes = bigMessage
	c.Consumer.Fetch.Default = bigMessage
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	return c
}

func (s saramaClient) produce(_ context.Context, addr, topic string, codec record.Codec, messages []message) error {
	cfg := s.config()
	cfg.Producer.Compression = sarama.CompressionCodec(codec)
	p, err := sarama.NewSyncProducer([]string{addr}, cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	var all []*sarama.ProducerMessage
	for _, m := range messages {
		all = append(all, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(m.key), Value: sarama.StringEncoder(m.value)})
	}
	return p.SendMessages(all)
}

func (s saramaClient) consume(ctx context.Context, addr, topic string, offset int64, n int) ([]message, error) {
	c, err := sarama.NewConsumer([]string{addr}, s.config())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	p, err := c.ConsumePartition(topic, 0, offset)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var got []message
	for len(got) < n {
		select {
		case m, ok := <-p.Messages():
			if !ok {
				return got, errors.New("the partition consumer ended")
			}
			got = append(got, message{m.Offset, m.Timestamp.UnixMilli(), string(m.Key), string(m.Value)})
		case <-ctx.Done():
			return got, ctx.Err()
		}
	}
	return got, nil
}

func (s saramaClient) offsetAt(_ context.Context, addr, topic string, timestamp int64) (int64, error) {
	c, err := sarama.NewClient([]string{addr}, s.config())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.GetOffset(topic, 0, timestamp)
}

type kafkaGo struct{}

func (kafkaGo) produce(ctx context.Context, addr, topic string, codec record.Codec, messages []message) error {
	// Its own transport: the default one remembers for seconds which topics there were not.
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{Transport: transport, Addr: kafka.TCP(addr), Topic: topic, Compression: kafka.Compression(codec), RequiredAcks: kafka.RequireAll, BatchTimeout: 5 * time.Millisecond, BatchBytes: bigMessage}
	defer w.Close()
	var all []kafka.Message
	for _, m := range messages {
		all = append(all, kafka.Message{Key: []byte(m.key), Value: []byte(m.value)})
	}
	return w.WriteMessages(ctx, all...)
}

func (kafkaGo) consume(ctx context.Context, addr, topic string, offset int64, n int) ([]message, error) {
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{addr}, Topic: topic, Partition: 0, MaxBytes: bigMessage, MaxWait: 100 * time.Millisecond})
	defer r.Close()
	if err := r.SetOffset(offset); err != nil {
		return nil, err
	}
	var got []message
	for len(got) < n {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			return got, err
		}
		got = append(got, message{m.Offset, m.Time.UnixMilli(), string(m.Key), string(m.Value)})
	}
	return got, nil
}

func (kafkaGo) offsetAt(ctx context.Context, addr, topic string, timestamp int64) (int64, error) {
	c, err := kafka.DialLeader(ctx, "tcp", addr, topic, 0)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.ReadOffset(time.UnixMilli(timestamp))
}

// kcat is librdkafka.
type kcat struct{ path string }

func (k kcat) run(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, k.path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kcat %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

func (k kcat) produce(ctx context.Context, addr, topic string, codec record.Codec, messages []message) error {
	var lines strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&lines, "%s\t%s\n", m.key, m.value)
	}
	_, err := k.run(ctx, lines.String(), "-P", "-b", addr, "-t", topic, "-p", "0", "-z", codec.String(), "-K", "\t",
		"-X", "acks=all", "-X", "linger.ms=5", "-X", "message.max.bytes="+strconv.Itoa(bigMessage))
	return err
}

func (k kcat) consume(ctx context.Context, addr, topic string, offset int64, n int) ([]message, error) {
	out, err := k.run(ctx, "", "-C", "-q", "-b", addr, "-t", topic, "-p", "0", "-o", strconv.FormatInt(offset, 10), "-c", strconv.Itoa(n), "-f", "%o\t%T\t%k\t%s\n",
		"-X", "fetch.wait.max.ms=100", "-X", "fetch.message.max.bytes="+strconv.Itoa(bigMessage), "-X", "receive.message.max.bytes="+strconv.Itoa(4*bigMessage), "-X", "check.crcs=true")
	if err != nil {
		return nil, err
	}
	var got []message
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 {
			return got, fmt.Errorf("kcat printed %.80q", line)
		}
		offset, err1 := strconv.ParseInt(f[0], 10, 64)
		timestamp, err2 := strconv.ParseInt(f[1], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return got, err
		}
		got = append(got, message{offset, timestamp, f[2], f[3]})
	}
	if len(got) != n {
		return got, fmt.Errorf("kcat read %d messages of %d", len(got), n)
	}
	return got, nil
}

func (k kcat) offsetAt(ctx context.Context, addr, topic string, timestamp int64) (int64, error) {
	out, err := k.run(ctx, "", "-Q", "-b", addr, "-t", fmt.Sprintf("%s:0:%d", topic, timestamp))
	if err != nil {
		return 0, err
	}
	_, after, ok := strings.Cut(out, "offset ")
	if !ok {
		return 0, fmt.Errorf("kcat printed %q", out)
	}
	return strconv.ParseInt(strings.TrimSpace(after), 10, 64)
}
