package broker

import (
	"sync"

	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/record"
)

// In this file stand, until the real ones are wired: a log and a coordination store in memory.

func (b *Broker) newPartition(t *topic, index int32, cfg *Config) *partition {
	p := &partition{b: b, dir: b.dirs[0], topic: t.name, index: index, epoch: b.epoch, log: &memoryLog{}}
	p.cfg.Store(cfg)
	return p
}

func (p *partition) remove() {}

type memoryNode struct {
	data    []byte
	version int32
}

type memoryStore struct {
	mu    sync.Mutex
	nodes map[string]memoryNode
}

func (s *memoryStore) get(path string, done func([]byte, int32, error)) {
	s.mu.Lock()
	n, ok := s.nodes[path]
	s.mu.Unlock()
	if !ok {
		done(nil, 0, errNoNode)
		return
	}
	done(n.data, n.version, nil)
}

func (s *memoryStore) children(string, func([]string, error)) {}
func (s *memoryStore) close(done func(error))                 { done(nil) }

func (s *memoryStore) multi(ops []storeOp, done func(error)) {
	s.mu.Lock()
	err := s.apply(ops)
	s.mu.Unlock()
	done(err)
}

func (s *memoryStore) apply(ops []storeOp) error {
	for _, o := range ops {
		n, ok := s.nodes[o.path]
		switch {
		case o.kind == opCreate && ok:
			return errNodeExists
		case o.kind != opCreate && !ok:
			return errNoNode
		case o.kind != opCreate && o.version >= 0 && o.version != n.version:
			return errBadVersion
		}
	}
	for _, o := range ops {
		if o.kind == opDelete {
			delete(s.nodes, o.path)
			continue
		}
		s.nodes[o.path] = memoryNode{o.data, s.nodes[o.path].version + 1}
	}
	return nil
}

type memoryLog struct {
	bytes   []byte
	base    []int64
	at      []int64
	end     int64
	flushed int64
}

func (l *memoryLog) Append(b []byte, a storage.AppendArgs) (storage.Appended, error) {
	h := record.ReadHeader(b)
	record.SetBaseOffset(b, l.end)
	record.SetLeaderEpoch(b, a.LeaderEpoch)
	l.base, l.at = append(l.base, l.end), append(l.at, int64(len(l.bytes)))
	l.bytes = append(l.bytes, b...)
	base := l.end
	l.end += int64(h.LastOffsetDelta) + 1
	return storage.Appended{BaseOffset: base, LastOffset: l.end - 1, AppendTime: -1, Bytes: len(b)}, nil
}

func (l *memoryLog) Read(offset, limit int64, maxBytes int) (storage.Region, error) {
	i := len(l.base) - 1
	for i > 0 && l.base[i] > offset {
		i--
	}
	j := i + 1
	for j < len(l.at) && l.at[j]-l.at[i] < int64(maxBytes) && l.base[j] < limit {
		j++
	}
	to := int64(len(l.bytes))
	if j < len(l.at) {
		to = l.at[j]
	}
	b := l.bytes[l.at[i]:to]
	return storage.Region{Len: len(b), Bytes: b}, nil
}

func (l *memoryLog) OffsetForTimestamp(int64) (int64, int64, int32, bool, error) {
	return 0, 0, 0, false, nil
}
func (l *memoryLog) EndOffsetForEpoch(epoch int32) (int32, int64) { return epoch, l.end }
func (l *memoryLog) LogStartOffset() int64                        { return 0 }
func (l *memoryLog) LogEndOffset() int64                          { return l.end }
func (l *memoryLog) FlushedOffset() int64                         { return l.flushed }
func (l *memoryLog) Size() int64                                  { return int64(len(l.bytes)) }
func (l *memoryLog) BeginFlush() *storage.Flush                   { return &storage.Flush{UpTo: l.end} }
func (l *memoryLog) EndFlush(f *storage.Flush, err error)         { l.flushed = f.UpTo }
func (l *memoryLog) Truncate(int64) error                         { return nil }
func (l *memoryLog) AdvanceLogStart(int64) error                  { return nil }
func (l *memoryLog) Retain(int64, int64) ([]storage.DeletedSegment, error) {
	return nil, nil
}
func (l *memoryLog) RemoveExpired(int64) error   { return nil }
func (l *memoryLog) SetConfig(storage.LogConfig) {}
func (l *memoryLog) Close() error                { return nil }
