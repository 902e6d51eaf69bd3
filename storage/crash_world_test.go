package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// crashScript goes through everything that changes files, several times where
// the order matters.
var crashScript = []string{
	"open", "append 2", "flush", "append 3", "idem 7", "checkpoint",
	"append 4", "begin", "append 2", "end", "idem 7", "epoch", "append 3", "flush", "read",
	"checkpoint", "append 3", "dup 7", "close", "open", "read", "append 2",
	"pin -3", "truncate -4", "append 2", "idem 8", "flush", "unpin", "remove", "append 3", "checkpoint",
	"truncate -2", "append 3", "idem 7", "epoch", "append 2", "flush", "checkpoint", "append 6", "flush",
	"pin 0", "retain 2500", "append 2", "flush", "unpin", "remove", "read",
	"append 2", "flush", "retain 1600", "checkpoint", "append 1", "flush", "checkpoint", "advance 20", "flush", "checkpoint",
	"append 5", "kill", "open", "read", "append 5", "flush", "checkpoint", "close", "open", "dup 7",
	"replica 3", "flush", "checkpoint", "replica 2", "assign", "append 1", "idem 7", "epoch", "truncate -2", "replica 3", "truncate 99", "kill", "open", "replica 2",
	"pin -2", "restart 7", "replica 3", "idem 7", "unpin", "remove", "checkpoint", "replica 2", "flush", "checkpoint", "restart -2", "replica 2", "flush", "checkpoint", "truncate -1", "replica 4",
	"restart 0", "assign", "append 1", "span", "replica 2", "checkpoint", "close", "open", "idem 7", "replica 2", "kill", "open", "restart 3", "restart 3", "replica 2", "flush",
	"restart 2", "idem 7", "begin", "restart 1", "replica 2", "end", "replica 1", "advance 9999", "checkpoint",
	"idem 8", "truncate 0", "append 4", "idem 9", "flush", "drop", "open", "append 3", "flush", "sweep", "checkpoint", "append 2", "close", "open", "read",
}

// modelBatch is one batch that was appended, stamped.
type modelBatch struct {
	base, next int64
	bytes      []byte
}

type modelProducer struct {
	next int32
	last []byte // as it was sent
	base int64
}

// crashWorld runs a script against a log on a simulated disk and keeps beside it
// what must be there.
type crashWorld struct {
	t    testing.TB
	disk *vfs.Sim
	fs   vfs.FS
	cfg  LogConfig
	rng  *rand.Rand // of the script, not of the crash

	d     *Dir
	l     *segmentLog
	now   int64
	epoch int32

	log       []modelBatch // all of this partition's batches since its first, also those below start
	start     int64
	flushed   int64
	producers map[int64]*modelProducer
	plant     plantedFault
	pending   *Flush
	finish    []func() error // of pending's steps
	pinned    []pinnedRegion

	// The operation under way, for a crash inside it.
	sending []byte // batches that Append was given
	cutTo   int64  // where Truncate cuts; -1: no truncation under way
	startTo int64
	dropped bool // a deletion or full truncation is under way: its old content, as much of it as may be, or nothing

	faulty      bool  // file operations fail: a clean shutdown may not be seen
	emptyAt     int64 // where the log may begin then, when there is nothing
	base        int64 // where the log began when it was last emptied
	watermark   int64 // no checkpoint since says more
	brokerEpoch int64
	closing     int64 // broker epoch of the clean shutdown that was begun last; -1: there were changes since
}

type pinnedRegion struct {
	region Region
	want   []byte
}

func newCrashWorld(t testing.TB, cfg LogConfig) *crashWorld {
	return &crashWorld{t: t, disk: vfs.NewSim(nil), cfg: cfg, rng: rand.New(rand.NewPCG(3, 4)), now: 1000, producers: map[int64]*modelProducer{}, cutTo: -1, closing: -1}
}

func (w *crashWorld) end() int64 {
	if n := len(w.log); n > 0 {
		return w.log[n-1].next
	}
	return w.base
}

// run goes through the script until an error.
func (w *crashWorld) run(script []string) error {
	for _, line := range script {
		w.now += 10
		if err := w.step(line); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	return nil
}

func (w *crashWorld) step(line string) error {
	name, arg, _ := strings.Cut(line, " ")
	n, _ := strconv.Atoi(arg)
	switch name {
	case "open":
		return w.open()
	case "append":
		for range n {
			s := batchSpec{records: 1 + w.rng.IntN(3), valueSize: 20 + w.rng.IntN(200), timestamp: w.now + int64(w.rng.IntN(40))}
			if _, err := w.append(s.build()); err != nil {
				return err
			}
		}
	case "idem":
		return w.idempotent(int64(n))
	case "dup":
		return w.duplicate(int64(n))
	case "epoch":
		w.epoch++
	case "flush", "begin", "end":
		return w.flush(name)
	case "checkpoint":
		before := w.watermark
		w.watermark = max(before, w.l.FlushedOffset())
		err := w.d.Checkpoint(func() []PartitionOffset { return []PartitionOffset{{"orders", 0, w.l.FlushedOffset()}} })
		if err == nil {
			w.watermark = w.l.FlushedOffset()
		}
		return err
	case "read":
		w.verifyReads()
	case "pin", "unpin":
		return w.pin(name, n)
	case "truncate":
		return w.keepingWatermark(func() error { return w.truncate(n) })
	case "replica":
		return w.replica(n, 0)
	case "span":
		return w.span()
	case "restart":
		return w.restart(n)
	case "assign":
		w.epoch++
		return w.l.AssignEpoch(w.epoch, w.end())
	case "retain":
		return w.retain(int64(n))
	case "advance":
		w.startTo = int64(n)
		if w.cfg.Offsets == OffsetsByte {
			w.startTo = w.log[min(n/3, len(w.log)-1)].base
		}
		w.startTo = min(w.startTo, w.end())
		err := w.l.AdvanceLogStart(w.startTo, w.end())
		if err == nil {
			w.start = max(w.start, w.startTo)
		}
		return err
	case "roll":
		return w.l.roll(w.now)
	case "remove":
		return w.l.RemoveExpired(w.now)
	case "sweep":
		return w.d.RemoveExpired(w.now)
	case "close":
		w.brokerEpoch++
		w.closing = w.brokerEpoch
		if err := w.d.Close(true, w.closing); err != nil {
			return err
		}
		w.flushed = w.end()
	case "kill":
		w.disk.Kill()
		w.d, w.l = nil, nil
	case "drop":
		w.dropped, w.emptyAt = true, 0
		if err := w.d.Delete("orders", 0, w.now); err != nil {
			return err
		}
		w.dropped = false
		w.log, w.start, w.flushed, w.epoch, w.l = nil, 0, 0, 0, nil
		w.base, w.watermark = 0, 0
		clear(w.producers)
	default:
		w.t.Fatalf("script: %q", line)
	}
	return nil
}

func (w *crashWorld) open() error {
	if w.l == nil && w.d != nil { // after drop: the directory is open
		return w.openLog()
	}
	d, err := OpenDir(w.fs, "data", Identity{ClusterID: "cluster", BrokerID: 1})
	if err != nil {
		return err
	}
	w.d = d
	if err := w.openLog(); err != nil {
		return err
	}
	if got := d.CleanEpoch(); got != w.closing && !(w.faulty && got == -1) {
		w.t.Errorf("opened after a clean shutdown of broker epoch %d, which was %d", got, w.closing)
	}
	w.closing = -1
	return nil
}

func (w *crashWorld) openLog() error {
	l, _, err := w.d.Open("orders", [16]byte{1}, 0, w.cfg, w.now)
	if err != nil {
		return err
	}
	w.l = l.(*segmentLog)
	return nil
}

func (w *crashWorld) append(b []byte) (Appended, error) {
	w.sending = b
	a, err := w.l.Append(b, AppendArgs{LeaderEpoch: w.epoch, Now: w.now})
	if err != nil || a.Duplicate {
		return a, err
	}
	w.take(b)
	return a, nil
}

// take adds the batches being sent to what must be there.
func (w *crashWorld) take(b []byte) {
	for h, batch := range record.Batches(b) {
		w.log = append(w.log, modelBatch{h.BaseOffset, h.NextOffset(), bytes.Clone(batch)})
	}
	w.sending = nil
}

// replica appends n batches as a leader of this epoch sends them, the last of
// them of producer 7, and the beginning of one more.
func (w *crashWorld) replica(n int, below int64) error {
	var sent []byte
	next := w.end() - below
	for i := range n + 1 {
		s := batchSpec{records: 2, valueSize: 20 + w.rng.IntN(200), timestamp: w.now + int64(w.rng.IntN(40))}
		p := w.producers[7]
		if i == n-1 {
			if p == nil {
				p = &modelProducer{}
				w.producers[7] = p
			}
			s.producer, s.sequence = 7, p.next
		}
		b := s.build()
		if i == n-1 {
			*p = modelProducer{next: p.next + 2, last: bytes.Clone(b), base: next}
		}
		record.SetLeaderEpoch(b, w.epoch)
		record.SetBaseOffset(b, next)
		if w.cfg.Offsets == OffsetsByte {
			record.SetByteOffsets(b, next)
		}
		next = record.ReadHeader(b).NextOffset()
		if i == n {
			b = b[:w.rng.IntN(len(b))]
		}
		sent = append(sent, b...)
	}
	w.sending = sent
	a, err := w.l.Append(sent, AppendArgs{LeaderEpoch: w.epoch, Now: w.now, Replica: true})
	if err != nil {
		return err
	}
	w.take(sent)
	if a.LastOffset+1 != w.end() {
		w.t.Errorf("a leader's batches end at %d, taken up to %d", w.end(), a.LastOffset+1)
	}
	return nil
}

// restart empties the log, to begin so many offsets above its end, or at one of its last batches.
func (w *crashWorld) restart(n int) error {
	to := w.end() + int64(n)
	if n < 0 {
		to = w.log[len(w.log)+n].base
	}
	w.startTo, w.dropped, w.emptyAt = max(w.startTo, to), true, to
	if err := w.l.TruncateFullyAndStartAt(to); err != nil {
		return err
	}
	w.emptied(to)
	w.dropped = false
	if w.l.LatestEpoch() != -1 || w.l.LogStartOffset() != to || w.l.LogEndOffset() != to {
		w.t.Errorf("begun anew at %d: [%d, %d), epoch %d", to, w.l.LogStartOffset(), w.l.LogEndOffset(), w.l.LatestEpoch())
	}
	return nil
}

func (w *crashWorld) emptied(at int64) {
	w.log, w.base, w.start, w.startTo, w.flushed, w.watermark = nil, at, at, at, at, min(w.watermark, at)
	clear(w.producers)
}

// keepingWatermark is a planted fault: the checkpoint of high watermarks is after f what it was before.
func (w *crashWorld) keepingWatermark(f func() error) error {
	name := w.d.file(highWatermarkFile)
	before, err := readFile(w.disk, name, 1<<20)
	if err2 := f(); w.plant != watermarkStays || err != nil || err2 != nil {
		return err2
	}
	return replaceFileDurably(w.disk, name, before)
}

// span begins the log inside a batch of its leader, and appends that.
func (w *crashWorld) span() error {
	if err := w.restart(20); err != nil {
		return err
	}
	start := w.end()
	w.dropped, w.emptyAt = true, start-1
	if err := w.replica(1, 1); err != nil {
		return err
	}
	w.dropped, w.flushed = false, w.log[0].base
	if w.l.LogStartOffset() != start {
		w.t.Errorf("the log begins at %d, its leader's at %d", w.l.LogStartOffset(), start)
	}
	return nil
}

func (w *crashWorld) idempotent(id int64) error {
	p := w.producers[id]
	if p == nil {
		p = &modelProducer{}
		w.producers[id] = p
	}
	s := batchSpec{records: 2, valueSize: 50, timestamp: w.now, producer: id, sequence: p.next}
	a, err := w.append(s.build())
	if err != nil {
		return err
	}
	if a.Duplicate {
		w.t.Errorf("a new batch of producer %d is taken for a resend: %+v", id, a)
	}
	*p = modelProducer{next: p.next + 2, last: s.build(), base: a.BaseOffset}
	return nil
}

func (w *crashWorld) duplicate(id int64) error {
	p := w.producers[id]
	a, err := w.append(bytes.Clone(p.last))
	if err == nil && (!a.Duplicate || a.BaseOffset != p.base) {
		w.t.Errorf("resend of producer %d: %+v, its batch is at %d", id, a, p.base)
	}
	return err
}

func (w *crashWorld) flush(name string) error {
	if name != "end" {
		w.pending, w.finish = w.l.BeginFlush(), nil
	}
	f := w.pending
	if f == nil {
		return nil
	}
	if name == "begin" { // what is appended from here on is not covered
		for _, s := range f.Steps {
			finish := s.Sync
			if b, ok := s.(vfs.BeginSyncer); ok {
				finish = b.BeginSync()
			}
			w.finish = append(w.finish, finish)
		}
		return nil
	}
	err := error(nil)
	for _, finish := range w.finish {
		err = errors.Join(err, finish())
	}
	if name == "flush" && w.plant != ackBeforeSync {
		err = f.Sync()
	}
	before := w.l.FlushedOffset()
	w.l.EndFlush(f, err)
	if err != nil {
		if got := w.l.FlushedOffset(); got != before {
			w.t.Errorf("flushed offset went from %d to %d by a failed flush", before, got)
		}
		return err
	}
	w.flushed = max(w.flushed, w.l.FlushedOffset())
	if name == "flush" && w.l.FlushedOffset() != w.end() {
		w.t.Errorf("flushed to %d, the log ends at %d", w.l.FlushedOffset(), w.end())
	}
	return nil
}

// pin reads a batch, the at-th from the log start or from the end, and holds the
// region; unpin looks at its bytes again.
func (w *crashWorld) pin(name string, at int) error {
	if name == "pin" {
		first := slices.IndexFunc(w.log, func(b modelBatch) bool { return b.base >= w.l.LogStartOffset() })
		if at < 0 {
			first = len(w.log)
		}
		b := w.log[first+at]
		r, err := w.l.Read(b.base, w.l.LogEndOffset(), 500)
		if err != nil {
			return err
		}
		want := bytes.Clone(r.Bytes)
		if r.File != nil {
			want = make([]byte, r.Len)
			if err := readFull(r.File, want, r.Pos); err != nil {
				r.Release()
				return err
			}
		}
		if w.plant == unpinnedRegion {
			r.Release()
			r.pin = nil
		}
		w.pinned = append(w.pinned, pinnedRegion{r, want})
		return nil
	}
	for _, p := range w.pinned {
		got := p.region.Bytes
		if p.region.File != nil {
			got = make([]byte, p.region.Len)
			if err := readFull(p.region.File, got, p.region.Pos); err != nil {
				if errors.Is(err, vfs.ErrInjected) {
					return err
				}
				w.t.Errorf("reading a live region: %v", err)
			}
		}
		if !bytes.Equal(got, p.want) {
			w.t.Errorf("the bytes of a live region changed")
		}
		p.region.Release()
	}
	w.pinned = nil
	return nil
}

// truncate cuts at the n-th batch, or from the end when n is negative.
func (w *crashWorld) truncate(n int) error {
	if n <= 0 && n != 0 {
		n = max(len(w.log)+n, 0)
	}
	for n < len(w.log) && n > 0 && w.log[n].base < w.l.LogStartOffset() {
		n++
	}
	if n >= len(w.log) {
		return w.l.Truncate(w.end()) // changes nothing but what is known of an epoch without a batch
	}
	w.cutTo = w.log[n].base
	if err := w.l.Truncate(w.cutTo); err != nil {
		return err
	}
	w.flushed = min(w.flushed, w.cutTo)
	w.start = min(w.start, w.cutTo)
	w.startTo = w.start
	w.watermark = min(w.watermark, w.cutTo)
	if n == 0 {
		w.base = w.cutTo
	}
	w.log, w.cutTo = w.log[:n], -1
	for _, id := range []int64{7, 8, 9} {
		w.recallProducer(id)
	}
	return nil
}

// recallProducer sets a producer to what the log holds of it, as a client that
// learns of a truncation would.
func (w *crashWorld) recallProducer(id int64) {
	delete(w.producers, id)
	for _, b := range w.log {
		if h := record.ReadHeader(b.bytes); h.ProducerID == id {
			s := batchSpec{records: 2, valueSize: 50, timestamp: h.BaseTimestamp, producer: id, sequence: h.BaseSequence}
			w.producers[id] = &modelProducer{next: h.BaseSequence + 2, last: s.build(), base: h.BaseOffset}
		}
	}
}

func (w *crashWorld) retain(keep int64) error {
	cfg := w.cfg
	cfg.RetentionBytes = keep
	w.l.SetConfig(cfg)
	defer w.l.SetConfig(w.cfg)
	w.startTo = w.end()
	_, err := w.l.Retain(w.now, w.l.LogEndOffset())
	if err == nil {
		w.start = w.l.LogStartOffset()
	}
	return err
}

// verifyReads reads all that is there, by every offset (some, under byte
// offsets) and by every timestamp.
func (w *crashWorld) verifyReads() {
	w.t.Helper()
	present := w.log
	for len(present) > 0 && present[0].next <= w.l.LogStartOffset() {
		present = present[1:]
	}
	for i, b := range present {
		for _, o := range []int64{b.base, b.base + 1, b.next - 1} {
			want := b.bytes
			if o < w.l.LogStartOffset() || o >= b.next {
				continue
			}
			if o-b.base >= int64(record.ReadHeader(b.bytes).RecordCount) {
				want = nil
				if i+1 < len(present) {
					want = present[i+1].bytes
				}
			}
			r, err := w.l.Read(o, w.l.LogEndOffset(), 1)
			if err != nil {
				if !errors.Is(err, vfs.ErrInjected) {
					w.t.Fatalf("read at %d: %v", o, err)
				}
				continue
			}
			if r.File != nil && w.fs != vfs.FS(w.disk) {
				r.Release()
				continue // with faults about, only the place is looked at
			}
			if got := regionBytes(w.t, r); !bytes.Equal(got, want) {
				w.t.Fatalf("read at %d gives another batch", o)
			}
		}
	}
}

// verifyTimes holds lookups by timestamp against a search of all records.
func (w *crashWorld) verifyTimes() {
	w.t.Helper()
	start := w.l.LogStartOffset()
	var records []record.Record
	for _, b := range w.log {
		for r, err := range record.Records(b.bytes, 0) {
			if err == nil && r.Offset >= start {
				records = append(records, r)
			}
		}
	}
	for ts := int64(990); ts < w.now+60; ts += 13 {
		want := int64(-1)
		if i := slices.IndexFunc(records, func(r record.Record) bool { return r.Timestamp >= ts }); i >= 0 {
			want = records[i].Offset
		}
		got, _, _, ok, err := w.l.OffsetForTimestamp(ts)
		if err != nil || ok != (want >= 0) || (ok && got != want) {
			w.t.Fatalf("offset for timestamp %d: %d %v %v, want %d (log start %d)", ts, got, ok, err, want, start)
		}
	}
}
