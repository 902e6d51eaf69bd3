package load

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/storage/record"
)

var small = BatchSpec{RecordBytes: 100, BatchRecords: 10, Entropy: 8, Codec: "none", Timestamp: 1, Seed: 7}

func prepare(t *testing.T, s BatchSpec, n int) []Batch {
	t.Helper()
	b, err := s.Prepare(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPreparedBatchesAreValidAndAsLargeAsAsked(t *testing.T) {
	for _, s := range []BatchSpec{
		small,
		{RecordBytes: 100, BatchBytes: 64 << 10, Entropy: 3, Codec: "none", Timestamp: 1},
		{RecordBytes: 1000, BatchBytes: 64 << 10, Entropy: 3, Codec: "zstd", Timestamp: 1},
		{RecordBytes: 1 << 20, BatchBytes: 1, Codec: "lz4", Timestamp: 1},
	} {
		for _, b := range prepare(t, s, 3) {
			h, err := record.Validate(b.Bytes, record.LevelRecords, record.Limits{BatchBytesMax: 4 << 20, DecompressedBytesMax: 4 << 20})
			if err != nil {
				t.Fatalf("%+v: %v", s, err)
			}
			if int(h.RecordCount) != b.Records || s.BatchRecords > 0 && b.Records != s.BatchRecords {
				t.Errorf("%+v: %d records, header says %d", s, b.Records, h.RecordCount)
			}
			if s.Codec == "none" && s.BatchRecords == 0 && (len(b.Bytes) > s.BatchBytes || len(b.Bytes) < s.BatchBytes-200) {
				t.Errorf("%+v: a batch of %d bytes", s, len(b.Bytes))
			}
		}
	}
	if bytes.Equal(prepare(t, small, 1)[0].Bytes, prepare(t, BatchSpec{RecordBytes: 100, BatchRecords: 10, Entropy: 8, Codec: "none", Timestamp: 1, Seed: 8}, 1)[0].Bytes) {
		t.Error("two seeds gave the same bytes")
	}
	if !bytes.Equal(prepare(t, small, 1)[0].Bytes, prepare(t, small, 1)[0].Bytes) {
		t.Error("one seed gave two different batches")
	}
}

func TestPayloadCompressesAsItsEntropySays(t *testing.T) {
	for _, entropy := range []float64{0, 1, 3, 5, 8} {
		p := Payload(NewRand(1, 1), 1<<20, entropy)
		var out bytes.Buffer
		w, _ := flate.NewWriter(&out, 6)
		w.Write(p)
		w.Close()
		got := float64(out.Len()) / float64(len(p))
		if want := entropy / 8; got < want-0.01 || got > want+0.12 {
			t.Errorf("entropy %g compressed to %.3f of its size, want about %.3f", entropy, got, want)
		}
	}
}

func TestRawProduceCountsWhatTheBrokerTook(t *testing.T) {
	for _, depth := range []int{1, 2, 7} {
		f := &fake{}
		w := forever()
		st, err := RawProduce{Addr: f.listen(t), Topic: "t", Partitions: 1, Acks: 1, Batches: prepare(t, small, 3), Depth: depth, Requests: 101}.Run(testContext(t), w)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.batches) != 101 || st.Requests != 101 || st.Records != 1010 || st.Gaps != 0 {
			t.Errorf("depth %d: broker has %d batches; driver counts %d requests, %d records, %d gaps", depth, len(f.batches), st.Requests, st.Records, st.Gaps)
		}
		if st.Latency.TotalCount() != 101 {
			t.Errorf("depth %d: %d latencies", depth, st.Latency.TotalCount())
		}
	}
}

func TestRawProduceSeesAnOffsetThatIsMissing(t *testing.T) {
	f := &fake{skipOffset: 200}
	st, err := RawProduce{Addr: f.listen(t), Topic: "t", Partitions: 1, Acks: 1, Batches: prepare(t, small, 3), Depth: 2, Requests: 50}.Run(testContext(t), forever())
	if err != nil || st.Gaps != 1 {
		t.Errorf("gaps %d, %v; want one gap", st.Gaps, err)
	}
}

// A broker that stands still for 300 ms delays everything that was due meanwhile.
// Timed from the actual send, with one request in flight, only one request would show it.
func TestLatencyIsTakenFromTheIntendedSendTime(t *testing.T) {
	f := &fake{stallAt: 20, stall: 300 * time.Millisecond}
	st, err := RawProduce{Addr: f.listen(t), Topic: "t", Partitions: 1, Acks: 1, Batches: prepare(t, small, 3), Depth: 1, RecordsPerS: 2000, Requests: 200}.Run(testContext(t), forever())
	if err != nil {
		t.Fatal(err)
	}
	// 200 requests a second: about 60 fall due during the stall, 30 of them wait 150 ms or more.
	late := int64(0)
	for _, bar := range st.Latency.Distribution() {
		if bar.From >= 100_000 {
			late += bar.Count
		}
	}
	if late < 20 {
		t.Errorf("%d requests were late by 100 ms, want at least 20", late)
	}
	if p99 := st.Latency.ValueAtQuantile(99); p99 < 200_000 {
		t.Errorf("p99 is %d µs: the stall is hidden", p99)
	}
}

func TestUnacknowledgedProduceCountsWhatWasSent(t *testing.T) {
	f := &fake{}
	st, err := RawProduce{Addr: f.listen(t), Topic: "t", Partitions: 1, Acks: 0, Batches: prepare(t, small, 3), Depth: 1, Requests: 50}.Run(testContext(t), forever())
	if err != nil || st.Requests != 50 || st.Records != 500 {
		t.Errorf("%+v, %v", st.Tick, err)
	}
}

func TestRawFetchReadsEverythingInOrderAtAnyDepth(t *testing.T) {
	for _, depth := range []int{1, 2, 5} {
		for _, segment := range []int{0, 7, 1} {
			f := &fake{segment: segment}
			records := f.fill(t, small, 100)
			next, seen := int64(0), int64(0)
			r := RawFetch{Addr: f.listen(t), Topic: "t", Partitions: 1, FetchBytes: 4 * 1300, Depth: depth, Verify: true,
				OnBatch: func(_ int32, h record.Header, _ []byte) {
					if h.BaseOffset != next {
						t.Errorf("depth %d segment %d: batch at %d where %d was due", depth, segment, h.BaseOffset, next)
					}
					next, seen = h.NextOffset(), seen+int64(h.RecordCount)
				}}
			st, err := r.Run(testContext(t), forever())
			if err != nil || seen != records || st.Gaps != 0 {
				t.Errorf("depth %d segment %d: %d of %d records, %d gaps, %v", depth, segment, seen, records, st.Gaps, err)
			}
			if depth > 1 && segment == 0 && st.Wasted > 1 {
				t.Errorf("depth %d: %d fetches wasted in an even log", depth, st.Wasted)
			}
		}
	}
}

func TestRawFetchLoopsUntilTheWindowCloses(t *testing.T) {
	f := &fake{}
	records := f.fill(t, small, 20)
	w := &Window{Measure: time.Hour, MeasureBytes: 1 << 20}
	st, err := RawFetch{Addr: f.listen(t), Topic: "t", Partitions: 1, FetchBytes: 5000, Depth: 2, Loop: true}.Run(testContext(t), w)
	if err != nil || st.Records < 3*records || st.Gaps != 0 {
		t.Errorf("%d records of %d a round, %d gaps, %v", st.Records, records, st.Gaps, err)
	}
}

func TestRawFetchFindsDamage(t *testing.T) {
	f := &fake{corrupt: true}
	f.fill(t, small, 5)
	_, err := RawFetch{Addr: f.listen(t), Topic: "t", Partitions: 1, FetchBytes: 5000, Depth: 1, Verify: true}.Run(testContext(t), forever())
	if err == nil || !strings.Contains(err.Error(), "CRC") {
		t.Errorf("a flipped bit gave %v", err)
	}
	f = &fake{skipOffset: 20}
	f.fill(t, small, 5)
	st, err := RawFetch{Addr: f.listen(t), Topic: "t", Partitions: 1, FetchBytes: 50_000, Depth: 1}.Run(testContext(t), forever())
	if err != nil || st.Gaps != 1 {
		t.Errorf("a missing offset gave %d gaps, %v", st.Gaps, err)
	}
}

func TestRawFetchOfAnEmptyLogEnds(t *testing.T) {
	f := &fake{}
	st, err := RawFetch{Addr: f.listen(t), Topic: "t", Partitions: 1, FetchBytes: 5000, Depth: 2}.Run(testContext(t), forever())
	if err != nil || st.Records != 0 {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestDriversEndWhenTheContextDoes(t *testing.T) {
	f := &fake{stallAt: 3, stall: time.Second}
	ctx, cancel := context.WithCancel(testContext(t))
	r := RawProduce{Addr: f.listen(t), Topic: "t", Partitions: 1, Acks: 1, Batches: prepare(t, small, 1), Depth: 1,
		OnAck: func(int32, int, int64) { cancel() }}
	if _, err := r.Run(ctx, forever()); !errors.Is(err, context.Canceled) {
		t.Errorf("closed loop: %v", err)
	}
	ctx, cancel = context.WithCancel(testContext(t))
	r.RecordsPerS, r.OnAck = 1000, func(int32, int, int64) { cancel() }
	if _, err := r.Run(ctx, forever()); !errors.Is(err, context.Canceled) {
		t.Errorf("open loop: %v", err)
	}
}

func TestFramesRefusesALengthOverItsBound(t *testing.T) {
	for _, in := range [][]byte{{0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 0}, {0, 0, 0, 9, 1}, {0, 0}} {
		if _, err := NewFrames(bytes.NewReader(in), 100).Next(); err == nil {
			t.Errorf("% x was read as a frame", in)
		}
	}
}

func TestSweepFindsTheKnee(t *testing.T) {
	const capacity = 1000.0
	points, knee, err := Sweep(t.Context(), 100, 5, func(_ context.Context, rate float64) (Point, error) {
		return Point{Asked: rate, Reached: min(rate, capacity)}, nil
	})
	if err != nil || knee < 0.95*capacity || knee > capacity/0.95 {
		t.Errorf("knee %.0f after %d points, %v; the server does %.0f", knee, len(points), err, capacity)
	}
}

func TestLinkHoldsBackToItsRate(t *testing.T) {
	// 1 MB/s for 250 kB takes at least 0.2 s whatever the machine does.
	f := &fake{}
	began := time.Now()
	r := RawProduce{Addr: f.listen(t), Topic: "t", Partitions: 1, Acks: 1, Batches: prepare(t, small, 1), Depth: 2, Requests: 220, Dial: NewLink(1_000_000).Dial}
	if _, err := r.Run(testContext(t), forever()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("%d bytes passed a 1 MB/s link in %s", 220*len(r.Batches[0].Bytes), took)
	}
}

func TestAConnectionGoesToEachLeaderWithThePartitionsItLeads(t *testing.T) {
	led := RawProduce{Addr: "x", Connections: 9, Leaders: []string{"a", "b", "a", "c", "b"}}.routes
	if got, want := fmt.Sprint(led()), "[{a [0 2]} {b [1 4]} {c [3]}]"; got != want {
		t.Errorf("by leader: %s, want %s", got, want)
	}
	turns := RawProduce{Addr: "x", Connections: 2, Partitions: 3}.routes
	if got, want := fmt.Sprint(turns()), "[{x [0 2]} {x [1]}]"; got != want {
		t.Errorf("by turns: %s, want %s", got, want)
	}
}

// Whoever waited for the window while it opened had finished before: that is no part of what is measured.
func TestWhatEndedBeforeTheWindowOpenedIsNotInIt(t *testing.T) {
	w := &Window{Warmup: time.Millisecond, Measure: time.Hour}
	start := time.Now()
	w.Start(start)
	w.Done(start.Add(time.Second), 10, 1) // it opens, now
	opened, _ := w.Opened()
	if inside, _ := w.Done(opened.Add(-time.Microsecond), 1000, 100); inside {
		t.Error("what ended before the window opened is inside")
	}
	if inside, _ := w.Done(opened.Add(time.Microsecond), 7, 1); !inside {
		t.Error("what ended after it is not")
	}
	if m := w.Measured(); m.Bytes != 7 || m.Requests != 1 {
		t.Errorf("measured %+v, want 7 bytes of one request", m)
	}
}

type partFrom struct {
	bytes int64
	calls *[]string
}

func (p partFrom) Begun(_ time.Time, bytes int64) bool { return bytes >= p.bytes }
func (p partFrom) Open()                               { *p.calls = append(*p.calls, "part opens") }
func (p partFrom) Close()                              { *p.calls = append(*p.calls, "part closes") }

// A part that says itself when it begins is not begun by a warmup, and is looked at inside of what the samplers do.
func TestAWindowOpensWithItsMeasuredPart(t *testing.T) {
	var calls []string
	w := &Window{
		Warmup: time.Nanosecond, WarmupBytes: 1, Measure: time.Hour, MeasureBytes: 5,
		OnOpen: func() { calls = append(calls, "window opens") }, OnClose: func() { calls = append(calls, "window closes") },
	}
	w.Enter(partFrom{20, &calls})
	start := time.Now()
	w.Start(start)
	w.Done(start.Add(time.Minute), 10, 1)
	if _, open := w.Opened(); open {
		t.Error("open before its part has begun")
	}
	w.Done(start.Add(time.Minute), 10, 1)
	opened, _ := w.Opened()
	if _, over := w.Done(opened.Add(time.Second), 5, 1); !over || w.Measured().Bytes != 5 {
		t.Errorf("measured %+v, over: %v", w.Measured(), over)
	}
	if got := strings.Join(calls, ", "); got != "window opens, part opens, part closes, window closes" {
		t.Error(got)
	}
}

// Warmup and what ends after the close are in neither the count nor the time, and a rate is per second.
func TestAWindowsRateIsOfWhatLiesInIt(t *testing.T) {
	w := &Window{WarmupBytes: 5, Measure: 2 * time.Second}
	start := time.Now().Add(-time.Hour)
	w.Start(start)
	w.Done(start.Add(time.Minute), 5, 1) // it opens, now
	open, _ := w.Opened()
	for _, c := range []struct {
		after        time.Duration
		inside, over bool
	}{{time.Second, true, false}, {2 * time.Second, true, true}, {3 * time.Second, false, true}} {
		if inside, over := w.Done(open.Add(c.after), 3000, 30); inside != c.inside || over != c.over {
			t.Errorf("after %s: inside %v, over %v", c.after, inside, over)
		}
	}
	st := Stats{Tick: w.Measured()}
	if st.Elapsed != 2*time.Second || st.BytesPerS() != 3000 || st.RecordsPerS() != 30 {
		t.Errorf("%s, %v B/s, %v records/s, want 2 s, 3000 and 30", st.Elapsed, st.BytesPerS(), st.RecordsPerS())
	}
}

// In a closed loop a request is timed from its own send, also behind others.
func TestAStallShowsInTheLatencyOfAClosedLoop(t *testing.T) {
	f := &fake{stallAt: 20, stall: 300 * time.Millisecond}
	st, err := RawProduce{Addr: f.listen(t), Topic: "t", Partitions: 1, Acks: 1, Batches: prepare(t, small, 3), Depth: 4, Requests: 100}.Run(testContext(t), forever())
	if err != nil {
		t.Fatal(err)
	}
	late := int64(0)
	for _, bar := range st.Latency.Distribution() {
		if bar.From >= 100_000 {
			late += bar.Count
		}
	}
	if late < 4 {
		t.Errorf("%d requests show the stall, want all 4 that were in flight", late)
	}
}

// The rate asked for is that of all connections together.
func TestARateIsSharedByTheConnections(t *testing.T) {
	f := &fake{}
	var intervals []time.Duration
	var mu sync.Mutex
	batches := prepare(t, small, 3)
	_, err := RawProduce{Addr: f.listen(t), Topic: "t", Partitions: 1, Acks: 1, Batches: batches, Depth: 2, RecordsPerS: 100 * float64(batches[0].Records), Requests: 2,
		OnStart: func(_ time.Time, interval time.Duration) { intervals = append(intervals, interval) }}.Run(testContext(t), forever())
	if err != nil {
		t.Fatal(err)
	}
	one := intervals[0]
	intervals = nil
	_, err = RawProduce{Addr: f.listen(t), Topic: "t", Partitions: 4, Connections: 4, Acks: 0, Batches: batches, Depth: 2, RecordsPerS: 100 * float64(batches[0].Records), Requests: 2,
		OnStart: func(_ time.Time, interval time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			intervals = append(intervals, interval)
		}}.Run(testContext(t), forever())
	if err != nil || len(intervals) != 4 {
		t.Fatalf("%v, %v", intervals, err)
	}
	for _, interval := range intervals {
		if one != 10*time.Millisecond || interval != 4*one {
			t.Errorf("a connection of four sends every %s, a lone one every %s; want 40 ms and 10", interval, one)
		}
	}
}

// What a driver does for itself between an answer and the next request counts as the broker's time.
func TestARawExchangeAllocatesNothing(t *testing.T) {
	f := &fake{}
	f.fill(t, small, 4)
	asked := kmsg.NewPtrFetchRequest()
	asked.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{{PartitionMaxBytes: 1 << 20}}}}
	fetched := f.fetch(asked)
	fetched.SetVersion(fetchVersion)
	fetch := newFetchExchange(&RawFetch{Topic: "t", FetchBytes: 1 << 20, Loop: true}, 0)

	sent := kmsg.NewPtrProduceRequest()
	sent.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: prepare(t, small, 1)[0].Bytes}}}}
	produced := f.produce(sent)
	produced.SetVersion(produceVersion)
	produce := newProduceExchange(&RawProduce{Topic: "t", Acks: 1, Batches: prepare(t, small, 4)}, []int32{0})

	for name, c := range map[string]struct {
		x      exchange
		answer []byte
	}{
		"fetch":   {fetch, fetched.AppendTo(make([]byte, 4))},
		"produce": {produce, produced.AppendTo(make([]byte, 4))},
	} {
		round := uint32(0)
		n := testing.AllocsPerRun(100, func() {
			if c.x.request() == nil {
				t.Fatalf("%s: no request %d", name, round)
			}
			binary.BigEndian.PutUint32(c.answer, round)
			round++
			if bytes, _, err := c.x.answer(c.answer); bytes == 0 || err != nil {
				t.Fatalf("%s: answer %d: %d bytes, %v", name, round, bytes, err)
			}
		})
		if n > 0 {
			t.Errorf("%s: %.1f allocations for a request and its answer", name, n)
		}
	}
}
