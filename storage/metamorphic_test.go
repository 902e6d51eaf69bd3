package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/internal/need"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// More seeds: go test ./storage -run OneHistory -metamorphic.from 100 -metamorphic.seeds 50
var (
	metamorphicFrom  = flag.Uint64("metamorphic.from", 1, "first seed of the metamorphic test")
	metamorphicSeeds = flag.Uint64("metamorphic.seeds", 3, "seeds of the metamorphic test")
)

// TestEnginesTellOneHistory drives one list of operations through every valid
// engine, cache and offset scheme. What they answer must be the same, once byte
// offsets are translated into ordinals, and must be what was appended.
func TestEnginesTellOneHistory(t *testing.T) {
	for seed := *metamorphicFrom; seed < *metamorphicFrom+*metamorphicSeeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			ops := generateOps(seed, 200)
			var first *run
			for _, c := range storageCombinations() {
				r := newRun(t, c)
				if err := r.all(ops); err != nil {
					t.Fatalf("seed %d, %s: %v", seed, c, err)
				}
				if first == nil {
					first = r
				} else if diff := difference(first.history, r.history, ops); diff != "" {
					t.Fatalf("seed %d: %s and %s tell different histories\n%s", seed, first.combination, c, diff)
				}
			}
		})
	}
}

// storageCombinations is the valid ones, without the transfers, of which storage knows nothing.
func storageCombinations() []Combination {
	return slices.CompactFunc(ValidCombinations(false), func(a, b Combination) bool {
		a.Transfer, b.Transfer = "", ""
		return a == b
	})
}

// TestMetamorphicTestBites plants faults in one engine: each must show.
func TestMetamorphicTestBites(t *testing.T) {
	for name, plant := range map[string]func(Log) Log{
		"log start one further":               func(l Log) Log { return startOneFurther{l} },
		"timestamp found one record late":     func(l Log) Log { return timestampLate{l} },
		"a read skips a batch":                func(l Log) Log { return skipsBatch{l} },
		"a truncation cuts a batch less":      func(l Log) Log { return cutsLess{l} },
		"a leader's batches are stamped anew": func(l Log) Log { return stampsReplicas{l} },
		"a log is begun anew one further":     func(l Log) Log { return begunFurther{l} },
		"an epoch without a batch stays":      func(l Log) Log { return &keepsBegun{Log: l, epoch: -1} },
		"a resend is written again":           func(l Log) Log { return &writesTwice{Log: l} },
		"a pinned region changes":             func(l Log) Log { return &unpinned{Log: l} },
		"a flush says too much of nothing":    func(l Log) Log { return flushesNothing{l} },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10) {
				ops := generateOps(seed, 150)
				good, bad := newRun(t, Combination{Engine: EngineLog, Cache: CachePage, Offsets: OffsetsLogical}), newRun(t, Combination{Engine: EngineLog, Cache: CachePage, Offsets: OffsetsLogical})
				bad.wrap = plant
				if err := good.all(ops); err != nil {
					t.Fatal(err)
				}
				if err := bad.all(ops); err != nil || difference(good.history, bad.history, ops) != "" {
					return
				}
			}
			t.Error("ten seeds did not show it")
		})
	}
}

type startOneFurther struct{ Log }

func (f startOneFurther) AdvanceLogStart(offset, limit int64) error {
	return f.Log.AdvanceLogStart(min(offset+1, limit), limit)
}

type timestampLate struct{ Log }

func (f timestampLate) OffsetForTimestamp(ts int64) (int64, int64, int32, bool, error) {
	o, at, epoch, ok, err := f.Log.OffsetForTimestamp(ts)
	if ok {
		o++
	}
	return o, at, epoch, ok, err
}

type skipsBatch struct{ Log }

func (f skipsBatch) Read(offset, limit int64, maxBytes int) (Region, error) {
	r, err := f.Log.Read(offset, limit, maxBytes)
	if err != nil || r.Len == 0 {
		return r, err
	}
	b, err := readRegion(&r)
	if h := record.ReadHeader(b); err == nil && h.Size() < r.Len {
		r.Pos += int64(h.Size())
		r.Len -= h.Size()
	}
	return r, err
}

type cutsLess struct{ Log }

func (f cutsLess) Truncate(offset int64) error {
	r, err := f.Log.Read(max(offset, f.LogStartOffset()), f.LogEndOffset(), 1)
	if err != nil || r.Len == 0 {
		return f.Log.Truncate(offset)
	}
	defer r.Release()
	b, err := readRegion(&r)
	if err != nil {
		return err
	}
	return f.Log.Truncate(record.ReadHeader(b).NextOffset())
}

type stampsReplicas struct{ Log }

func (f stampsReplicas) Append(b []byte, a AppendArgs) (Appended, error) {
	if a.Replica {
		if h := record.ReadHeader(b); h.Size() == len(b) {
			a.Replica = false
			a.LeaderEpoch++
		}
	}
	return f.Log.Append(b, a)
}

type begunFurther struct{ Log }

func (f begunFurther) TruncateFullyAndStartAt(offset int64) error {
	return f.Log.TruncateFullyAndStartAt(offset + 1)
}

type keepsBegun struct {
	Log
	epoch int32
}

func (f *keepsBegun) AssignEpoch(epoch int32, start int64) error {
	f.epoch = epoch
	return f.Log.AssignEpoch(epoch, start)
}

func (f *keepsBegun) LatestEpoch() int32 { return max(f.epoch, f.Log.LatestEpoch()) }

type writesTwice struct {
	Log
}

func (f *writesTwice) Append(b []byte, a AppendArgs) (Appended, error) {
	done, err := f.Log.Append(b, a)
	if done.Duplicate {
		a.Replica = true
		record.SetBaseOffset(b, f.LogEndOffset())
		return f.Log.Append(b, a)
	}
	return done, err
}

type unpinned struct {
	Log
	last []byte
}

func (f *unpinned) Read(offset, limit int64, maxBytes int) (Region, error) {
	r, err := f.Log.Read(offset, limit, maxBytes)
	if err != nil || r.Len == 0 {
		return r, err
	}
	b, err := readRegion(&r)
	f.last = b
	return Region{Len: len(b), Bytes: b}, err
}

func (f *unpinned) Append(b []byte, a AppendArgs) (Appended, error) {
	if f.last != nil {
		f.last[len(f.last)-1]++
	}
	return f.Log.Append(b, a)
}

type flushesNothing struct{ Log }

func (flushesNothing) BeginFlush() *Flush { return nil }

// difference shows where two histories part, with what came before.
func difference(a, b []string, ops []op) string {
	for i := range ops {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		var s strings.Builder
		for j := max(0, i-6); j < i; j++ {
			fmt.Fprintf(&s, "%4d %s\n       %s\n", j, ops[j], a[j])
		}
		fmt.Fprintf(&s, "%4d %s\n   one %s\n other %s\n", i, ops[i], x, y)
		return s.String()
	}
	return ""
}

// run is one combination's way through the operations.
type run struct {
	combination Combination
	world       *logWorld
	wrap        func(Log) Log
	log         Log
	placed      []placedBatch
	held        []heldRegion
	history     []string
}

// placedBatch says where a batch went in this run's own offsets.
type placedBatch struct {
	batchMeta
	offset, span int64
}

type heldRegion struct {
	region Region
	bytes  []byte
}

func newRun(t *testing.T, c Combination) *run {
	cfg := DefaultLogConfig()
	cfg.Engine, cfg.BTreeKey, cfg.Cache, cfg.Offsets = c.Engine, c.Key, c.Cache, c.Offsets
	cfg.CacheBytes = 4 * BlockSize
	cfg.SegmentBytes, cfg.SegmentMs, cfg.IndexIntervalBytes = 48<<10, 20_000, 500
	cfg.RetentionMs, cfg.RetentionBytes, cfg.FileDeleteDelayMs = 15_000, 150<<10, 1000
	return &run{combination: c, world: newLogWorld(t, cfg), wrap: func(l Log) Log { return l }}
}

// all performs the operations, one line of history each.
func (r *run) all(ops []op) error {
	if err := r.reopen(false, metamorphicStart); err != nil {
		return err
	}
	for i, o := range ops {
		line, err := r.perform(o)
		if err == nil {
			line += r.bounds()
			err = r.checkHeld()
		}
		if err != nil {
			return fmt.Errorf("operation %d, %s: %w", i, o, err)
		}
		r.history = append(r.history, line)
	}
	r.releaseAll()
	return r.world.close()
}

func (r *run) reopen(kill bool, now int64) error {
	r.releaseAll()
	l, err := r.world.reopen(kill, now)
	if err == nil {
		r.log = r.wrap(l)
	}
	return err
}

func (r *run) perform(o op) (string, error) {
	switch o := o.(type) {
	case opAppend:
		return r.append(o)
	case opReplica:
		return r.replica(o)
	case opAssign:
		return "", r.log.AssignEpoch(o.epoch, r.log.LogEndOffset())
	case opRestart:
		return r.restart(o)
	case opRead:
		return r.read(o)
	case opTimestamp:
		offset, ts, epoch, ok, err := r.log.OffsetForTimestamp(o.ts)
		if err != nil || !ok {
			return "none ", err
		}
		return fmt.Sprintf("record %d at %d of epoch %d ", r.ordinal(offset), ts, epoch), nil
	case opEpoch:
		if r.log.LogStartOffset() == r.log.LogEndOffset() {
			return "", nil // what an emptied log knows of its last epoch differs, and says nothing
		}
		found, end := r.log.EndOffsetForEpoch(o.epoch)
		if end >= 0 {
			end = r.ordinal(end)
		}
		return fmt.Sprintf("epoch %d ends at %d ", found, end), nil
	case opFlush:
		return r.flush()
	case opRelease:
		r.releaseAll()
		return "", nil
	case opRetain:
		return r.retain(o)
	case opTruncate:
		err := r.log.Truncate(r.offset(o.at))
		r.placed = slices.DeleteFunc(r.placed, func(p placedBatch) bool { return p.records > 0 && p.ordinal >= o.at })
		return "", err
	case opAdvanceStart:
		return "", r.log.AdvanceLogStart(r.offset(o.at), r.log.LogEndOffset())
	case opReopen:
		return "", r.reopen(o.kill, o.now)
	}
	panic(fmt.Sprintf("BUG: unknown operation %T", o))
}

func (r *run) bounds() string {
	start, end, epoch := r.log.LogStartOffset(), r.log.LogEndOffset(), r.log.LatestEpoch()
	if start == end {
		epoch = -1
	}
	return fmt.Sprintf("[%d, %d) epoch %d", r.ordinal(start), r.ordinal(end), epoch)
}

func (r *run) append(o opAppend) (string, error) {
	b := bytes.Clone(o.batches)
	done, err := r.log.Append(b, AppendArgs{LeaderEpoch: o.epoch, Now: o.now})
	var refused *ProtocolError
	if errors.As(err, &refused) && o.refused {
		return refused.Name + " ", nil
	}
	if err != nil {
		return "", err
	}
	if o.refused || done.Duplicate != o.duplicate {
		return "", fmt.Errorf("appended with duplicate=%v, where duplicate=%v refused=%v is right", done.Duplicate, o.duplicate, o.refused)
	}
	if !done.Duplicate {
		r.place(o.meta, done.BaseOffset)
	}
	return fmt.Sprintf("records %d up to %d, duplicate=%v time=%d ", r.ordinal(done.BaseOffset), r.ordinal(done.LastOffset+1), done.Duplicate, done.AppendTime), nil
}

func (r *run) place(batches []batchMeta, offset int64) {
	for _, m := range batches {
		p := placedBatch{m, offset, m.records}
		if r.combination.Offsets == OffsetsByte {
			p.span = int64(m.bytes)
		}
		r.placed = append(r.placed, p)
		offset += p.span
	}
}

// replica appends what a leader of this run's offsets would answer.
func (r *run) replica(o opReplica) (string, error) {
	b := bytes.Clone(o.batches)
	next := r.log.LogEndOffset()
	for rest := b; len(rest) > 0; {
		record.SetLeaderEpoch(rest, o.epoch)
		record.SetBaseOffset(rest, next)
		if r.combination.Offsets == OffsetsByte {
			record.SetByteOffsets(rest, next)
		}
		h := record.ReadHeader(rest)
		next = h.NextOffset()
		rest = rest[h.Size():]
	}
	if o.garbage {
		b[len(b)-1] ^= 1
	}
	sent := len(b)
	cut := bytes.Clone(o.cut)
	if len(cut) >= record.HeaderSize {
		record.SetLeaderEpoch(cut, o.epoch)
		record.SetBaseOffset(cut, next)
		if r.combination.Offsets == OffsetsByte {
			binary.BigEndian.PutUint32(cut[23:], uint32(record.ReadHeader(cut).Size()-1))
		}
	}
	first := r.log.LogEndOffset()
	done, err := r.log.Append(append(b, cut...), AppendArgs{LeaderEpoch: o.epoch, Now: o.now, Replica: true})
	if o.garbage {
		if !errors.As(err, new(*ReplicaError)) {
			return "", fmt.Errorf("garbage of a leader: %+v, %v", done, err)
		}
		return "refused ", nil
	}
	if err != nil {
		return "", err
	}
	if done.Bytes != sent || done.BaseOffset != first || done.LastOffset != next-1 {
		return "", fmt.Errorf("took %+v of %d bytes for [%d, %d)", done, sent, first, next)
	}
	r.place(o.meta, first)
	return fmt.Sprintf("records %d up to %d ", r.ordinal(first), r.ordinal(next)), nil
}

// restart leaves a batch of no records where the log begins, by which places are translated.
func (r *run) restart(o opRestart) (string, error) {
	at := r.offset(o.at)
	if err := r.log.TruncateFullyAndStartAt(at); err != nil {
		return "", err
	}
	if r.log.FlushedOffset() != at {
		return "", fmt.Errorf("an empty log is flushed up to %d", r.log.FlushedOffset())
	}
	r.placed = []placedBatch{{batchMeta{ordinal: o.at}, at, 0}}
	return "", nil
}

func (r *run) read(o opRead) (string, error) {
	var s strings.Builder
	at, limit := r.offset(o.at), r.offset(o.limit)
	for n := 0; n < o.batches; {
		region, err := r.log.Read(at, limit, o.maxBytes)
		if refused := (*ProtocolError)(nil); errors.As(err, &refused) {
			return s.String() + refused.Name + " ", nil
		}
		if err != nil {
			return "", err
		}
		if region.Len == 0 {
			break
		}
		b, err := readRegion(&region)
		if err != nil {
			return "", err
		}
		for h, batch := range record.Batches(b) {
			if n++; n > o.batches {
				break
			}
			if err := r.checkBatch(h, batch); err != nil {
				return "", err
			}
			fmt.Fprintf(&s, "%d+%d/e%d ", r.ordinal(h.BaseOffset), h.RecordCount, h.PartitionLeaderEpoch)
			at = h.NextOffset()
		}
		if o.hold && n >= o.batches && len(r.held) < 4 {
			r.held = append(r.held, heldRegion{region, b})
		} else {
			region.Release()
		}
	}
	return s.String(), nil
}

// checkBatch holds what was read against what was appended.
func (r *run) checkBatch(h record.Header, batch []byte) error {
	if _, err := record.Check(batch); err != nil {
		return fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
	}
	i := slices.IndexFunc(r.placed, func(p placedBatch) bool { return p.records > 0 && p.offset == h.BaseOffset })
	if i < 0 {
		return fmt.Errorf("batch at offset %d, where none was put", h.BaseOffset)
	}
	if p := r.placed[i]; p.payload != payloadSum(batch) || p.offset+p.span != h.NextOffset() {
		return fmt.Errorf("batch at offset %d is not the one that was appended", h.BaseOffset)
	}
	return nil
}

func (r *run) flush() (string, error) {
	if f := r.log.BeginFlush(); f != nil {
		err := f.Sync()
		r.log.EndFlush(f, err)
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("flushed up to %d ", r.ordinal(r.log.FlushedOffset())), nil
}

// retain checks that nothing goes which the policy keeps. How much of the rest
// goes depends on the engine, so the log start is made the same afterwards.
func (r *run) retain(o opRetain) (string, error) {
	before := r.ordinal(r.log.LogStartOffset())
	if _, err := r.log.Retain(o.now, r.offset(o.limit)); err != nil {
		return "", err
	}
	start := r.ordinal(r.log.LogStartOffset())
	if start > max(o.limit, before) {
		return "", fmt.Errorf("retention went up to %d", start)
	}
	var left int64
	for _, p := range r.placed {
		if p.ordinal >= start {
			left += int64(p.bytes)
		}
	}
	cfg := r.world.cfg
	for _, p := range r.placed {
		if p.ordinal >= before && p.ordinal < start && o.now-p.maxTime <= cfg.RetentionMs && left < cfg.RetentionBytes {
			return "", fmt.Errorf("retention took the batch at %d, %d ms old, and left %d bytes", p.ordinal, o.now-p.maxTime, left)
		}
	}
	if err := r.log.AdvanceLogStart(r.offset(o.limit), r.offset(o.limit)); err != nil {
		return "", err
	}
	return "", r.log.RemoveExpired(o.now)
}

// offset translates an ordinal. One past the end is past the end in any scheme.
func (r *run) offset(ordinal int64) int64 {
	if ordinal < 0 {
		return ordinal
	}
	if len(r.placed) > 0 && ordinal < r.placed[0].ordinal { // below where the log was begun anew
		return r.placed[0].offset + ordinal - r.placed[0].ordinal
	}
	for _, p := range r.placed {
		if ordinal >= p.ordinal && ordinal < p.ordinal+p.records {
			return p.offset + ordinal - p.ordinal
		}
	}
	if n := len(r.placed); n > 0 {
		last := r.placed[n-1]
		return last.offset + last.span + ordinal - last.ordinal - last.records
	}
	return ordinal
}

// ordinal translates an offset; -1000 - offset when it is none of a record's.
func (r *run) ordinal(offset int64) int64 {
	for _, p := range r.placed {
		if delta := offset - p.offset; delta >= 0 && delta < p.records {
			return p.ordinal + delta
		}
		if offset == p.offset+p.span {
			return p.ordinal + p.records
		}
	}
	if offset == 0 {
		return 0
	}
	return -1000 - offset
}

// checkHeld reads the pinned regions again: nothing may have changed them.
func (r *run) checkHeld() error {
	for i := range r.held {
		b, err := readRegion(&r.held[i].region)
		if err != nil {
			return fmt.Errorf("reading a pinned region again: %w", err)
		}
		if !bytes.Equal(b, r.held[i].bytes) {
			return errors.New("a pinned region changed")
		}
	}
	return nil
}

func (r *run) releaseAll() {
	for i := range r.held {
		r.held[i].region.Release()
	}
	r.held = nil
}

// readRegion copies a region's bytes.
func readRegion(r *Region) ([]byte, error) {
	if r.File == nil {
		return bytes.Clone(r.Bytes), nil
	}
	b := make([]byte, r.Len)
	return b, readFull(r.File, b, r.Pos)
}

// logWorld is the directory that one run's log lives in, on the real file system.
type logWorld struct {
	t    *testing.T
	cfg  LogConfig
	root string              // changes at each kill
	wrap func(vfs.FS) vfs.FS // nil: as it is
	dir  *Dir
}

func newLogWorld(t *testing.T, cfg LogConfig) *logWorld {
	w := &logWorld{t: t, cfg: cfg}
	w.root = w.tempDir()
	if cfg.Cache == CacheDirect {
		f, err := vfs.NewReal(w.root, nil).Open("probe", vfs.Create|vfs.Direct)
		if err != nil {
			need.Skip(t, "o_direct", err.Error())
		}
		f.Close()
	}
	return w
}

// tempDir lies in memory where it can: nothing here needs a disk but direct I/O.
func (w *logWorld) tempDir() string {
	if w.cfg.Cache == CacheDirect {
		return w.t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "tidemark-test-")
	if err != nil {
		return w.t.TempDir()
	}
	w.t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// reopen ends the process that has the log open, by a clean shutdown or a kill,
// and starts the next one. A kill leaves the files as they are at that moment:
// the next process gets a copy of them, and the old one's closing changes only the original.
func (w *logWorld) reopen(kill bool, now int64) (Log, error) {
	if w.dir != nil {
		old := w.root
		if kill {
			// Kafka makes a log start without deleted segments survive with the next checkpoint only.
			if err := w.dir.Checkpoint(nil); err != nil {
				return nil, err
			}
			w.root = w.tempDir()
			if err := os.CopyFS(w.root, os.DirFS(old)); err != nil {
				return nil, err
			}
		}
		if err := w.dir.Close(!kill, -1); err != nil {
			return nil, err
		}
	}
	var err error
	fs := vfs.FS(lazyFS{vfs.NewReal(w.root, nil)})
	if w.wrap != nil {
		fs = w.wrap(fs)
	}
	if w.dir, err = OpenDir(fs, "logs", Identity{ClusterID: "metamorphic", BrokerID: 1}); err != nil {
		return nil, err
	}
	l, rep, err := w.dir.Open("orders", [16]byte{1}, 0, w.cfg, now)
	if err == nil && (rep.TruncatedBytes > 0 || len(rep.Damage) > 0) {
		err = fmt.Errorf("recovery found damage: %+v", rep)
	}
	return l, err
}

func (w *logWorld) close() error { return w.dir.Close(true, -1) }

// lazyFS makes nothing durable: the test kills processes and cuts no power, and would mostly wait.
type lazyFS struct{ *vfs.Real }

func (lazyFS) SyncDir(string) error { return nil }

func (f lazyFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	file, err := f.Real.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return lazyFile{file}, nil
}

type lazyFile struct{ vfs.File }

func (lazyFile) Sync() error { return nil }
