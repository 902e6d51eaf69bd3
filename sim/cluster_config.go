package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/sim/ghost"
	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/record"
)

// clusterConfig is what a seed draws for a cluster before anything happens. Some faults
// are off in many seeds, and settings stand at their extremes in some.
type clusterConfig struct {
	brokers    int
	partitions int32
	replicas   int16
	broker     broker.Config
	rules      ghost.Rules
	coord      coord.ModelConfig
	producers  []producerConfig
	consumers  int
	oneRecord  bool            // in every batch
	readers    int             // beside the consumers: those that read from followers too
	endsAsked  int             // one in so many questions of a consumer is for the end offset
	assignment []int32         // of every partition; none: as the controller places it
	skews      []time.Duration // of each broker's wall clock
	drifts     []float64

	duration       time.Duration // of the part with faults
	requestTimeout time.Duration // of clients
	pollPause      time.Duration
	syncMax, slow  time.Duration
	latencyMax     time.Duration
	spikes         int
	spikeMax       time.Duration

	faults     clusterFaults
	weights    []int // of the kinds of faults, see kindsOf
	faultEvery time.Duration
	// lateMessage is which of lateMessages is late most often.
	lateMessage int
	reacts      bool // some faults wait for an election or a change of an ISR, and come right after it
	// quietEnd: nobody writes any more after the heal, so that what was acknowledged has to come to light by
	// itself. diesLast: all brokers are killed once more by then.
	quietEnd, diesLast bool
	// envelope is how many lossy faults are allowed: E0 none, E1 min.insync.replicas−1 that
	// are not re-replicated, E2 any number (the flush policy promises durability).
	envelope int
}

// clusterFaults says which there are at all.
type clusterFaults struct {
	kill, power, swap, stop, pause, partition, oneWay, slowLink, lostConns, expire, away, ioErrors, clockJump, bounce, move, reassign, late, together bool
}

func drawCluster(rng *rand.Rand, o Options) clusterConfig {
	c := clusterConfig{
		brokers:        max(o.Brokers, 1),
		partitions:     pick(rng, int32(1), 1, 2, 3),
		duration:       60 * time.Second,
		requestTimeout: pick(rng, 1500*time.Millisecond, 3*time.Second, 8*time.Second),
		pollPause:      pick(rng, 5*time.Millisecond, 50*time.Millisecond, 300*time.Millisecond),
		syncMax:        pick(rng, time.Millisecond, 10*time.Millisecond, 100*time.Millisecond),
		slow:           pick(rng, time.Millisecond, 10*time.Millisecond, 200*time.Millisecond),
		latencyMax:     pick(rng, time.Millisecond, 3*time.Millisecond, 30*time.Millisecond),
		spikes:         pick(rng, 0, 100, 20),
		spikeMax:       pick(rng, 50*time.Millisecond, time.Second),
		faultEvery:     pick(rng, 600*time.Millisecond, 2*time.Second, 4*time.Second, 8*time.Second),
		consumers:      1 + rng.IntN(2),
	}
	c.replicas = int16(min(c.brokers, pick(rng, 3, 3, 3, 2)))
	c.faults.drawKinds(rng)
	c.weights, c.lateMessage = drawWeights(rng), rng.IntN(len(lateMessages))
	c.reacts = rng.IntN(2) == 0
	for range c.brokers {
		c.skews = append(c.skews, time.Duration(rng.IntN(2000)-1000)*time.Millisecond)
		c.drifts = append(c.drifts, pick(rng, 0, 0, 0.0005, -0.0005, 0.01))
	}
	c.coord = coord.DefaultModelConfig()
	c.coord.Servers = pick(rng, 1, 3, 3)
	c.coord.Lag = pick(rng, time.Millisecond, 5*time.Millisecond, 200*time.Millisecond)
	for range 2 + rng.IntN(2) {
		c.producers = append(c.producers, drawClusterProducer(rng))
	}
	c.producers[0].acks, c.producers[0].retries = -1, true
	c.drawBroker(rng)
	if c.broker.ReadFrom == broker.ReadFollower {
		c.readers = 1 + rng.IntN(2)
	}
	c.endsAsked = pick(rng, 30, 5)
	c.broker.RulesOff = o.RulesOff
	if o.Retention {
		c.drawRetention(rng)
	}
	if o.Unclean {
		c.broker.UncleanElection, c.rules.Unclean = true, true
	}
	return c
}

// endStream tells the chances of how a run ends from those of everything else.
const endStream = 0x656e_6400_0000_0000

func (c *clusterConfig) drawEnd(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, endStream))
	c.quietEnd = rng.IntN(3) == 0
	c.diesLast = c.quietEnd && rng.IntN(2) == 0
}

// stampStream tells the chance of who sets timestamps from those of everything else.
const stampStream = 0x7374_616d_7000_0000

func (c *clusterConfig) drawStamps(seed uint64) {
	c.broker.Log.LogAppendTime = rand.New(rand.NewPCG(seed, stampStream)).IntN(4) == 0
}

// drawRetention lets clusters delete what is old or much, some of it before it is read (S20, S23).
func (c *clusterConfig) drawRetention(rng *rand.Rand) {
	l := &c.broker.Log
	for i := range c.producers { // a producer whose batches are gone is unknown to who follows anew, as in Kafka
		c.producers[i].idempotent = false
	}
	l.RetentionMs = pick(rng, int64(-1), 3000, 20_000)
	l.RetentionBytes = pick(rng, int64(-1), 64<<10, 16<<10)
	l.SegmentMs = pick(rng, int64(500), 5000, 7*24*3600*1000)
	c.broker.RetentionCheck = pick(rng, 300*time.Millisecond, 5*time.Second)
	c.rules.RetentionMs, c.rules.RetentionBytes = l.RetentionMs, l.RetentionBytes
}

func drawClusterProducer(rng *rand.Rand) producerConfig {
	p := drawProducer(rng)
	p.batches = 150 + rng.IntN(400)
	p.every = pick(rng, 20*time.Millisecond, 60*time.Millisecond, 100*time.Millisecond)
	p.rests = pick(rng, 0, 0, 10, 40)
	return p
}

func (c *clusterConfig) drawBroker(rng *rand.Rand) {
	b := broker.DefaultConfig()
	b.LogDirs = []string{logDir}
	b.ZooKeeperConnect = "coord:2181"
	b.Transfer = storage.TransferCopy
	b.AutoCreateTopics = false
	b.ReplicationFactor = c.replicas
	b.MinISR = min(int32(c.replicas), pick(rng, int32(2), 2, 2, 1))
	b.ZooKeeperSessionTimeout = pick(rng, 4*time.Second, 6*time.Second, 12*time.Second)
	b.ZooKeeperConnectTimeout = 24 * time.Hour // a start waits as long as it takes
	b.ReplicaLagMax = pick(rng, time.Second, 3*time.Second, 10*time.Second, 30*time.Second)
	b.ReplicaFetchWait = pick(rng, 20*time.Millisecond, 100*time.Millisecond, 500*time.Millisecond, 3*time.Second)
	slowest := b.ReplicaFetchWait + 500*time.Millisecond // of what a follower that is well may take between two fetches
	if c.spikes > 0 {
		slowest += 3 * c.spikeMax
	}
	b.ReplicaLagMax = max(b.ReplicaLagMax, slowest)
	b.ReplicaFetchBackoff = pick(rng, 20*time.Millisecond, 200*time.Millisecond)
	b.ReplicaFetchBytes = pick(rng, 1024, 8<<10, 1<<20)
	b.AutoRebalance = rng.IntN(2) == 0
	b.RebalanceCheck = pick(rng, 2*time.Second, 10*time.Second)
	b.ImbalancePercent = 0
	l := &b.Log
	l.SegmentBytes = pick(rng, int64(8<<10), 32<<10, 1<<20)
	l.IndexIntervalBytes = pick(rng, int64(0), 1000, 4096)
	l.FileDeleteDelayMs = pick(rng, int64(0), 1000)
	l.FlushMessages = pick(rng, none, none, none, 1)
	l.FlushMs = pick(rng, none, none, 200)
	b.FlushGroup = rng.IntN(5) == 0
	if b.FlushGroup || l.FlushMessages == 1 {
		// A follower syncs before it fetches again. With a batch or two a fetch it takes less than producers give, and
		// these send again what is not committed in time: nobody would ever be in sync.
		b.ReplicaFetchBytes = max(b.ReplicaFetchBytes, 8<<10)
	}
	b.CheckpointInterval = pick(rng, 300*time.Millisecond, 5*time.Second)
	b.StartCheckpoint = b.CheckpointInterval
	b.Validate = pick(rng, record.LevelBatch, record.LevelRecords)
	l.RetentionMs, l.RetentionBytes = -1, -1
	b.ReadFrom = pick(rng, broker.ReadLeader, broker.ReadLeader, broker.ReadFollower)
	c.broker = b
	c.rules = ghost.Rules{
		MinISR: int(b.MinISR), FlushBeforeAck: b.FlushGroup || l.FlushMessages == 1,
		RetentionMs: l.RetentionMs, RetentionBytes: l.RetentionBytes, Balanced: b.AutoRebalance,
	}
	c.envelope = envelopeOf(c.rules)
}

func (c *clusterConfig) String() string {
	b := &c.broker
	s := fmt.Sprintf("%d brokers, %d partitions × %d replicas, min ISR %d, lag max %v, session %v, fetch wait %v, flush every %s messages, group %v, segment %d B, checkpoint every %v, retention %d ms and %d B, append time %v, rebalance %v every %v; latency up to %v, 1 in %d up to %v; request timeout %v; %d consumers; envelope E%d; faults every %v:",
		c.brokers, c.partitions, c.replicas, b.MinISR, b.ReplicaLagMax, b.ZooKeeperSessionTimeout, b.ReplicaFetchWait, limit(b.Log.FlushMessages), b.FlushGroup, b.Log.SegmentBytes, b.CheckpointInterval, b.Log.RetentionMs, b.Log.RetentionBytes, b.Log.LogAppendTime, b.AutoRebalance, b.RebalanceCheck,
		c.latencyMax, c.spikes, c.spikeMax, c.requestTimeout, c.consumers, c.envelope, c.faultEvery)
	faults := c.faults
	for _, k := range kindsOf(&faults) {
		if *k.on && k.name != "kill soon" {
			s += " " + k.name
		}
	}
	s += fmt.Sprintf(" (reacts: %v)", c.reacts)
	if c.quietEnd {
		s += fmt.Sprintf("; nobody writes at the end (all die once more: %v)", c.diesLast)
	}
	for i, p := range c.producers {
		s += fmt.Sprintf("; producer %d: acks=%d idempotent=%v retries=%v in flight %d, %d batches", i, p.acks, p.idempotent, p.retries, p.inFlightMax, p.batches)
	}
	return s
}
