package broker

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/broker/replica"
)

// The versions that followers speak to their leaders.
const (
	replicaFetchVersion    = 16
	replicaEpochEndVersion = 4
)

const (
	// fetchPartitionsMax bounds the partitions of one request; the fetcher goes round, and then asks
	// without a pause. So it is more than one broker leads as a rule: a request of so many has about a megabyte.
	fetchPartitionsMax = 20_000
	// askTimeoutSlack is how much longer than its wait at the leader a fetch may take.
	askTimeoutSlack = 10 * time.Second
)

// fetchers has a fetcher for each broker that leads a partition which this one follows.
type fetchers struct {
	b        *Broker
	mu       sync.Mutex
	byLeader map[int32]*leaderFetcher
	stopped  bool
}

// leaderFetcher keeps one fetch, and beside it one question about epochs, in flight to
// one leader. Its lock is taken before a partition's.
type leaderFetcher struct {
	b      *Broker
	leader int32

	mu       sync.Mutex
	plan     *replica.Fetcher[*partition]
	asking   bool // a question about epochs is in flight
	fetching bool // a fetch is in flight
	stopped  bool
	stopWake func() bool
}

func comparePartitions(a, b *partition) int {
	return cmp.Or(strings.Compare(a.topic, b.topic), cmp.Compare(a.index, b.index))
}

// follow has p fetched from leader from now on, and from nobody else.
func (f *fetchers) follow(p *partition, leader int32) {
	f.mu.Lock()
	if f.stopped {
		f.mu.Unlock()
		return
	}
	for _, id := range sortedKeys(f.byLeader) {
		if id != leader {
			f.byLeader[id].remove(p)
		}
	}
	l := f.byLeader[leader]
	if l == nil {
		l = &leaderFetcher{b: f.b, leader: leader, plan: replica.NewFetcher(comparePartitions)}
		if f.byLeader == nil {
			f.byLeader = map[int32]*leaderFetcher{}
		}
		f.byLeader[leader] = l
	}
	f.mu.Unlock()
	l.mu.Lock()
	l.plan.Remove(p) // another incarnation of the same name
	l.plan.Add(p)
	l.mu.Unlock()
}

// forget stops fetching p.
func (f *fetchers) forget(p *partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range sortedKeys(f.byLeader) {
		f.byLeader[id].remove(p)
	}
}

// run lets every fetcher look what there is to ask.
func (f *fetchers) run() {
	f.mu.Lock()
	var all []*leaderFetcher
	for _, id := range sortedKeys(f.byLeader) {
		all = append(all, f.byLeader[id])
	}
	f.mu.Unlock()
	for _, l := range all {
		l.run()
	}
}

// wakeFor lets the fetcher of p's leader look what there is to ask.
func (f *fetchers) wakeFor(p *partition) {
	p.mu.Lock()
	leader := p.repl.leaderID
	p.mu.Unlock()
	f.mu.Lock()
	l := f.byLeader[leader]
	f.mu.Unlock()
	if l != nil {
		l.run()
	}
}

func (f *fetchers) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	for _, id := range sortedKeys(f.byLeader) {
		l := f.byLeader[id]
		l.mu.Lock()
		l.stopped = true
		if l.stopWake != nil {
			l.stopWake()
		}
		l.mu.Unlock()
	}
}

func (l *leaderFetcher) remove(p *partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.plan.Remove(p)
}

// run asks the leader what its partitions want to know, as far as nothing is in flight.
func (l *leaderFetcher) run() {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		return
	}
	flushing := false
	plan := l.plan.Plan(replica.Limits{Partitions: fetchPartitionsMax}, func(p *partition) replica.Ask {
		ask, waits := p.nextAsk(l.leader)
		flushing = flushing || waits
		return ask
	})
	var epochs, fetches []replica.Planned[*partition]
	if !l.asking {
		if epochs = append(epochs, plan.EpochEnds...); len(epochs) > 0 {
			l.asking = true
		}
	}
	if !l.fetching {
		if fetches = append(fetches, plan.Fetches...); len(fetches) > 0 {
			l.fetching = true
		}
	}
	flushes := append([]*partition(nil), plan.Flushes...)
	if l.stopWake != nil {
		l.stopWake()
		l.stopWake = nil
	}
	if plan.Wake > 0 {
		l.stopWake = l.b.env.After(max(plan.Wake-l.b.env.Now(), 0), l.run)
	}
	wait := l.b.cfg.Load().ReplicaFetchWait
	switch {
	case plan.LeftOut:
		wait = 0
	case flushing || len(flushes) > 0:
		wait = min(wait, fetchWaitWhileFlushing*time.Duration(1+len(fetches)/500)) // a fetch of many is dear
	}
	l.mu.Unlock()

	for _, p := range flushes {
		p.syncForFetch()
	}
	if len(epochs) > 0 {
		l.askEpochs(epochs)
	}
	if len(fetches) > 0 {
		l.fetch(fetches, wait)
	}
}

// to is where the leader listens; false while nobody has told.
func (l *leaderFetcher) to() (env.Peer, bool) { return l.b.peers.get(l.leader) }

// failed makes each of the partitions wait before it asks again.
func failed(asked []replica.Planned[*partition]) {
	for i := range asked {
		asked[i].Partition.askFailed()
	}
}

func (l *leaderFetcher) askEpochs(asked []replica.Planned[*partition]) {
	over := func() {
		l.mu.Lock()
		l.asking = false
		l.mu.Unlock()
		l.run()
	}
	to, known := l.to()
	if !known {
		failed(asked)
		l.b.env.After(0, over)
		return
	}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID = replicaEpochEndVersion, l.b.static.BrokerID
	for i := range asked {
		p := asked[i].Partition
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.topic {
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = p.topic
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		q := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		q.Partition, q.CurrentLeaderEpoch, q.LeaderEpoch = p.index, asked[i].Ask.LeaderEpoch, asked[i].Ask.EndOf
		t.Partitions = append(t.Partitions, q)
	}
	l.b.env.Send(to, req, askTimeoutSlack, func(resp kmsg.Response, err error) {
		answers := map[partitionName]*kmsg.OffsetForLeaderEpochResponseTopicPartition{}
		if r, ok := resp.(*kmsg.OffsetForLeaderEpochResponse); ok && err == nil {
			for i := range r.Topics {
				for j := range r.Topics[i].Partitions {
					a := &r.Topics[i].Partitions[j]
					answers[partitionName{r.Topics[i].Topic, a.Partition}] = a
				}
			}
		}
		for i := range asked {
			p := asked[i].Partition
			if a := answers[partitionName{p.topic, p.index}]; a != nil {
				p.epochEnd(asked[i].Ask, a)
			} else {
				p.askFailed()
			}
		}
		over()
	})
}

// fetchWaitWhileFlushing bounds how long the leader may hold a fetch back while partitions that are not in it wait for a
// sync: they are in the next one, and who waits for their acknowledgement with them.
const fetchWaitWhileFlushing = 5 * time.Millisecond

func (l *leaderFetcher) fetch(asked []replica.Planned[*partition], wait time.Duration) {
	over := func(last *partition) {
		l.mu.Lock()
		l.fetching = false
		if last != nil {
			l.plan.Filled(last)
		}
		l.mu.Unlock()
		l.run()
	}
	to, known := l.to()
	if !known {
		failed(asked)
		l.b.env.After(0, func() { over(nil) })
		return
	}
	req := l.fetchRequest(asked, wait)
	l.b.env.Send(to, req, time.Duration(req.MaxWaitMillis)*time.Millisecond+askTimeoutSlack, func(resp kmsg.Response, err error) {
		r, ok := resp.(*kmsg.FetchResponse)
		if err != nil || !ok || r.ErrorCode != codeNone {
			failed(asked)
			over(nil)
			return
		}
		over(l.fetched(asked, r))
	})
}

func (l *leaderFetcher) fetchRequest(asked []replica.Planned[*partition], wait time.Duration) *kmsg.FetchRequest {
	cfg := l.b.cfg.Load()
	req := kmsg.NewPtrFetchRequest()
	req.Version = replicaFetchVersion
	req.ReplicaID = -1
	req.ReplicaState.ID, req.ReplicaState.Epoch = l.b.static.BrokerID, l.b.member.registered.Load()
	req.MinBytes, req.MaxBytes = 1, int32(cfg.ReplicaFetchAnswerBytes)
	req.SessionID, req.SessionEpoch = 0, -1
	req.MaxWaitMillis = int32(wait.Milliseconds())
	for i := range asked {
		p, ask := asked[i].Partition, asked[i].Ask
		if n := len(req.Topics); n == 0 || req.Topics[n-1].TopicID != p.id {
			t := kmsg.NewFetchRequestTopic()
			t.TopicID = p.id
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		q := kmsg.NewFetchRequestTopicPartition()
		q.Partition, q.CurrentLeaderEpoch, q.FetchOffset, q.LastFetchedEpoch = p.index, ask.LeaderEpoch, ask.Offset, ask.LastFetched
		q.PartitionMaxBytes = int32(cfg.ReplicaFetchBytes)
		t.Partitions = append(t.Partitions, q)
	}
	return req
}

// fetched hands the answers to the partitions; it gives the last one that got records.
func (l *leaderFetcher) fetched(asked []replica.Planned[*partition], r *kmsg.FetchResponse) (last *partition) {
	type key struct {
		id    topicID
		index int32
	}
	answers := make(map[key]*kmsg.FetchResponseTopicPartition, len(asked))
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			a := &r.Topics[i].Partitions[j]
			answers[key{r.Topics[i].TopicID, a.Partition}] = a
		}
	}
	for i := range asked {
		p := asked[i].Partition
		a := answers[key{p.id, p.index}]
		if a == nil {
			p.askFailed()
			continue
		}
		if p.fetched(asked[i].Ask, a) {
			last = p
		}
	}
	return last
}

// peers knows where the other brokers listen.
type peers struct {
	mu   sync.Mutex
	byID map[int32]env.Peer
}

func (p *peers) get(id int32) (env.Peer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer, ok := p.byID[id]
	return peer, ok
}

func (p *peers) put(id int32, host string, port int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID == nil {
		p.byID = map[int32]env.Peer{}
	}
	p.byID[id] = env.Peer{ID: id, Host: strings.Clone(host), Port: port}
}
