package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Consume says what to read and how to print it.
type Consume struct {
	Topic      string
	Partitions []int32 // none: all
	From       string  // beginning, end, an offset, -N (N before the end), or a time (RFC 3339, or @ms)
	Max        int64   // records; 0: no bound
	ToEnd      bool    // stop at the high watermark found at the start, instead of waiting for more
	JSON       bool    // one object a line
	Keys       bool    // key, tab, value
}

// record is one line of --json. Keys and values that are not UTF-8 lose their
// odd bytes there; what needs them reads the log itself.
type record struct {
	Topic       string            `json:"topic"`
	Partition   int32             `json:"partition"`
	Offset      int64             `json:"offset"`
	Timestamp   int64             `json:"timestamp"` // ms
	LeaderEpoch int32             `json:"leader_epoch"`
	Key         *string           `json:"key"`
	Value       *string           `json:"value"`
	Headers     map[string]string `json:"headers,omitempty"`
}

// span is what to read of a partition: from is exact, end is the high watermark at the start.
type span struct{ from, end int64 }

// ConsumeTo prints records until Max, the end (ToEnd) or the end of ctx, which is no error.
func (t Target) ConsumeTo(ctx context.Context, out io.Writer, c Consume) (n int64, err error) {
	left, err := t.spans(ctx, c)
	if err != nil || len(left) == 0 {
		return 0, err
	}
	offsets := map[int32]kgo.Offset{}
	for p, s := range left {
		offsets[p] = kgo.NewOffset().At(s.from)
	}
	client, err := t.connect(ctx, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: offsets}))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	buffered := bufio.NewWriterSize(out, 64<<10)
	defer func() { err = errors.Join(err, buffered.Flush()) }()
	for {
		fetches, silent := poll(ctx, client)
		if ctx.Err() != nil || silent && c.ToEnd {
			return n, nil
		}
		if err := fetches.Err(); err != nil && !silent {
			return n, fmt.Errorf("consume %s: %w", c.Topic, err)
		}
		for _, r := range fetches.Records() {
			s, reading := left[r.Partition]
			if c.ToEnd && (!reading || r.Offset >= s.end) {
				continue
			}
			if err := c.print(buffered, r); err != nil {
				return n, err
			}
			if n++; n == c.Max {
				return n, nil
			}
		}
		if c.ToEnd && reachedAll(fetches, left) {
			return n, nil
		}
		if err := buffered.Flush(); err != nil {
			return n, err
		}
	}
}

// silenceMax ends a read to the end that does not see the end: under byte offsets
// the log end offset lies further from the last record than one. What is below
// the high watermark is there, so a broker does not keep it waiting.
const silenceMax = 3 * time.Second

func poll(ctx context.Context, client *kgo.Client) (fetches kgo.Fetches, silent bool) {
	bounded, cancel := context.WithTimeout(ctx, silenceMax)
	defer cancel()
	fetches = client.PollFetches(bounded)
	return fetches, bounded.Err() != nil && fetches.NumRecords() == 0
}

// reachedAll takes out the partitions that were read to their end and says
// whether none is left.
func reachedAll(fetches kgo.Fetches, left map[int32]span) bool {
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		s, ok := left[p.Partition]
		if n := len(p.Records); ok && n > 0 && p.Records[n-1].Offset+1 >= s.end {
			delete(left, p.Partition)
		}
	})
	return len(left) == 0
}

// spans resolves From in each partition.
func (t Target) spans(ctx context.Context, c Consume) (map[int32]span, error) {
	from, err := parseFrom(c.From)
	if err != nil {
		return nil, err
	}
	spans := map[int32]span{}
	err = t.admin(ctx, func(ctx context.Context, a *kadm.Client) error {
		starts, err := a.ListStartOffsets(ctx, c.Topic)
		if err == nil {
			err = starts.Error()
		}
		if err != nil {
			return explain("topic "+c.Topic, err, "")
		}
		ends, err := a.ListEndOffsets(ctx, c.Topic)
		if err != nil {
			return err
		}
		var at kadm.ListedOffsets
		if from.kind == fromTime {
			if at, err = a.ListOffsetsAfterMilli(ctx, from.n, c.Topic); err != nil {
				return err
			}
		}
		for p, start := range starts[c.Topic] {
			end := ends[c.Topic][p].Offset
			begin := from.offset(start.Offset, end)
			if o, ok := at.Lookup(c.Topic, p); ok {
				begin = o.Offset
			}
			if begin < end || !c.ToEnd {
				spans[p] = span{begin, end}
			}
		}
		return c.keep(spans, starts[c.Topic])
	})
	return spans, err
}

// keep leaves the partitions asked for.
func (c Consume) keep(spans map[int32]span, all map[int32]kadm.ListedOffset) error {
	if len(c.Partitions) == 0 {
		return nil
	}
	for _, p := range c.Partitions {
		if _, ok := all[p]; !ok {
			return fmt.Errorf("topic %s has no partition %d", c.Topic, p)
		}
	}
	maps.DeleteFunc(spans, func(p int32, _ span) bool { return !slices.Contains(c.Partitions, p) })
	return nil
}

// The kinds of From.
const (
	fromOffset = iota
	fromEnd    // n before it
	fromStart
	fromTime // n in ms
)

type from struct {
	kind int
	n    int64
}

// offset is where to begin in a partition that holds [start, end), unless kind is fromTime.
func (f from) offset(start, end int64) int64 {
	switch f.kind {
	case fromStart:
		return start
	case fromEnd:
		return max(start, end-f.n)
	}
	return f.n
}

func parseFrom(s string) (from, error) {
	if s == "beginning" {
		return from{kind: fromStart}, nil
	}
	if s == "end" {
		return from{kind: fromEnd}, nil
	}
	if ms, ok := strings.CutPrefix(s, "@"); ok {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil && n >= 0 {
			return from{fromTime, n}, nil
		}
	} else if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 0 {
			return from{fromEnd, -n}, nil
		}
		return from{fromOffset, n}, nil
	} else if at, err := time.Parse(time.RFC3339, s); err == nil {
		return from{fromTime, at.UnixMilli()}, nil
	}
	return from{}, fmt.Errorf("--from %s: want beginning, end, an offset, -N for N before the end, a time like 2026-01-31T12:00:00Z, or @milliseconds", s)
}

func (c Consume) print(w *bufio.Writer, r *kgo.Record) error {
	if !c.JSON {
		if c.Keys {
			w.Write(r.Key)
			w.WriteByte('\t')
		}
		w.Write(r.Value)
		return w.WriteByte('\n')
	}
	line := record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), LeaderEpoch: r.LeaderEpoch}
	if r.Key != nil {
		key := string(r.Key)
		line.Key = &key
	}
	if r.Value != nil {
		value := string(r.Value)
		line.Value = &value
	}
	for _, h := range r.Headers {
		if line.Headers == nil {
			line.Headers = map[string]string{}
		}
		line.Headers[h.Key] = string(h.Value)
	}
	return json.NewEncoder(w).Encode(line)
}
