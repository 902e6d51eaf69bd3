package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/sim/ghost"
	"github.com/tidemark-log/tidemark/storage/record"
)

// clusterEnv is the env.Env of a broker in a cluster, and its Observer.
type clusterEnv struct {
	*incarnation
	c    *Cluster
	idle [][]*conn // by peer: connections to other brokers with nothing in flight
}

var (
	_ env.Env         = (*clusterEnv)(nil)
	_ broker.Observer = (*clusterEnv)(nil)
)

var (
	errSendTimeout = errors.New("no answer in time")
	errSendLost    = errors.New("connection lost")
	errSendRefused = errors.New("connection refused")
)

// Send asks another broker over a connection that carries nothing else meanwhile, so
// requests overtake each other.
func (e *clusterEnv) Send(to env.Peer, req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error)) {
	c := e.c
	ended := false
	finish := func(r kmsg.Response, err error) {
		if !ended {
			ended = true
			done(r, err)
			takeBack(r)
		}
	}
	n := c.nodeAt(to.Host)
	switch {
	case n == nil:
		c.after(&e.process, 0, func() { finish(nil, fmt.Errorf("no host %s", to.Host)) })
		return
	case c.net.blocked(e.end, n.end) || c.net.blocked(n.end, e.end):
		c.after(&e.process, timeout, func() { finish(nil, errSendTimeout) })
		return
	case n.live == nil || !n.live.started:
		c.after(&e.process, c.latency(), func() { finish(nil, errSendRefused) })
		return
	}
	c.pass(e.end, n.end, req.Key(), false, &e.process, func() { e.send(n, req, timeout, finish) }, func() { finish(nil, errSendLost) })
}

// takeBack spoils what a response lent: its records are the receiver's until done returns, as in a
// real broker, which reads the next answer into the same memory.
func takeBack(r kmsg.Response) {
	f, _ := r.(*kmsg.FetchResponse)
	if f == nil {
		return
	}
	for _, t := range f.Topics {
		for i := range t.Partitions {
			for k := range t.Partitions[i].RecordBatches {
				t.Partitions[i].RecordBatches[k] ^= 0xff
			}
		}
	}
}

// send is Send once nothing holds the request.
func (e *clusterEnv) send(n *node, req kmsg.Request, timeout time.Duration, finish func(kmsg.Response, error)) {
	c := e.c
	if n.live == nil || !n.live.started {
		finish(nil, errSendRefused)
		return
	}
	k := e.connTo(n)
	k.lost = func() { finish(nil, errSendLost) }
	timer := c.after(&e.process, timeout, func() {
		c.trace.probe("request timed out")
		finish(nil, errSendTimeout)
		k.breakDown()
	})
	k.ask(req, req.GetVersion(), func(r kmsg.Response) {
		c.stop(timer)
		e.idle[n.id-1] = append(e.idle[n.id-1], k)
		c.pass(n.end, e.end, req.Key(), true, &e.process, func() {
			c.witness(r)
			finish(r, nil)
		}, func() { finish(nil, errSendLost) })
	})
}

// connTo gives an idle connection to a broker, or a new one.
func (e *clusterEnv) connTo(n *node) *conn {
	if e.idle == nil {
		e.idle = make([][]*conn, len(e.c.nodes))
	}
	pool := &e.idle[n.id-1]
	for len(*pool) > 0 {
		k := (*pool)[len(*pool)-1]
		*pool = (*pool)[:len(*pool)-1]
		if !k.broken && k.to == n.live {
			return k
		}
	}
	k := e.c.connect(n.live, nil)
	k.from, k.owner = e.end, &e.process
	return k
}

func (c *Cluster) nodeAt(host string) *node {
	for _, n := range c.nodes {
		if hostOf(n.id) == host {
			return n
		}
	}
	return nil
}

// schedule is the loop's time for the coordination service: its own, or a process's.
type schedule struct {
	l     *loop
	owner *process
}

func (s schedule) Now() time.Duration              { return s.l.now }
func (s schedule) After(d time.Duration, f func()) { s.l.after(s.owner, d, f) }

// OpenCoord opens a session with the model of the coordination service.
func (e *clusterEnv) OpenCoord(timeout time.Duration, state func(coord.SessionState)) coord.Client {
	client := e.c.service.Open(schedule{&e.c.loop, &e.process}, hostOf(e.id), timeout, state)
	e.sessions = append(e.sessions, client)
	return &heldClient{client, e}
}

// What the broker does with its partitions goes to the ghost.

func (e *clusterEnv) LogOpened(topic string, partition int32, at broker.LogBounds) {
	found := entriesOnDisk(e.node.disk, topic, partition)
	e.c.ghost.LogOpened(e.id, ghost.TP{Topic: topic, Partition: partition}, bounds(at), found)
	e.say("%s-%d opened: [%d, %d), high watermark %d", topic, partition, at.LogStartOffset, at.LogEndOffset, at.HighWatermark)
}

func bounds(b broker.LogBounds) ghost.Bounds {
	return ghost.Bounds{Start: b.LogStartOffset, End: b.LogEndOffset, Flushed: b.FlushedOffset, HighWatermark: b.HighWatermark}
}

func (e *clusterEnv) LogAppended(topic string, partition int32, batches []byte, replica bool) {
	entries := ghost.Entries(batches)
	e.c.ghost.LogAppended(e.id, ghost.TP{Topic: topic, Partition: partition}, entries, replica)
	if n := len(entries); n > 0 {
		e.say("%s-%d appends [%d, %d) epoch %d, replica %v", topic, partition, entries[0].Base, entries[n-1].Next, entries[n-1].Epoch, replica)
	}
}

func (e *clusterEnv) LogChanged(topic string, partition int32, at broker.LogBounds) {
	e.c.ghost.LogChanged(e.id, ghost.TP{Topic: topic, Partition: partition}, bounds(at), e.Wall().UnixMilli())
	if at.LogStartOffset > 0 && e.c.cfg.rules.RetentionMs >= 0 {
		e.c.trace.probe("segments deleted by retention")
	}
	e.say("%s-%d is [%d, %d), flushed to %d", topic, partition, at.LogStartOffset, at.LogEndOffset, at.FlushedOffset)
}

func (e *clusterEnv) LogTruncates(topic string, partition int32, to int64) {
	e.c.ghost.LogTruncates(e.id, ghost.TP{Topic: topic, Partition: partition}, to)
}

func (e *clusterEnv) LogRemoves(topic string, partition int32) {
	e.c.ghost.LogRemoves(e.id, ghost.TP{Topic: topic, Partition: partition})
}

func (e *clusterEnv) LogRemoved(topic string, partition int32) {
	e.say("%s-%d is removed", topic, partition)
	e.c.ghost.LogRemoved(e.id, ghost.TP{Topic: topic, Partition: partition})
}

func (e *clusterEnv) HighWatermark(topic string, partition int32, to int64, counting []int32) {
	e.say("%s-%d high watermark %d, counting %v", topic, partition, to, ids(counting))
	e.c.ghost.HighWatermark(e.id, ghost.TP{Topic: topic, Partition: partition}, to, counting)
}

func (e *clusterEnv) BecameLeader(topic string, partition, leaderEpoch int32, isr []int32) {
	e.say("%s-%d leads in epoch %d, ISR %v", topic, partition, leaderEpoch, ids(isr))
	e.c.ghost.BecameLeader(e.id, ghost.TP{Topic: topic, Partition: partition}, leaderEpoch)
}

func (e *clusterEnv) BecameFollower(topic string, partition, leaderEpoch, leader int32) {
	e.say("%s-%d follows broker %d in epoch %d", topic, partition, leader, leaderEpoch)
	e.c.ghost.BecameFollower(e.id, ghost.TP{Topic: topic, Partition: partition}, leaderEpoch)
}

func (e *clusterEnv) ControllerElected(epoch int32) {
	e.say("is controller in epoch %d", epoch)
	e.c.trace.probe("controller elected")
	e.c.ghost.ControllerElected(e.id, epoch)
}

func (e *clusterEnv) CommandApplied(key int16, epoch int32) {
	e.c.ghost.CommandApplied(e.id, epoch)
}

// idList is a copy of ids that is put into words when somebody reads them.
type idList []int32

// ids keeps a slice that its owner will change.
func ids(of []int32) idList { return append(idList(nil), of...) }

// acks sees each answer that a broker gives, before it travels.
func (c *Cluster) acks(from *incarnation, req kmsg.Request, a *broker.Answer) {
	p, ok := req.(*kmsg.ProduceRequest)
	if !ok || a.Body == nil {
		return
	}
	resp := a.Body.(*kmsg.ProduceResponse)
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			part := &resp.Topics[i].Partitions[j]
			if part.ErrorCode != 0 {
				continue
			}
			sent := p.Topics[i].Partitions[j].Records
			id := ghost.IDOf(record.ReadHeader(sent), sent)
			c.ghost.AckLeaves(from.id, ghost.TP{Topic: resp.Topics[i].Topic, Partition: part.Partition}, p.Acks, part.BaseOffset, id)
		}
	}
}
