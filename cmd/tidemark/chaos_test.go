package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/internal/zookeepertest"
)

// chaosRounds is how often a broker of a cluster is killed: TIDEMARK_CHAOS, or 4.
func chaosRounds(t *testing.T) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("TIDEMARK_CHAOS"), "4"))
	if err != nil || n < 1 {
		t.Fatalf("TIDEMARK_CHAOS=%q: a number of rounds is wanted", os.Getenv("TIDEMARK_CHAOS"))
	}
	return n
}

// TestAClusterSurvivesKills kills (-9) the leader of a partition, the controller, a
// follower, in turn, under idempotent producers with acks=all, and starts it again.
// Nothing acknowledged is lost, each producer's records are there once and in order,
// what a consumer saw on the way is what stands in the end, and all replicas hold the same.
func TestAClusterSurvivesKills(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { surviveKills(t, "") })
	t.Run("zookeeper", func(t *testing.T) { surviveKills(t, zookeepertest.Start(t).Addr) })
}

func surviveKills(t *testing.T, zookeeper string) {
	c := startCluster(t, 3, zookeeper, "log.segment.bytes=1000000")
	l := startLoad(t, c)
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 4))
	rounds := chaosRounds(t)
	for round := range rounds {
		l.progress(200 + rng.Int64N(5000))
		role := []string{"leader", "controller", "follower"}[round%3]
		partition := rng.IntN(loadPartitions)
		id := c.find(role, "kills", partition)
		began := time.Now()
		c.Brokers[id-1].Kill()
		switch rng.IntN(3) {
		case 0: // the cluster goes on with two
			l.everyPartition()
			c.restart(id)
		case 1: // back before anybody has missed it
			c.restart(id)
		case 2: // and the next one dies before all are in sync again
			c.restart(id)
			t.Logf("round %d: killed the %s of partition %d, broker %d; back after %v", round, role, partition, id, time.Since(began))
			continue
		}
		c.awaitISR("kills", 3)
		t.Logf("round %d: killed the %s of partition %d, broker %d; all in sync after %v", round, role, partition, id, time.Since(began))
	}
	c.awaitISR("kills", 3)
	l.stop()
	t.Logf("%d records acknowledged through %d kills", l.count.Load(), rounds)
}

// TestAClusterSurvivesKillsOfItsEnsemble kills (-9) the leader of a ZooKeeper ensemble, or one of
// its followers, in turn, and every other time a broker while the ensemble is one short. Two servers are an ensemble: producers
// go on, and the cluster elects.
func TestAClusterSurvivesKillsOfItsEnsemble(t *testing.T) {
	servers := zookeepertest.StartEnsemble(t)
	c := startCluster(t, 3, zookeepertest.Addrs(servers))
	l := startLoad(t, c)
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 5))
	for round := range chaosRounds(t) {
		l.everyPartition()
		var victim *zookeepertest.Server
		role := []string{"leader", "follower"}[round%2]
		l.until("the ensemble has a leader", func() bool {
			i := slices.IndexFunc(servers, (*zookeepertest.Server).Leads)
			if i >= 0 {
				victim = servers[(i+round%2)%len(servers)]
			}
			return i >= 0
		})
		victim.Kill()
		l.everyPartition()
		what := "no broker"
		if round/2%2 == 0 {
			brokerRole := []string{"leader", "controller"}[rng.IntN(2)]
			id := c.find(brokerRole, "kills", rng.IntN(loadPartitions))
			what = fmt.Sprintf("broker %d, a %s,", id, brokerRole)
			c.Brokers[id-1].Kill()
			l.everyPartition()
			c.restart(id)
			c.awaitISR("kills", 3)
		}
		victim.Rejoin(t)
		t.Logf("round %d: killed the ensemble's %s, and %s meanwhile", round, role, what)
	}
	c.awaitISR("kills", 3)
	l.stop()
	t.Logf("%d records acknowledged", l.count.Load())
}

// TestAClusterRestartsOneByOne stops (cleanly) and starts one broker after the other,
// twice, under the same load and under stock clients with the retries they come with:
// none of them is told of an error.
func TestAClusterRestartsOneByOne(t *testing.T) {
	c := startCluster(t, 3, "")
	l := startLoad(t, c)
	others := startStock(t, c)
	for range 2 {
		for id := 1; id <= 3; id++ {
			l.progress(1000)
			if err := c.Brokers[id-1].Stop(); err != nil {
				t.Fatal(err)
			}
			l.everyPartition()
			c.restart(id)
			c.awaitISR("kills", 3)
			c.awaitISR("stock", 3)
		}
	}
	others.stop()
	c.compareAtTheEnd("stock")
	l.stop()
	t.Logf("%d records acknowledged through 6 restarts", l.count.Load())
}

// stock is stock clients at work with default settings, each on a partition of its own.
type stock struct {
	t       *testing.T
	c       *liveCluster
	end     chan struct{}
	names   []string
	sent    []int // records that were acknowledged, by partition
	results chan error
}

func startStock(t *testing.T, c *liveCluster) *stock {
	s := &stock{t: t, c: c, end: make(chan struct{}), results: make(chan error, 3), names: []string{"sarama", "kcat", "kafka-go"}}
	s.sent = make([]int, len(s.names))
	c.create("stock", int32(len(s.names)))
	c.awaitISR("stock", 3)
	k, _ := exec.LookPath("kcat")
	for i, run := range []func(each func() []byte) error{s.sarama, func(each func() []byte) error { return s.kcat(k, each) }, s.kafkaGo} {
		pace := time.NewTicker(5 * time.Millisecond)
		t.Cleanup(pace.Stop)
		each := func() []byte {
			select {
			case <-s.end:
				return nil
			case <-pace.C:
				s.sent[i]++
				return fmt.Appendf(nil, "%s/%d", s.names[i], s.sent[i]-1)
			}
		}
		go func() {
			if err := run(each); err != nil {
				s.results <- fmt.Errorf("%s, after %d records: %w", s.names[i], s.sent[i], err)
				return
			}
			s.results <- nil
		}()
	}
	return s
}

func (s *stock) sarama(each func() []byte) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Producer.RequiredAcks, cfg.Producer.Return.Successes = sarama.WaitForAll, true
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	p, err := sarama.NewSyncProducer(s.c.Addrs(), cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	for v := each(); v != nil; v = each() {
		if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: "stock", Partition: 0, Value: sarama.ByteEncoder(v)}); err != nil {
			return err
		}
	}
	return nil
}

// kcat gets its lines through a pipe; what it has read it must deliver before it ends well.
// Without -E it ends when each broker was away once and nothing made it connect again.
func (s *stock) kcat(path string, each func() []byte) error {
	if path == "" {
		return nil
	}
	cmd := exec.Command(path, "-P", "-E", "-b", s.c.Bootstrap(), "-t", "stock", "-p", "1", "-X", "acks=all", "-X", "linger.ms=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said := new(lockedBuffer)
	cmd.Stderr = said
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for v := each(); v != nil; v = each() {
		if _, err := in.Write(append(v, '\n')); err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
	}
	in.Close()
	err = cmd.Wait()
	if text := said.String(); err != nil || strings.Contains(text, "Delivery failed") {
		return fmt.Errorf("%w: %.2000s", cmp.Or(err, errors.New("records were given up")), text)
	}
	s.t.Logf("kcat said: %.2000s", said)
	return nil
}

func (s *stock) kafkaGo(each func() []byte) error {
	w := &kafka.Writer{Addr: kafka.TCP(s.c.Addrs()...), Topic: "stock", RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond,
		Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int { return 2 })}
	defer w.Close()
	for v := each(); v != nil; v = each() {
		if err := w.WriteMessages(context.Background(), kafka.Message{Value: v}); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the clients. Each record is there; a client that sends again without a sequence may have written it twice.
func (s *stock) stop() {
	s.t.Helper()
	close(s.end)
	for range s.names {
		if err := <-s.results; err != nil {
			s.t.Error(err)
		}
	}
	for p, n := range s.sent {
		there := map[string]bool{}
		all := readPartition(s.t, s.c, "stock", int32(p))
		for _, r := range all {
			there[string(r.Value)] = true
		}
		for i := range n {
			if v := fmt.Sprintf("%s/%d", s.names[p], i); !there[v] {
				s.t.Errorf("%s was acknowledged and is not there", v)
			}
		}
		s.t.Logf("%s: %d records, %d written", s.names[p], n, len(all))
	}
}

// find names the broker that has a role now.
func (c *liveCluster) find(role, topic string, partition int) int {
	c.t.Helper()
	id := 0
	c.await(1, "there is a "+role, func(m *kmsg.MetadataResponse) bool {
		id = int(m.ControllerID)
		if role == "controller" {
			return id > 0
		}
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if *t.Topic != topic || int(p.Partition) != partition {
					continue
				}
				others := slices.DeleteFunc(slices.Clone(p.Replicas), func(r int32) bool { return r == p.Leader })
				if id = int(p.Leader); role == "follower" {
					id = int(others[0])
				}
				return p.Leader > 0
			}
		}
		return false
	})
	return id
}

// restart starts a broker that was stopped or killed.
func (c *liveCluster) restart(id int) {
	c.t.Helper()
	if err := c.Brokers[id-1].Start(context.WithoutCancel(c.t.Context())); err != nil {
		c.t.Fatal(err)
	}
}

const loadPartitions = 6

// clusterLoad is a producer for each partition of topic kills, and a consumer of all.
type clusterLoad struct {
	t         *testing.T
	c         *liveCluster
	count     atomic.Int64
	producers []*killProducer
	each      []*atomic.Int64 // records that were acknowledged, by partition
	results   chan error
	end       chan struct{}
	cancel    func()
	seen      chan map[int32]map[int64]string
}

func startLoad(t *testing.T, c *liveCluster) *clusterLoad {
	c.create("kills", loadPartitions)
	ctx, cancel := context.WithCancel(t.Context())
	l := &clusterLoad{t: t, c: c, results: make(chan error, loadPartitions), end: make(chan struct{}), cancel: cancel, seen: make(chan map[int32]map[int64]string, 1)}
	for i := range int32(loadPartitions) {
		pace := time.NewTicker(time.Millisecond) // hours of it must fit into memory
		t.Cleanup(pace.Stop)
		p := &killProducer{name: string(rune('a' + i)), pace: pace.C}
		l.producers = append(l.producers, p)
		l.each = append(l.each, new(atomic.Int64))
		k := client(t, c, append(throughDeaths(50*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(1000), kgo.ProducerBatchMaxBytes(20_000),
			kgo.ProduceRequestTimeout(2*time.Second), kgo.RequestTimeoutOverhead(2*time.Second))...) // a paused broker never answers
		go func() { l.results <- p.run(ctx, k, i, l.end, l.each[i]) }()
	}
	consumer := client(t, c, append(throughDeaths(50*time.Millisecond), kgo.ConsumeTopics("kills"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	go func() { l.seen <- l.watch(ctx, consumer) }()
	// Nothing breaks before every producer has its id.
	l.everyPartition()
	return l
}

// watch notes what a consumer sees, until ctx ends.
func (l *clusterLoad) watch(ctx context.Context, c *kgo.Client) map[int32]map[int64]string {
	seen := map[int32]map[int64]string{}
	for i := range int32(loadPartitions) {
		seen[i] = map[int64]string{}
	}
	for {
		f := c.PollFetches(ctx)
		if ctx.Err() != nil {
			return seen
		}
		for _, e := range f.Errors() {
			l.t.Errorf("the consumer of partition %d: %v", e.Partition, e.Err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if before, twice := seen[r.Partition][r.Offset]; twice && before != string(r.Value) {
				l.t.Errorf("partition %d, offset %d: the consumer saw %s and then %s", r.Partition, r.Offset, before, r.Value)
			}
			seen[r.Partition][r.Offset] = string(r.Value)
		})
	}
}

func (l *clusterLoad) total() (n int64) {
	for _, e := range l.each {
		n += e.Load()
	}
	return n
}

// progress waits until n more records are acknowledged.
func (l *clusterLoad) progress(n int64) {
	l.t.Helper()
	target := l.total() + n
	l.until("more records are acknowledged", func() bool { return l.total() >= target })
}

// everyPartition waits until each partition has acknowledged something new.
func (l *clusterLoad) everyPartition() {
	l.t.Helper()
	var before []int64
	for _, e := range l.each {
		before = append(before, e.Load())
	}
	for i, e := range l.each {
		l.until(fmt.Sprintf("partition %d acknowledges", i), func() bool { return e.Load() > before[i]+100 })
	}
}

func (l *clusterLoad) until(what string, holds func() bool) {
	l.t.Helper()
	for limit := time.Now().Add(2 * patience); !holds(); time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-l.results: // before it was told to stop
			l.t.Fatalf("while waiting until %s: %v", what, err)
		default:
		}
		if time.Now().After(limit) {
			l.t.Fatalf("not within %v: %s", 2*patience, what)
		}
	}
}

// stop ends the load and judges it; when the test ends the replicas are compared.
func (l *clusterLoad) stop() {
	l.t.Helper()
	close(l.end)
	for range l.producers {
		select {
		case err := <-l.results:
			if err != nil {
				l.t.Fatal(err)
			}
		case <-time.After(2 * patience):
			l.t.Fatal("a producer still waits for acknowledgements")
		}
	}
	if err := checkKills(l.t, l.c, l.producers, loadPartitions, true); err != nil {
		l.t.Error(err)
	}
	l.cancel()
	seen := <-l.seen
	for p := range int32(loadPartitions) {
		for _, r := range readPartition(l.t, l.c, "kills", p) {
			if before, ok := seen[p][r.Offset]; ok && before != string(r.Value) {
				l.t.Errorf("partition %d, offset %d: a consumer saw %s, and now %s stands there", p, r.Offset, before, r.Value)
			}
			delete(seen[p], r.Offset)
		}
		for offset, value := range seen[p] {
			if value != "the end" {
				l.t.Errorf("partition %d: a consumer saw %s at offset %d, where nothing stands now", p, value, offset)
			}
		}
	}
	l.count.Store(l.total())
	l.c.compareAtTheEnd("kills")
}
