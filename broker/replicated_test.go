package broker_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/brokertest"
	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// cluster is some brokers in one virtual time, with the model of a coordination service.
type cluster struct {
	t     *testing.T
	loop  *brokertest.Loop
	model *coord.Model
	rng   *rand.Rand
	set   []string
	nodes map[int32]*clusterNode
	watch *notes // if not nil: sees what the brokers do that start from now on
}

type clusterNode struct {
	id      int32
	disk    *vfs.Sim
	env     *brokertest.Env
	broker  *broker.Broker
	client  *coord.ModelClient
	meddle  func(answered) (taken bool)
	swallow string // path of the next transaction that is lost on its way
	dead    bool
	full    bool // its disk has no room
	cut     bool // nobody reaches it, and it reaches nobody
	ready   bool
}

// scheduler is the loop as the model wants it, for one process.
type scheduler struct {
	loop *brokertest.Loop
	n    *clusterNode
}

func (s scheduler) Now() time.Duration { return s.loop.Now() }
func (s scheduler) After(d time.Duration, f func()) {
	s.loop.After(d, func() {
		if s.n == nil || !s.n.dead {
			f()
		}
	})
}

func newCluster(t *testing.T, brokers int, set ...string) *cluster {
	return newClusterOf(t, 7, brokers, set...)
}

// newClusterOf gives a cluster of another seed.
func newClusterOf(t *testing.T, seed uint64, brokers int, set ...string) *cluster {
	c := &cluster{t: t, loop: new(brokertest.Loop), rng: rand.New(rand.NewPCG(1, seed)), set: set, nodes: map[int32]*clusterNode{}}
	cfg := coord.DefaultModelConfig()
	c.model = coord.NewModel(scheduler{c.loop, nil}, c.rng, cfg)
	for id := range int32(brokers) {
		c.start(id+1, nil)
	}
	c.advance(5 * time.Second)
	for id, n := range c.nodes {
		if !n.ready {
			t.Fatalf("broker %d is not ready: %v", id, n.env.Reports)
		}
	}
	return c
}

func (c *cluster) start(id int32, disk *vfs.Sim) *clusterNode {
	n := &clusterNode{id: id, disk: disk}
	if disk == nil {
		n.disk = vfs.NewSim(nil)
	}
	n.env = brokertest.NewIn(c.loop, vfs.WithHook(n.disk, func(op vfs.Op) error {
		if n.full && op.Kind == vfs.OpWrite {
			return vfs.ErrNoSpace
		}
		return nil
	}), uint64(id)+uint64(c.loop.Now()))
	n.env.Boot = fmt.Sprint("boot ", n.disk.Boots())
	n.env.SendTo = func(to env.Peer, req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error)) {
		c.send(n, to.ID, req, timeout, done)
	}
	n.env.Coord = func(timeout time.Duration, state func(coord.SessionState)) coord.Client {
		n.client = c.model.Open(scheduler{c.loop, n}, fmt.Sprint(id), timeout, state)
		return meddled{n.client, n}
	}
	cfg, err := broker.ParseConfig(nil, append([]string{
		"log.dirs=/data", fmt.Sprintf("broker.id=%d", id), "zookeeper.connect=model", fmt.Sprintf("listeners=PLAINTEXT://b%d:9092", id),
		"zookeeper.session.timeout.ms=4000", "replica.lag.time.max.ms=2000", "default.replication.factor=3", "replica.fetch.wait.max.ms=100",
	}, c.set...))
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[id] = n
	var process env.Env = processEnv{n.env, n}
	if c.watch != nil {
		process = watchedProcess{processEnv{n.env, n}, c.watch}
	}
	n.broker = broker.New(process, cfg)
	n.broker.Start(func(err error) {
		if err != nil {
			c.t.Errorf("broker %d: %v", id, err)
			return
		}
		n.ready = true
	})
	return n
}

// processEnv drops what a dead process had to do.
type processEnv struct {
	*brokertest.Env
	n *clusterNode
}

// watchedProcess is a process whose broker is observed.
type watchedProcess struct {
	processEnv
	*notes
}

func (p processEnv) After(d time.Duration, f func()) func() bool {
	return p.Env.After(d, func() {
		if !p.n.dead {
			f()
		}
	})
}

func (p processEnv) Sync(s []vfs.Syncer, done func(error)) {
	p.Env.After(time.Millisecond, func() {
		if p.n.dead {
			return
		}
		for _, x := range s {
			if err := x.Sync(); err != nil {
				done(err)
				return
			}
		}
		done(nil)
	})
}

func (c *cluster) kill(id int32) {
	n := c.nodes[id]
	n.dead = true
	n.disk.Kill()
	n.client.Abandon()
}

func (c *cluster) advance(d time.Duration) { c.loop.Advance(d) }

var errUnreachable = errors.New("unreachable")

func (c *cluster) send(from *clusterNode, to int32, req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error)) {
	body := req.AppendTo(nil)
	ended := false
	finish := func(r kmsg.Response, err error) {
		if !ended && (from == nil || !from.dead) {
			ended = true
			done(r, err)
		}
	}
	c.loop.After(timeout, func() { finish(nil, errUnreachable) })
	c.loop.After(time.Millisecond, func() {
		n := c.nodes[to]
		if n == nil || n.dead || n.cut || from != nil && from.cut {
			return
		}
		again := kmsg.RequestForKey(req.Key())
		again.SetVersion(req.GetVersion())
		if err := again.ReadFrom(body); err != nil {
			c.t.Errorf("%T does not decode: %v", req, err)
			return
		}
		n.broker.Handle(broker.Request{Body: again, Local: "b:1"}, func(a broker.Answer) {
			answer := encodeAnswer(c.t, again, a)
			c.loop.After(time.Millisecond, func() {
				if n.cut || from != nil && from.cut || answer == nil {
					return
				}
				resp := req.ResponseKind()
				if err := resp.ReadFrom(answer); err != nil {
					c.t.Errorf("%T does not decode: %v", resp, err)
				}
				finish(resp, nil)
			})
		})
	})
}

func encodeAnswer(t *testing.T, req kmsg.Request, a broker.Answer) []byte {
	if a.Silent {
		return nil
	}
	if a.Fetch == nil {
		a.Body.SetVersion(req.GetVersion())
		return a.Body.AppendTo([]byte{})
	}
	defer a.Fetch.Release()
	var b []byte
	for i := range a.Fetch.Parts {
		p := &a.Fetch.Parts[i]
		b = append(b, p.Head...)
		if r := &p.Region; r.Bytes != nil {
			b = append(b, r.Bytes[:r.Len]...)
		} else if r.Len > 0 {
			data := make([]byte, r.Len)
			if _, err := r.File.ReadAt(data, r.Pos); err != nil {
				t.Errorf("region: %v", err)
			}
			b = append(b, data...)
		}
	}
	return append(b, a.Fetch.Tail...)
}

// ask sends a client's request to a broker and waits for the answer.
func (c *cluster) ask(to int32, req kmsg.Request, version int16, wait time.Duration) kmsg.Response {
	c.t.Helper()
	req.SetVersion(version)
	var got kmsg.Response
	c.send(nil, to, req, wait, func(r kmsg.Response, err error) { got = r })
	for end := c.loop.Now() + wait; got == nil && c.loop.Now() < end; {
		c.advance(time.Millisecond)
	}
	return got
}

func (c *cluster) create(topic string, partitions int32, factor int16) {
	c.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, partitions, factor
	req.Topics = append(req.Topics, t)
	r, _ := c.ask(c.anyone(), req, 7, 15*time.Second).(*kmsg.CreateTopicsResponse)
	if r == nil || r.Topics[0].ErrorCode != 0 {
		c.t.Fatalf("create %s: %+v", topic, r)
	}
}

func (c *cluster) anyone() int32 {
	for id := int32(1); ; id++ {
		if n := c.nodes[id]; n != nil && !n.dead && n.ready {
			return id
		}
	}
}

func (c *cluster) partition(topic string, index int32) kmsg.MetadataResponseTopicPartition {
	c.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	r, _ := c.ask(c.anyone(), req, 9, 5*time.Second).(*kmsg.MetadataResponse)
	if r == nil || len(r.Topics) != 1 || int(index) >= len(r.Topics[0].Partitions) {
		c.t.Fatalf("metadata: %+v", r)
	}
	return r.Topics[0].Partitions[index]
}

func (c *cluster) produce(topic string, index int32, acks int16, value string) int16 {
	c.t.Helper()
	build := record.NewBuilder(record.None)
	build.Append(brokertest.Start.UnixMilli(), nil, []byte(value))
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 5000
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = index, build.Build(nil)
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{part}}}
	r, _ := c.ask(c.partition(topic, index).Leader, req, 9, 10*time.Second).(*kmsg.ProduceResponse)
	if r == nil {
		return -100
	}
	return r.Topics[0].Partitions[0].ErrorCode
}

func (c *cluster) reports() string {
	var b strings.Builder
	for id := int32(1); int(id) <= len(c.nodes); id++ {
		for _, line := range c.nodes[id].env.Reports {
			fmt.Fprintf(&b, "%d: %s\n", id, line)
		}
	}
	return b.String()
}

func TestAReplicatedPartitionSurvivesItsLeader(t *testing.T) {
	c := newCluster(t, 3, "min.insync.replicas=2")
	c.create("t", 1, 3)
	c.advance(time.Second)
	p := c.partition("t", 0)
	if len(p.ISR) != 3 {
		t.Fatalf("partition: %+v\n%s", p, c.reports())
	}
	for i := range 5 {
		if code := c.produce("t", 0, -1, fmt.Sprint(i)); code != 0 {
			t.Fatalf("produce %d: code %d\n%s", i, code, c.reports())
		}
	}
	old := p.Leader
	c.kill(old)
	c.advance(12 * time.Second)
	p = c.partition("t", 0)
	if p.Leader == old || p.Leader < 0 || len(p.ISR) != 2 {
		t.Fatalf("after the kill: %+v\n%s", p, c.reports())
	}
	if code := c.produce("t", 0, -1, "after"); code != 0 {
		t.Fatalf("produce after the kill: code %d\n%s", code, c.reports())
	}
	c.start(old, c.nodes[old].disk)
	c.advance(12 * time.Second)
	p = c.partition("t", 0)
	if len(p.ISR) != 3 {
		t.Fatalf("after the return: %+v\n%s", p, c.reports())
	}
	for id, n := range c.nodes {
		s := n.broker.Status().Partitions
		if len(s) != 1 || s[0].LogEndOffset != 6 || s[0].HighWatermark != 6 {
			t.Errorf("broker %d: %+v", id, s)
		}
	}
	if t.Failed() {
		t.Log(c.reports())
	}
}

func (c *cluster) shutdown(id int32) {
	c.t.Helper()
	n := c.nodes[id]
	over := false
	n.broker.Shutdown(func(err error) {
		if err != nil {
			c.t.Errorf("shutdown of broker %d: %v", id, err)
		}
		over = true
	})
	for i := 0; i < 30_000 && !over; i++ {
		c.advance(time.Millisecond)
	}
	if !over {
		c.t.Fatalf("the shutdown of broker %d does not end\n%s", id, c.reports())
	}
	n.dead = true
	n.disk.Kill()
}

func (c *cluster) wantISR(topic string, index int32, n int) kmsg.MetadataResponseTopicPartition {
	c.t.Helper()
	p := c.partition(topic, index)
	for end := c.loop.Now() + 30*time.Second; len(p.ISR) != n && c.loop.Now() < end; p = c.partition(topic, index) {
		c.advance(100 * time.Millisecond)
	}
	if len(p.ISR) != n {
		c.t.Fatalf("%s-%d has the ISR %v, wanted %d in it\n%s", topic, index, p.ISR, n, c.reports())
	}
	return p
}

func TestAControlledShutdownMovesLeadershipBeforeTheBrokerStops(t *testing.T) {
	c := newCluster(t, 3, "min.insync.replicas=2")
	c.create("t", 6, 3)
	for i := range int32(6) {
		c.wantISR("t", i, 3)
	}
	c.shutdown(1)
	c.advance(200 * time.Millisecond)
	for i := range int32(6) {
		if p := c.wantISR("t", i, 2); p.Leader == 1 {
			t.Errorf("partition %d is still led by broker 1", i)
		}
		if code := c.produce("t", i, -1, "x"); code != 0 {
			t.Errorf("produce to %d: code %d", i, code)
		}
	}
	c.start(1, c.nodes[1].disk)
	for i := range int32(6) {
		c.wantISR("t", i, 3)
	}
}

func TestTheClusterSurvivesTheDeathOfAllItsBrokers(t *testing.T) {
	c := newCluster(t, 3, "min.insync.replicas=2")
	c.create("t", 2, 3)
	c.wantISR("t", 0, 3)
	for i := range 10 {
		if code := c.produce("t", int32(i%2), -1, fmt.Sprint(i)); code != 0 {
			t.Fatalf("produce: code %d", code)
		}
	}
	for id := range int32(3) {
		c.kill(id + 1)
	}
	c.advance(10 * time.Second)
	for id := range int32(3) {
		c.start(id+1, c.nodes[id+1].disk)
	}
	c.advance(15 * time.Second)
	for i := range int32(2) {
		c.wantISR("t", i, 3)
		if code := c.produce("t", i, -1, "after"); code != 0 {
			t.Errorf("produce to %d: code %d\n%s", i, code, c.reports())
		}
	}
}

func TestAcksAllIsRefusedBelowMinISR(t *testing.T) {
	c := newCluster(t, 3, "min.insync.replicas=2")
	c.create("t", 1, 3)
	leader := c.wantISR("t", 0, 3).Leader
	for id := range int32(3) {
		if id+1 != leader {
			c.kill(id + 1)
		}
	}
	c.advance(12 * time.Second)
	const notEnoughReplicas = 19
	if code := c.produce("t", 0, -1, "x"); code != notEnoughReplicas {
		t.Errorf("acks=all with one in-sync replica: code %d\n%s", code, c.reports())
	}
	if code := c.produce("t", 0, 1, "y"); code != 0 {
		t.Errorf("acks=1: code %d", code)
	}
}

func TestTopicsGrowAndGoInAReplicatedCluster(t *testing.T) {
	c := newCluster(t, 3)
	c.create("t", 1, 2)
	grow := kmsg.NewPtrCreatePartitionsRequest()
	gt := kmsg.NewCreatePartitionsRequestTopic()
	gt.Topic, gt.Count = "t", 4
	grow.Topics = append(grow.Topics, gt)
	if r, _ := c.ask(2, grow, 3, 20*time.Second).(*kmsg.CreatePartitionsResponse); r == nil || r.Topics[0].ErrorCode != 0 {
		t.Fatalf("grow: %+v\n%s", r, c.reports())
	}
	if p := c.partition("t", 3); len(p.Replicas) != 2 || p.Leader < 0 {
		t.Errorf("the new partition: %+v", p)
	}
	if code := c.produce("t", 3, -1, "x"); code != 0 {
		t.Errorf("produce: code %d", code)
	}
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.TopicNames, del.TimeoutMillis = []string{"t"}, 10_000
	if r, _ := c.ask(3, del, 5, 20*time.Second).(*kmsg.DeleteTopicsResponse); r == nil || r.Topics[0].ErrorCode != 0 {
		t.Fatalf("delete: %+v\n%s", r, c.reports())
	}
	c.advance(2 * time.Second)
	for id, n := range c.nodes {
		if s := n.broker.Status().Partitions; len(s) != 0 {
			t.Errorf("broker %d still has %v", id, s)
		}
	}
	c.create("t", 2, 3)
	c.wantISR("t", 1, 3)
}

func TestALeaderCutOffFromItsFollowersAcknowledgesNothing(t *testing.T) {
	c := newCluster(t, 3, "min.insync.replicas=2")
	c.create("t", 1, 3)
	old := c.wantISR("t", 0, 3).Leader
	c.nodes[old].cut = true
	c.model.Block(fmt.Sprint(old))
	build := record.NewBuilder(record.None)
	build.Append(brokertest.Start.UnixMilli(), nil, []byte("lost"))
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 60_000
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = build.Build(nil)
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{part}}}
	req.SetVersion(9)
	code := int16(-100)
	c.nodes[old].broker.Handle(broker.Request{Body: req}, func(a broker.Answer) {
		code = a.Body.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
	})
	c.advance(12 * time.Second)
	if code == 0 {
		t.Fatal("the leader that nobody reaches acknowledged acks=all")
	}
	c.nodes[old].ready = false // for anyone
	next := c.partition("t", 0)
	if next.Leader == old {
		t.Fatalf("no other leader: %+v\n%s", next, c.reports())
	}
	if code := c.produce("t", 0, -1, "kept"); code != 0 {
		t.Fatalf("produce to the new leader: code %d", code)
	}
	c.nodes[old].cut = false
	c.model.Unblock(fmt.Sprint(old))
	c.advance(15 * time.Second)
	c.wantISR("t", 0, 3)
	for id, n := range c.nodes {
		if s := n.broker.Status().Partitions; len(s) != 1 || s[0].LogEndOffset != 1 || s[0].HighWatermark != 1 {
			t.Errorf("broker %d: %+v\n%s", id, s, c.reports())
		}
	}
}

// Brokers that register while a controller still reads what there is are not overlooked.
func TestBrokersThatStartTogetherKnowEachOther(t *testing.T) {
	for seed := range uint64(30) {
		c := newClusterOf(t, seed, 3)
		for id := range int32(3) {
			r := c.ask(id+1, kmsg.NewPtrMetadataRequest(), 9, time.Second).(*kmsg.MetadataResponse)
			if len(r.Brokers) != 3 {
				t.Errorf("seed %d: broker %d knows %d brokers of 3", seed, id+1, len(r.Brokers))
			}
		}
	}
}

// A process that is killed on a machine that runs on has lost nothing: it keeps its place
// in the ELR. One whose machine lost its power has to get everything again.
func TestAKillLosesNoPlaceInTheELRAndAPowerCutDoes(t *testing.T) {
	for _, power := range []bool{false, true} {
		c := newCluster(t, 3, "min.insync.replicas=2")
		c.create("t", 1, 3)
		c.wantISR("t", 0, 3)
		for i := range 10 {
			if code := c.produce("t", 0, -1, fmt.Sprint(i)); code != 0 {
				t.Fatalf("produce: code %d", code)
			}
		}
		leader := c.partition("t", 0).Leader
		for id := range int32(3) {
			c.kill(id + 1)
		}
		if power {
			c.nodes[leader].disk.Crash(c.rng)
		}
		c.advance(15 * time.Second)
		elr := func() []int32 {
			data, _, err := c.model.Tree().Get(coord.PartitionStatePath("t", 0))
			if err != nil {
				t.Fatal(err)
			}
			state, err := coord.DecodePartitionState(data)
			if err != nil {
				t.Fatal(err)
			}
			return append(state.ISR, state.ELR...)
		}
		c.start(leader, c.nodes[leader].disk)
		c.advance(15 * time.Second)
		if kept := slices.Contains(elr(), leader); kept == power {
			t.Errorf("power cut %v: broker %d is eligible: %v, of %v\n%s", power, leader, kept, elr(), c.reports())
		}
		for id := range int32(3) {
			if id+1 != leader {
				c.start(id+1, c.nodes[id+1].disk)
			}
		}
		c.advance(15 * time.Second)
		c.wantISR("t", 0, 3)
		for id, n := range c.nodes {
			if s := n.broker.Status().Partitions; len(s) != 1 || s[0].LogEndOffset != 10 {
				t.Errorf("power cut %v: broker %d: %+v", power, id, s)
			}
		}
	}
}

// TestWhatWasAcknowledgedIsReadableAfterAllHaveDied: the checkpoints are older than the last records, so a broker that is started again
// does not know that those were synced. Nobody appends after that.
func TestWhatWasAcknowledgedIsReadableAfterAllHaveDied(t *testing.T) {
	for _, set := range []string{"log.flush.interval.messages=1", "lab.flush.group=on", "log.flush.interval.messages=1000"} {
		c := newCluster(t, 3, set)
		c.create("t", 1, 3)
		c.wantISR("t", 0, 3)
		if code := c.produce("t", 0, -1, "a"); code != 0 {
			t.Fatalf("%s: produce: code %d\n%s", set, code, c.reports())
		}
		for id := range int32(3) {
			c.kill(id + 1)
		}
		c.advance(10 * time.Second)
		for id := range int32(3) {
			c.start(id+1, c.nodes[id+1].disk)
		}
		c.advance(15 * time.Second)
		leader := c.wantISR("t", 0, 3).Leader
		if s := c.nodes[leader].broker.Status().Partitions[0]; s.HighWatermark != 1 {
			t.Errorf("%s: the high watermark is %d, and 1 record was acknowledged\n%s", set, s.HighWatermark, c.reports())
		}
	}
}

// TestAHighWatermarkIsNotBelowTheLogStart: where records were deleted after the last checkpoint of the high watermark, what that
// has is below where the log begins; here it has nothing. Who looks on must not hold a lower one for true than the broker goes by (L7).
func TestAHighWatermarkIsNotBelowTheLogStart(t *testing.T) {
	c := newCluster(t, 1)
	c.create("t", 1, 1)
	for range 3 {
		if code := c.produce("t", 0, 1, "a"); code != 0 {
			t.Fatalf("produce: code %d", code)
		}
	}
	del := kmsg.NewPtrDeleteRecordsRequest()
	del.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 2}}}}
	if r, _ := c.ask(1, del, 2, time.Second).(*kmsg.DeleteRecordsResponse); r == nil || r.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("delete records: %+v", r)
	}
	c.advance(2 * time.Minute) // the log start is written down
	c.kill(1)
	if err := c.nodes[1].disk.Remove("/data/replication-offset-checkpoint"); err != nil {
		t.Fatal(err)
	}
	c.watch = new(notes)
	c.start(1, c.nodes[1].disk)
	c.advance(15 * time.Second)
	if want := "opened t-0 2-3 hw 2"; len(c.watch.saw) == 0 || c.watch.saw[0] != want {
		t.Errorf("saw %q first, instead of %q", c.watch.saw, want)
	}
}

// TestASyncBeforeEachAckIsInForceWhereItIsAskedFor: a running topic is told to sync before it acknowledges. What was appended
// before becomes durable too, as the leader's high watermark counts no more than that; and what is acknowledged then
// is synced by every replica.
func TestASyncBeforeEachAckIsInForceWhereItIsAskedFor(t *testing.T) {
	c := newCluster(t, 3, "log.flush.interval.messages=1000")
	c.create("t", 1, 3)
	c.wantISR("t", 0, 3)
	produce := func(value string) {
		t.Helper()
		if code := c.produce("t", 0, -1, value); code != 0 {
			t.Fatalf("produce: code %d\n%s", code, c.reports())
		}
	}
	wantFlushed := func(want int64) {
		t.Helper()
		for id, n := range c.nodes {
			if s := n.broker.Status().Partitions[0]; s.FlushedOffset < want {
				t.Errorf("broker %d has synced up to %d, want %d\n%s", id, s.FlushedOffset, want, c.reports())
			}
		}
	}
	produce("a")
	if r, _ := c.ask(1, alterTopic("t", "flush.messages", "1"), 1, 15*time.Second).(*kmsg.IncrementalAlterConfigsResponse); r == nil || r.Resources[0].ErrorCode != 0 {
		t.Fatalf("alter: %+v\n%s", r, c.reports())
	}
	c.advance(10 * time.Second)
	wantFlushed(1)
	produce("b")
	wantFlushed(2)
}

// TestADeposedLeaderKnowsWhatWasCommitted: between the leader epoch that it read of, and the command that says what it is in it, its
// high watermark is the one that it led with, and not that of when it followed last: by that an emptied log would be cut.
func TestADeposedLeaderKnowsWhatWasCommitted(t *testing.T) {
	c := newCluster(t, 3, "min.insync.replicas=1", "replica.lag.time.max.ms=1000")
	c.create("t", 1, 3)
	old := c.wantISR("t", 0, 3).Leader
	for _, value := range []string{"one", "two"} {
		if code := c.produce("t", 0, -1, value); code != 0 {
			t.Fatalf("produce: code %d", code)
		}
	}
	for id, n := range c.nodes {
		n.cut, n.ready = id != old, id == old // nobody tells it anything
	}
	if code := c.produce("t", 0, 1, "others lag now"); code != 0 {
		t.Fatalf("produce: code %d", code)
	}
	next := stateOf(t, c, "t", 0)
	next.Leader, next.LeaderEpoch = old%3+1, next.LeaderEpoch+1
	other := c.model.Open(scheduler{c.loop, nil}, "other", 6*time.Second, func(coord.SessionState) {})
	c.advance(100 * time.Millisecond)
	other.Set(coord.PartitionStatePath("t", 0), next.Encode(), coord.AnyVersion, func(_ coord.Stat, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	for i := 0; ; i++ {
		c.advance(10 * time.Millisecond)
		s := c.nodes[old].broker.Status().Partitions
		if len(s) != 1 || s[0].HighWatermark != 2 {
			t.Fatalf("what the old leader knows to be committed: %+v\n%s", s, c.reports())
		}
		if !s[0].Leading {
			return
		}
		if i == 6000 {
			t.Fatalf("the old leader is not deposed: %+v\n%s", s, c.reports())
		}
	}
}
