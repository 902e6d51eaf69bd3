package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Produce says how lines become records.
type Produce struct {
	Topic        string
	Partition    int32         // -1: by key, or sticky without one
	KeySeparator string        // what precedes it on a line is the key; "": no keys
	Acks         string        // 0, 1, all
	Codec        string        // none, gzip, snappy, lz4, zstd
	BatchBytes   int32         // bound of one batch
	LineBytesMax int           // a longer line is an error
	Linger       time.Duration // how long a batch waits for more
}

// ProduceLines sends one record for each line of in. It returns how many were
// acknowledged, and the first failure.
func (t Target) ProduceLines(ctx context.Context, in io.Reader, p Produce) (acked int64, err error) {
	opts, err := p.options()
	if err != nil {
		return 0, err
	}
	c, err := t.connect(ctx, append(opts, kgo.RecordDeliveryTimeout(t.Timeout))...)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var mu sync.Mutex
	var failed error
	promise := func(_ *kgo.Record, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			acked++
		} else if failed == nil {
			failed = err
		}
	}
	firstFailure := func() error { mu.Lock(); defer mu.Unlock(); return failed }

	lines := bufio.NewScanner(in)
	lines.Buffer(nil, p.LineBytesMax)
	for lines.Scan() && firstFailure() == nil && ctx.Err() == nil {
		r, err := p.record(lines.Bytes())
		if err != nil {
			return acked, errors.Join(err, c.Flush(ctx))
		}
		c.Produce(ctx, r, promise) // blocks while the client's buffer is full
	}
	err = c.Flush(ctx)
	if e := lines.Err(); errors.Is(e, bufio.ErrTooLong) {
		err = fmt.Errorf("a line is longer than %d bytes; raise --line-bytes-max", p.LineBytesMax)
	} else if e != nil {
		err = e
	}
	if failed != nil {
		err = fmt.Errorf("produce to %s: %w", p.Topic, failed)
	}
	return acked, err
}

// record makes a record of a copy of line.
func (p Produce) record(line []byte) (*kgo.Record, error) {
	r := &kgo.Record{Topic: p.Topic, Partition: p.Partition}
	value := line
	if p.KeySeparator != "" {
		key, rest, found := bytes.Cut(line, []byte(p.KeySeparator))
		if !found {
			return nil, fmt.Errorf("the line %.40q has no key separator %q", line, p.KeySeparator)
		}
		r.Key, value = bytes.Clone(key), rest
	}
	r.Value = append([]byte{}, value...)
	return r, nil
}

func (p Produce) options() ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.ProducerLinger(p.Linger), kgo.ProducerBatchMaxBytes(p.BatchBytes), kgo.AllowAutoTopicCreation()}
	switch p.Acks {
	case "all", "-1":
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, fmt.Errorf("--acks %s: want 0, 1 or all", p.Acks)
	}
	codec, ok := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[p.Codec]
	if !ok {
		return nil, fmt.Errorf("--codec %s: want none, gzip, snappy, lz4 or zstd", p.Codec)
	}
	opts = append(opts, kgo.ProducerBatchCompression(codec))
	if p.Partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	return opts, nil
}
