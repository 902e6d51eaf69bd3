package broker

import (
	"slices"

	"github.com/tidemark-log/tidemark/storage"
)

// Status is what a broker knows of itself, for metrics and tests.
type Status struct {
	Running        bool
	ClusterID      string
	Partitions     []PartitionStatus // by topic and number
	OfflineDirs    []string
	FetchesWaiting int
	Requests       []RequestCount // by API key; those that came at least once
	BlockCache     storage.BlockCacheStats
}

// PartitionStatus is one partition's. Offline partitions have offsets of -1.
type PartitionStatus struct {
	Topic          string
	Partition      int32
	Dir            string
	Offline        bool
	LogStartOffset int64
	HighWatermark  int64 // up to where consumers may read
	LogEndOffset   int64
	FlushedOffset  int64
	Size           int64 // bytes on disk

	// In a replicated cluster. Leader is noBroker while none is known, and LeaderEpoch -1.
	Leading     bool
	Leader      int32
	LeaderEpoch int32
	ISR         []int32
	ProposedISR []int32 // by this leader, and not answered yet; nil: no change is under way
}

// RequestCount is how many requests of a kind came.
type RequestCount struct {
	Key   int16
	Count int64
}

// Status reads each partition under its lock, one after the other: it is no snapshot of them all.
func (b *Broker) Status() Status {
	m := b.meta.Load()
	s := Status{Running: b.state.Load() == stateRunning, ClusterID: m.clusterID, FetchesWaiting: b.waits.waitingNow()}
	for _, t := range m.sorted {
		for _, p := range t.partitions {
			if p != nil {
				s.Partitions = append(s.Partitions, p.status())
			}
		}
	}
	for _, d := range b.dirs {
		if d.isOffline() {
			s.OfflineDirs = append(s.OfflineDirs, d.path)
		}
	}
	if b.cache != nil {
		s.BlockCache = b.cache.Stats()
	}
	for key := range b.requests {
		if n := b.requests[key].Load(); n > 0 {
			s.Requests = append(s.Requests, RequestCount{int16(key), n})
		}
	}
	return s
}

func (p *partition) status() PartitionStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PartitionStatus{Topic: p.topic, Partition: p.index, Dir: p.dir.path, LogStartOffset: -1, HighWatermark: -1, LogEndOffset: -1, FlushedOffset: -1}
	if p.usable() != nil {
		s.Offline = true
		return s
	}
	s.LogStartOffset, s.HighWatermark, s.LogEndOffset = p.log.LogStartOffset(), p.committed(), p.log.LogEndOffset()
	s.Leading, s.Leader, s.LeaderEpoch = true, p.b.static.BrokerID, p.epoch
	if q := p.repl; q != nil {
		s.Leading, s.Leader, s.ISR = q.leader.Leading(), q.leaderID, slices.Clone(q.isr)
		s.ProposedISR = slices.Clone(q.leader.ProposedISR())
	}
	s.FlushedOffset, s.Size = p.log.FlushedOffset(), p.log.Size()
	return s
}
