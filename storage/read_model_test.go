package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidemark-log/tidemark/internal/crc32c"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// More seeds: go test ./storage -run PlainList -readmodel.from 100 -readmodel.seeds 500
var (
	readModelFrom  = flag.Uint64("readmodel.from", 1, "first seed of the test of reads against a plain list")
	readModelSeeds = flag.Uint64("readmodel.seeds", 12, "seeds of the test of reads against a plain list")
)

// TestReadsAreThoseOfAPlainList holds each answer, to the byte, against a list of batches: where a
// region begins and how far it goes, at offsets and limits of every kind, and with
// what is remembered from the reads before. The metamorphic test compares what a reader that goes on comes to see.
func TestReadsAreThoseOfAPlainList(t *testing.T) {
	for _, c := range storageCombinations() {
		t.Run(fmt.Sprintf("%s-%s/%s/%s", c.Engine, c.Key, c.Cache, c.Offsets), func(t *testing.T) {
			for seed := *readModelFrom; seed < *readModelFrom+*readModelSeeds; seed++ {
				if err := newReadModel(t, seed, c).run(250); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

// TestReadsOfAPlainListBite plants faults in the reads: each must show.
func TestReadsOfAPlainListBite(t *testing.T) {
	for name, plant := range map[string]func(l *segmentLog, offset, limit int64, maxBytes int) (Region, error){
		"one byte more than allowed": func(l *segmentLog, offset, limit int64, maxBytes int) (Region, error) {
			return l.Read(offset, limit, min(maxBytes, math.MaxInt-1)+1)
		},
		"a limit that is one too high": func(l *segmentLog, offset, limit int64, maxBytes int) (Region, error) {
			return l.Read(offset, limit+1, maxBytes)
		},
		"a remembered place is off by a batch": func(l *segmentLog, offset, limit int64, maxBytes int) (Region, error) {
			r, err := l.Read(offset, limit, maxBytes)
			if r.File != nil && r.Len > 0 {
				h, _ := l.headerAt(l.segments[l.segmentAt(offset)], r.Pos)
				for i := range l.found.at {
					if p := &l.found.at[i]; p.s != nil && p.offset == h.NextOffset() {
						p.pos = r.Pos
					}
				}
			}
			return r, err
		},
		"places outlive a cut": func(l *segmentLog, offset, limit int64, maxBytes int) (Region, error) {
			r, err := l.Read(offset, limit, maxBytes)
			for i := range l.found.at {
				if p := &l.found.at[i]; p.s != nil && p.pos > 0 {
					p.offset++
				}
			}
			return r, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10) {
				m := newReadModel(t, seed, Combination{Engine: EngineLog, Cache: CachePage, Offsets: OffsetsLogical})
				m.read = func(offset, limit int64, maxBytes int) (Region, error) {
					return plant(m.log.(*segmentLog), offset, limit, maxBytes)
				}
				if m.run(250) != nil {
					return
				}
			}
			t.Error("ten seeds did not show it")
		})
	}
}

// readModel is a log and the list of batches that it holds.
type readModel struct {
	rng   *rand.Rand
	world *logWorld
	cfg   LogConfig
	log   Log
	read  func(offset, limit int64, maxBytes int) (Region, error)

	batches    []listedBatch // also some below start
	start, end int64
	epoch      int32
	now        int64
	goOn       []int64 // where earlier regions ended
	held       []heldRegion
	did        []string
}

type listedBatch struct {
	offset, next int64
	bytes        []byte
	times        []int64 // of each record
}

func newReadModel(t *testing.T, seed uint64, c Combination) *readModel {
	rng := rand.New(rand.NewPCG(seed, 99))
	cfg := DefaultLogConfig()
	cfg.Engine, cfg.BTreeKey, cfg.Cache, cfg.Offsets = c.Engine, c.Key, c.Cache, c.Offsets
	cfg.CacheBytes = BlockSize << rng.IntN(4)
	cfg.SegmentBytes = []int64{40_000, 70_000, 200_000, 1 << 20}[rng.IntN(4)]
	cfg.IndexIntervalBytes = []int64{0, 1, 300, 4096, 30_000}[rng.IntN(5)]
	cfg.Preallocate = rng.IntN(4) == 0
	cfg.RetentionMs, cfg.RetentionBytes, cfg.FileDeleteDelayMs = 1<<40, 100<<10, 1000
	m := &readModel{rng: rng, world: newLogWorld(t, cfg), cfg: cfg, now: metamorphicStart}
	m.read = func(offset, limit int64, maxBytes int) (Region, error) { return m.log.Read(offset, limit, maxBytes) }
	m.world.wrap = func(fs vfs.FS) vfs.FS {
		if seed%2 == 0 && c.Engine != EngineBTree {
			return vfs.WithDescriptorCache(fs, 3)
		}
		return fs
	}
	return m
}

func (m *readModel) run(steps int) error {
	if err := m.reopen(false); err != nil {
		return err
	}
	for i := range steps {
		m.now += m.rng.Int64N(50)
		err := m.step()
		if err == nil {
			err = m.bounds()
		}
		if err != nil {
			return fmt.Errorf("step %d: %w; the last steps: %q", i, err, m.did[max(0, len(m.did)-12):])
		}
	}
	for _, h := range m.held {
		if err := h.check(); err != nil {
			return err
		}
		h.region.Release()
	}
	m.held = nil
	return m.world.close()
}

func (m *readModel) say(format string, args ...any) {
	m.did = append(m.did, fmt.Sprintf(format, args...))
}

func (h *heldRegion) check() error {
	b, err := readRegion(&h.region)
	if err == nil && !bytes.Equal(b, h.bytes) {
		err = errors.New("a pinned region changed")
	}
	return err
}

func (m *readModel) step() error {
	switch k := m.rng.IntN(100); {
	case k < 20:
		return m.append()
	case k < 76:
		return m.readAny()
	case k < 82:
		return m.timestamp()
	case k < 84:
		m.say("flush")
		return flushNow(m.log)
	case k < 88:
		return m.truncate()
	case k < 90:
		at := m.start + m.rng.Int64N(m.end-m.start+1)/4
		m.say("log start %d", at)
		m.start = max(m.start, at)
		return m.log.AdvanceLogStart(at, m.end)
	case k < 92:
		m.say("retain")
		if _, err := m.log.Retain(m.now, m.end); err != nil {
			return err
		}
		m.start = m.log.LogStartOffset()
		return m.log.RemoveExpired(m.now)
	case k == 92:
		return m.restart()
	case k < 95:
		m.say("config")
		cfg := m.cfg
		cfg.IndexIntervalBytes = []int64{0, 200, 4096, 30_000}[m.rng.IntN(4)]
		cfg.SegmentBytes = []int64{40_000, 100_000, 1 << 20}[m.rng.IntN(3)]
		m.cfg = cfg
		m.log.SetConfig(cfg)
	case k < 97:
		for _, h := range m.held {
			if err := h.check(); err != nil {
				return err
			}
			h.region.Release()
		}
		m.say("release")
		m.held = nil
	default:
		return m.reopen(m.rng.IntN(2) == 0)
	}
	return nil
}

func (m *readModel) bounds() error {
	if s, e := m.log.LogStartOffset(), m.log.LogEndOffset(); s != m.start || e != m.end {
		return fmt.Errorf("the log is [%d, %d), the list [%d, %d)", s, e, m.start, m.end)
	}
	return nil
}

func (m *readModel) reopen(kill bool) error {
	m.say("reopen, kill=%v", kill)
	for _, h := range m.held {
		h.region.Release()
	}
	m.held = nil
	m.world.cfg = m.cfg
	l, err := m.world.reopen(kill, m.now)
	m.log = l
	return err
}

// batch builds a batch of random size; now and then its offsets go on behind its last record, as
// where a cleaner has been.
func (m *readModel) batch() listedBatch {
	var l listedBatch
	b := record.NewBuilder(0)
	size := []int{1, 100, 1000, 3000, 9000}[m.rng.IntN(5)]
	for range 1 + m.rng.IntN(4) {
		ts := m.now - m.rng.Int64N(100)
		l.times = append(l.times, ts)
		b.Append(ts, nil, randomBytes(m.rng, m.rng.IntN(size)))
	}
	l.bytes = b.Build(nil)
	if m.cfg.Offsets == OffsetsLogical && m.rng.IntN(5) == 0 {
		binary.BigEndian.PutUint32(l.bytes[23:], uint32(len(l.times)-1+m.rng.IntN(10)))
		binary.BigEndian.PutUint32(l.bytes[17:], crc32c.Checksum(l.bytes[21:]))
	}
	return l
}

func (m *readModel) append() error {
	replica := m.rng.IntN(2) == 0
	var b []byte
	at := m.end
	for range 1 + m.rng.IntN(4) {
		l := m.batch()
		record.SetLeaderEpoch(l.bytes, m.epoch)
		if m.cfg.Offsets == OffsetsByte {
			record.SetByteOffsets(l.bytes, at)
		} else {
			record.SetBaseOffset(l.bytes, at)
		}
		l.offset, l.next = at, record.ReadHeader(l.bytes).NextOffset()
		at = l.next
		b = append(b, l.bytes...)
		m.batches = append(m.batches, l)
	}
	m.say("append [%d, %d), %d bytes, replica=%v", m.end, at, len(b), replica)
	m.end = at
	_, err := m.log.Append(b, AppendArgs{LeaderEpoch: m.epoch, Now: m.now, Replica: replica})
	return err
}

// some is an offset from start to end: where a region ended, a batch begins, or any.
func (m *readModel) some() int64 {
	at := m.start + m.rng.Int64N(m.end-m.start+1)
	switch k := m.rng.IntN(8); {
	case k < 4 && len(m.goOn) > 0:
		at = m.goOn[m.rng.IntN(len(m.goOn))]
	case k < 6 && len(m.batches) > 0:
		b := m.batches[m.rng.IntN(len(m.batches))]
		at = []int64{b.offset, b.offset + int64(len(b.times)), b.next - 1}[m.rng.IntN(3)]
	case k == 7:
		at = m.end
	}
	return min(max(at, m.start), m.end)
}

func (m *readModel) readAny() error {
	offset, limit, most := m.some(), m.end, 1<<m.rng.IntN(19)
	switch m.rng.IntN(20) {
	case 0:
		offset = m.start - 1 - m.rng.Int64N(3)
	case 1:
		offset = m.end + 1 + m.rng.Int64N(3)
	}
	switch m.rng.IntN(6) {
	case 0, 1:
		limit = m.some()
	case 2:
		limit = math.MaxInt64
	}
	switch m.rng.IntN(6) {
	case 0:
		most = []int{0, -1, math.MaxInt, 1}[m.rng.IntN(4)]
	case 1, 2: // what some batches take, about
		most = m.rng.IntN(3) - 1
		from := m.rng.IntN(len(m.batches) + 1)
		if i := slices.IndexFunc(m.batches, func(b listedBatch) bool { return b.next > offset }); i >= 0 && m.rng.IntN(2) == 0 {
			from = i
		}
		for i := from; i < min(len(m.batches), from+1+m.rng.IntN(20)); i++ {
			most += len(m.batches[i].bytes)
		}
	}
	return m.readAt(offset, limit, most)
}

func (m *readModel) readAt(offset, limit int64, most int) error {
	m.say("read %d below %d, %d bytes", offset, limit, most)
	want, next, refused := m.answer(offset, limit, most)
	region, err := m.read(offset, limit, most)
	if refused || err != nil {
		if refused != (err == ErrOffsetOutOfRange) {
			return fmt.Errorf("refused=%v is right: %w", refused, err)
		}
		return nil
	}
	got, err := readRegion(&region)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		region.Release()
		return fmt.Errorf("got %s, want %s", listed(got), listed(want))
	}
	if len(got) > 0 {
		if m.goOn = append(m.goOn, next); len(m.goOn) > 12 {
			m.goOn = m.goOn[1:]
		}
	}
	if m.rng.IntN(10) == 0 && len(m.held) < 5 {
		m.held = append(m.held, heldRegion{region, got})
	} else {
		region.Release()
	}
	return nil
}

func listed(b []byte) string {
	s := fmt.Sprintf("%d bytes:", len(b))
	for h := range record.Batches(b) {
		s += fmt.Sprintf(" [%d, %d)", h.BaseOffset, h.NextOffset())
	}
	return s
}

// answer is what the list says to a read, by what Log.Read promises.
func (m *readModel) answer(offset, limit int64, most int) (b []byte, next int64, refused bool) {
	if offset < m.start || offset > m.end {
		return nil, 0, true
	}
	if limit = min(limit, m.end); offset >= limit {
		return nil, 0, false
	}
	i := slices.IndexFunc(m.batches, func(b listedBatch) bool { return b.next > offset })
	if m.cfg.Offsets == OffsetsByte && offset-m.batches[i].offset >= int64(len(m.batches[i].times)) {
		i++
	}
	end := int64(math.MaxInt64)
	for _, l := range m.batches[i:] {
		if l.next > limit || l.offset >= end || len(b) > 0 && len(b)+len(l.bytes) > most {
			break
		}
		if len(b) == 0 {
			end = m.segmentEnd(l.offset)
		}
		b, next = append(b, l.bytes...), l.next
	}
	return b, next, false
}

func (m *readModel) segmentEnd(offset int64) int64 {
	if l, ok := m.log.(*segmentLog); ok {
		return l.segmentEnd(l.segmentAt(offset))
	}
	return m.end
}

func (m *readModel) timestamp() error {
	ts := m.now - 100 + m.rng.Int64N(150)
	if n := len(m.batches); n > 0 {
		b := m.batches[m.rng.IntN(n)]
		ts = b.times[m.rng.IntN(len(b.times))] + m.rng.Int64N(3) - 1
	}
	m.say("timestamp %d", ts)
	offset, at, _, ok, err := m.log.OffsetForTimestamp(ts)
	if err != nil {
		return err
	}
	wantOffset, wantAt, wantOK := int64(-1), int64(-1), false
find:
	for _, b := range m.batches {
		for i, t := range b.times {
			if b.offset+int64(i) >= m.start && t >= ts {
				wantOffset, wantAt, wantOK = b.offset+int64(i), t, true
				break find
			}
		}
	}
	if offset != wantOffset || at != wantAt || ok != wantOK {
		return fmt.Errorf("offset %d at %d, %v; want %d at %d, %v", offset, at, ok, wantOffset, wantAt, wantOK)
	}
	return nil
}

func (m *readModel) truncate() error {
	at := max(m.some(), m.end-m.rng.Int64N(1+min(m.end-m.start, 60_000)))
	if m.rng.IntN(8) == 0 {
		at = m.some()
	}
	m.say("truncate %d", at)
	m.epoch++
	if at < m.end {
		if i := slices.IndexFunc(m.batches, func(b listedBatch) bool { return b.next > at }); i >= 0 {
			m.end = m.batches[i].offset
			m.batches = m.batches[:i]
		} else {
			m.end = at
		}
		m.start = min(m.start, m.end)
	}
	return m.log.Truncate(at)
}

func (m *readModel) restart() error {
	at := m.end + m.rng.Int64N(100)
	if m.rng.IntN(3) == 0 {
		at = m.some()
	}
	m.say("restart at %d", at)
	m.batches, m.start, m.end = nil, at, at
	return m.log.TruncateFullyAndStartAt(at)
}
