package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// killRounds is how often the kill test kills: TIDEMARK_KILLS, or 50.
func killRounds(t *testing.T) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("TIDEMARK_KILLS"), "50"))
	if err != nil || n < 1 {
		t.Fatalf("TIDEMARK_KILLS=%q: a number of kills is wanted", os.Getenv("TIDEMARK_KILLS"))
	}
	return n
}

// ackedRecord is what a producer was told of a record.
type ackedRecord struct {
	partition int32
	offset    int64
	value     string
}

// killProducer sends numbered records, many in flight, through every death of
// the broker, until it is told to stop; then it waits for all acknowledgements.
type killProducer struct {
	name  string
	pace  <-chan time.Time // one record for each; nil: as fast as it goes
	acked []ackedRecord    // in the order of sending, once it has returned
}

func (p *killProducer) run(ctx context.Context, c *kgo.Client, partition int32, stop <-chan struct{}, count *atomic.Int64) error {
	room := make(chan struct{}, 500) // records in flight
	failed := make(chan error, 1)    // the first refusal
	for i := 0; ; i++ {
		if p.pace != nil {
			<-p.pace
		}
		select {
		case <-stop:
			if err := c.Flush(ctx); err != nil {
				return fmt.Errorf("%s: records still not acknowledged: %w", p.name, err)
			}
			select {
			case err := <-failed:
				return err
			default:
				return nil
			}
		case err := <-failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", p.name, ctx.Err())
		case room <- struct{}{}:
		}
		r := &kgo.Record{Topic: "kills", Partition: partition, Value: fmt.Appendf(nil, "%s/%d", p.name, i)}
		c.Produce(ctx, r, func(r *kgo.Record, err error) { // one at a time
			<-room
			if err != nil {
				select {
				case failed <- fmt.Errorf("%s: %s was refused: %w", p.name, r.Value, err):
				default:
				}
				return
			}
			p.acked = append(p.acked, ackedRecord{r.Partition, r.Offset, string(r.Value)})
			count.Add(1)
		})
	}
}

// throughDeaths are options of clients whose broker dies now and then: they look again soon, and
// a connection that is closed right after its first request is tried again like any other. franz-go takes that for
// a sign that SASL is missing otherwise, and gives the records up.
func throughDeaths(backoff time.Duration) []kgo.Opt {
	return []kgo.Opt{kgo.AlwaysRetryEOF(), kgo.RetryBackoffFn(func(int) time.Duration { return backoff }), kgo.MetadataMinAge(max(backoff, 10*time.Millisecond))}
}

// TestAcknowledgedRecordsSurviveKills kills the broker (-9) again and again under
// idempotent producers. Afterwards each record that was acknowledged stands at
// the offset that its producer was told; each producer's records are all there,
// once, in order; and offsets have no gap.
func TestAcknowledgedRecordsSurviveKills(t *testing.T) {
	for _, settings := range [][]string{
		nil,
		{"lab.offsets=byte"},
		{"lab.cache=process", "lab.fetch.transfer=copy"},
		{"lab.cache=direct", "lab.fetch.transfer=copy"},
		{"lab.storage.engine=btree", "lab.fetch.transfer=copy"},
		{"lab.storage.engine=btree", "lab.btree.key=message-id", "lab.fetch.transfer=copy"},
	} {
		t.Run(strings.Join(settings, "+"), func(t *testing.T) {
			rounds := killRounds(t)
			if settings != nil {
				rounds = max(1, rounds/10)
			}
			if err := produceThroughKills(t, rounds, settings, func(string) {}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKillTestBites takes the end of a segment away while the broker is dead.
func TestKillTestBites(t *testing.T) {
	err := produceThroughKills(t, 2, nil, func(dir string) {
		files, err := filepath.Glob(filepath.Join(dir, "kills-0", "*.log"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no segments (%v)", err)
		}
		info, err := os.Stat(slices.Max(files))
		if err == nil {
			err = os.Truncate(slices.Max(files), info.Size()/2)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if err == nil {
		t.Error("half a segment was lost, and nothing was seen")
	}
}

// produceThroughKills says what is wrong with the log in the end. between runs while the broker is dead.
func produceThroughKills(t *testing.T, rounds int, settings []string, between func(dir string)) error {
	const partitions = 2
	dir := t.TempDir()
	dense := !slices.Contains(settings, "lab.offsets=byte")
	settings = append(settings, "log.segment.bytes=300000", "log.flush.offset.checkpoint.interval.ms=200")
	b := startBroker(t, dir, settings...)
	// Each next broker takes the place of the one before.
	settings = append(settings, "listeners=PLAINTEXT://"+b.addr)
	if _, err := adminClient(t, b).CreateTopic(patient(t), partitions, 1, nil, "kills"); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(rounds)*time.Second)
	defer cancel()
	stop, count := make(chan struct{}), new(atomic.Int64)
	producers := []*killProducer{{name: "a"}, {name: "b"}, {name: "c"}}
	results := make(chan error, len(producers))
	for i, p := range producers {
		c := client(t, b, append(throughDeaths(5*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerLinger(time.Millisecond), kgo.MaxBufferedRecords(1000), kgo.ProducerBatchMaxBytes(20_000))...)
		go func() { results <- p.run(ctx, c, int32(i%partitions), stop, count) }()
	}
	rng := rand.New(rand.NewPCG(uint64(rounds), 9))
	var failed error
	for range rounds {
		next := count.Load() + 200 + rng.Int64N(3000)
		for count.Load() < next && failed == nil {
			select { // until so many more are acknowledged; nothing is concluded from time
			case failed = <-results: // before it was told to stop
				results <- failed
			case <-time.After(time.Millisecond):
			}
		}
		b.kill()
		between(dir)
		b = startBroker(t, dir, settings...)
	}
	close(stop)
	for range producers {
		failed = cmp.Or(<-results, failed)
	}
	t.Logf("%d records acknowledged through %d kills", count.Load(), rounds)
	return cmp.Or(failed, checkKills(t, b, producers, partitions, dense))
}

func checkKills(t *testing.T, b served, producers []*killProducer, partitions int32, dense bool) error {
	found := make([]map[int64]string, partitions)
	for p := range partitions {
		found[p] = make(map[int64]string)
		next := make(map[string]int)
		for i, r := range readPartition(t, b, "kills", p) {
			v := string(r.Value)
			found[p][r.Offset] = v
			if dense && r.Offset != int64(i) {
				return fmt.Errorf("partition %d: record %d has offset %d", p, i, r.Offset)
			}
			name, number, _ := strings.Cut(v, "/")
			if number != strconv.Itoa(next[name]) {
				return fmt.Errorf("partition %d, offset %d: %s where %s/%d is due: lost, twice, or out of order", p, r.Offset, v, name, next[name])
			}
			next[name]++
		}
	}
	for _, p := range producers {
		for i, r := range p.acked {
			if want := fmt.Sprintf("%s/%d", p.name, i); r.value != want {
				return fmt.Errorf("%s was acknowledged where %s was due", r.value, want)
			}
			// Under byte offsets a producer counts from its batch's offset as a consumer does.
			if got := found[r.partition][r.offset]; got != r.value {
				return fmt.Errorf("%s was acknowledged at offset %d of partition %d, where now %q stands", r.value, r.offset, r.partition, got)
			}
		}
	}
	return nil
}

// readPartition reads a partition from offset 0 to its end, which it marks first.
func readPartition(t *testing.T, b served, topic string, partition int32) []*kgo.Record {
	t.Helper()
	ctx := patient(t)
	const mark = "the end"
	writer := client(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := writer.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(mark)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c := client(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(0)}}))
	var all []*kgo.Record
	for {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("after %d records of partition %d: %v", len(all), partition, err)
		}
		all = append(all, f.Records()...)
		if n := len(all); n > 0 && string(all[n-1].Value) == mark {
			return all[:n-1]
		}
	}
}

// TestAClientThroughDeathsTriesAgain gives it a broker that closes its first connections right after their first request.
func TestAClientThroughDeathsTriesAgain(t *testing.T) {
	b := startBroker(t, t.TempDir())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for n := 0; ; n++ {
			in, err := l.Accept()
			if err != nil {
				return
			}
			if n < 5 {
				_, _ = readFrame(in)
				in.Close()
				continue
			}
			go (&garbler{t: t, to: b.addr}).serve(in)
		}
	}()
	c := client(t, servedAt(l.Addr().String()), throughDeaths(time.Millisecond)...)
	if _, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(patient(t), c); err != nil { // what a producer begins with
		t.Error(err)
	}
}

// servedAt is one address.
type servedAt string

func (a servedAt) seeds() []string { return []string{string(a)} }
