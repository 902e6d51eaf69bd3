package sim

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/sim/ghost"
)

// client is a process outside the brokers: it asks for metadata and finds leaders by it.
type client struct {
	process
	c   *Cluster
	end end
}

func newClient(c *Cluster) client {
	c.clients++
	if c.clients > clientsMax {
		panic("BUG: sim: more clients than the network has ends")
	}
	return client{c: c, end: end(len(c.nodes) + c.clients)}
}

// dial connects to a broker, unless nobody listens there or the network is cut.
func (cl *client) dial(n *node, lost func()) *conn {
	c := cl.c
	if n == nil || n.live == nil || !n.live.started || c.net.blocked(cl.end, n.end) || c.net.blocked(n.end, cl.end) {
		return nil
	}
	k := c.connect(n.live, lost)
	k.from, k.owner, k.timeout = cl.end, &cl.process, c.cfg.requestTimeout
	return k
}

// metadata asks any broker for the topic; done gets nil when there was no answer.
func (cl *client) metadata(done func(*kmsg.MetadataResponse)) {
	var k *conn
	over := false
	finish := func(r *kmsg.MetadataResponse) {
		if !over {
			over = true
			done(r)
			if k != nil {
				k.breakDown()
			}
		}
	}
	if k = cl.dial(pick(cl.c.rng, cl.c.nodes...), func() { finish(nil) }); k == nil {
		cl.c.after(&cl.process, cl.c.net.latency(cl.end, coordEnd), func() { finish(nil) })
		return
	}
	k.ask(metadataRequest(), 12, func(r kmsg.Response) { finish(r.(*kmsg.MetadataResponse)) })
}

func metadataRequest() *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(topicName)
	req.Topics = append(req.Topics, topic)
	return req
}

// lane is a client's way to the leader of one partition: a connection of its own,
// made anew when it breaks or the leader moves.
type lane struct {
	*client
	partition int32
	conn      *conn
	leader    int32
	epoch     int32 // of the leader, never an older one than was heard of (KIP-320)
	// anyReplica: a consumer that reads from followers too, and goes from one to another (KIP-392).
	anyReplica bool

	asking   bool
	failures int
	ready    func() // there is a connection
	lost     func() // there is none any more: what was in flight has an unknown outcome
}

// laneRetryMax is the longest pause of a client that finds no leader.
const laneRetryMax = 400 * time.Millisecond

// open finds the leader and connects to it; ready is called once that is so.
func (l *lane) open() {
	if l.conn != nil || l.asking {
		return
	}
	l.asking = true
	l.metadata(func(r *kmsg.MetadataResponse) {
		l.asking = false
		if l.take(r) {
			l.failures = 0
			l.ready()
			return
		}
		l.failures = min(l.failures+1, 5)
		l.c.after(&l.process, l.c.between(5*time.Millisecond, laneRetryMax>>(5-l.failures)), l.open)
	})
}

// take connects to the leader that an answer names.
func (l *lane) take(r *kmsg.MetadataResponse) bool {
	if r == nil || len(r.Topics) == 0 || int(l.partition) >= len(r.Topics[0].Partitions) {
		return false
	}
	for i := range r.Topics[0].Partitions {
		p := &r.Topics[0].Partitions[i]
		if p.Partition != l.partition {
			continue
		}
		if p.Leader < 1 || int(p.Leader) > len(l.c.nodes) || p.LeaderEpoch < l.epoch {
			return false
		}
		l.leader, l.epoch = p.Leader, p.LeaderEpoch
		if l.anyReplica && len(p.ISR) > 0 {
			l.leader = pick(l.c.rng, p.ISR...)
		}
		l.conn = l.dial(l.c.nodes[l.leader-1], l.broken)
		return l.conn != nil
	}
	return false
}

func (l *lane) broken() {
	l.conn = nil
	l.lost()
}

// again gives the connection up, so that the leader is looked for anew and everything
// in flight is sent again in order.
func (l *lane) again() {
	if l.conn != nil {
		l.conn.breakDown()
	}
}

// clusterRetriable are errors after which a client looks for the leader again.
func clusterRetriable(code int16) bool {
	switch code {
	case codeUnknownTopic, codeLeaderNotAvailable, codeNotLeader, 7, 8, 9, 13, codeCoordinatorNotReady, 19, 20, 41, codeStorageError, 74, 75, 76, 78, 100:
		return true
	}
	return false
}

// clusterAdmin makes the topic.
type clusterAdmin struct {
	client
	asked   bool
	created bool
}

func newClusterAdmin(c *Cluster) *clusterAdmin { return &clusterAdmin{client: newClient(c)} }

func (a *clusterAdmin) later() {
	a.c.after(&a.process, a.c.between(20*time.Millisecond, 300*time.Millisecond), a.begin)
}

// begin asks the controller to make the topic, until it is there.
func (a *clusterAdmin) begin() {
	if a.asked && a.c.tree.assigned != 0 { // by a try whose answer was lost
		a.created = true
		return
	}
	a.metadata(func(r *kmsg.MetadataResponse) {
		enough := int(a.c.cfg.replicas)
		if a.c.cfg.assignment != nil && !a.asked {
			enough = len(a.c.nodes)
		}
		if r == nil || len(r.Brokers) < enough || r.ControllerID < 1 || int(r.ControllerID) > len(a.c.nodes) {
			a.later()
			return
		}
		k := a.dial(a.c.nodes[r.ControllerID-1], a.later)
		if k == nil {
			a.later()
			return
		}
		a.create(k)
	})
}

func (a *clusterAdmin) create(k *conn) {
	a.asked = true
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 1000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = topicName, a.c.cfg.partitions, a.c.cfg.replicas
	if assigned := a.c.cfg.assignment; assigned != nil {
		topic.NumPartitions, topic.ReplicationFactor = -1, -1
		for i := range a.c.cfg.partitions {
			one := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			one.Partition, one.Replicas = i, assigned
			topic.ReplicaAssignment = append(topic.ReplicaAssignment, one)
		}
	}
	req.Topics = append(req.Topics, topic)
	k.ask(req, 5, func(r kmsg.Response) {
		code := r.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode
		switch {
		case code == 0 || code == codeTopicExists:
			a.created = true
			a.c.trace.say(a.c.now, "topic created")
			k.lost = func() {}
			k.breakDown()
		default:
			a.c.trace.say(a.c.now, "admin: CreateTopics answers %d", code)
			k.breakDown() // and later begins again
		}
	})
}

// askMetadata asks every broker at once what it knows of the topic.
func (c *Cluster) askMetadata() []ghost.Metadata {
	var all []ghost.Metadata
	for _, n := range c.nodes {
		req := metadataRequest()
		req.SetVersion(12)
		n.live.broker.Handle(broker.Request{Body: req, ClientID: "sim", Local: hostOf(n.id) + ":9092"}, func(a broker.Answer) {
			resp, ok := a.Body.(*kmsg.MetadataResponse)
			if !ok || len(resp.Topics) == 0 {
				return
			}
			for _, p := range resp.Topics[0].Partitions {
				all = append(all, ghost.Metadata{Broker: n.id, TP: tp(p.Partition), Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, ISR: p.ISR})
			}
		})
	}
	if want := len(c.nodes) * int(c.cfg.partitions); len(all) != want { // some do not know the topic
		all = append(all, ghost.Metadata{Broker: -1, TP: tp(0), Leader: -2})
	}
	return all
}
