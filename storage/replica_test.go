package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/internal/need"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// leaderAnswer is what a leader with these batches answers from its log start on.
func leaderAnswer(t testing.TB, cfg LogConfig, epochs []int32, spec batchSpec) []byte {
	t.Helper()
	l, _ := testOpen(t, testDir(t, vfs.NewSim(nil)), cfg)
	for i, e := range epochs {
		spec.timestamp = int64(1000 + i)
		if _, err := l.Append(spec.build(), AppendArgs{LeaderEpoch: e, Now: 1000}); err != nil {
			t.Fatal(err)
		}
		spec.sequence += int32(max(spec.records, 1))
	}
	return bytes.Join(readAll(t, l, 0, 1<<20), nil)
}

// followers are logs of each engine and offset scheme that a leader may be followed with.
func followers(t *testing.T, f func(t *testing.T, l Log, cfg LogConfig)) {
	for _, c := range []Combination{
		{Engine: EngineLog, Cache: CachePage, Offsets: OffsetsLogical},
		{Engine: EngineLog, Cache: CachePage, Offsets: OffsetsByte},
		{Engine: EngineBTree, Cache: CachePage, Offsets: OffsetsLogical},
	} {
		t.Run(fmt.Sprintf("%s/%s", c.Engine, c.Offsets), func(t *testing.T) {
			cfg := testConfig()
			cfg.Engine, cfg.Offsets = c.Engine, c.Offsets
			l, _, err := testDir(t, vfs.NewReal(t.TempDir(), nil)).Open("orders", [16]byte{1}, 0, cfg, 1000)
			if err != nil {
				t.Fatal(err)
			}
			leader := cfg
			leader.Engine = EngineLog
			f(t, l, leader)
		})
	}
}

func TestAFollowerKeepsWhatItsLeaderSent(t *testing.T) {
	followers(t, func(t *testing.T, l Log, cfg LogConfig) {
		answer := leaderAnswer(t, cfg, []int32{3, 3, 5, 8}, batchSpec{records: 4, valueSize: 50, producer: 7})
		last := 0
		for _, b := range record.Batches(answer) {
			last = len(answer) - len(b)
		}
		for _, cut := range []int{len(answer) - 1, last + record.HeaderSize, last + 17, last + 1} {
			sent := bytes.Clone(answer[:cut])
			a, err := l.Append(sent, AppendArgs{LeaderEpoch: 8, Now: 5000, Replica: true})
			if err != nil || a.Bytes != last || a.BaseOffset != 0 || a.LastOffset != l.LogEndOffset()-1 {
				t.Fatalf("answer cut at %d of %d: %+v, %v", cut, len(answer), a, err)
			}
			if !bytes.Equal(sent, answer[:cut]) {
				t.Fatal("the answer was changed")
			}
			if err := l.Truncate(0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Append(answer[:last], AppendArgs{LeaderEpoch: 8, Now: 5000, Replica: true}); err != nil {
			t.Fatal(err)
		}
		if a, err := l.Append(answer[last:], AppendArgs{LeaderEpoch: 8, Now: 5000, Replica: true}); err != nil || a.Bytes != len(answer)-last {
			t.Fatalf("%+v, %v", a, err)
		}
		if got := bytes.Join(readAll(t, l, 0, 1<<20), nil); !bytes.Equal(got, answer) {
			t.Error("the follower's batches are not the leader's")
		}
		if found, end := l.EndOffsetForEpoch(4); found != 3 || end != record.ReadHeader(answer[:]).NextOffset()*2 || l.LatestEpoch() != 8 {
			t.Errorf("epoch %d ends at %d, the latest is %d", found, end, l.LatestEpoch())
		}
		// As the next leader it knows the producer, with the leader's offsets and times.
		again, err := l.Append(batchSpec{records: 4, valueSize: 50, producer: 7, sequence: 12, timestamp: 1003}.build(), AppendArgs{LeaderEpoch: 9, Now: 6000})
		if err != nil || !again.Duplicate || again.LastOffset != l.LogEndOffset()-1 {
			t.Errorf("resend of the last batch: %+v, %v", again, err)
		}
	})
}

func TestAFollowerRefusesGarbageAndWritesNothing(t *testing.T) {
	followers(t, func(t *testing.T, l Log, cfg LogConfig) {
		answer := leaderAnswer(t, cfg, []int32{3, 3, 5, 8}, batchSpec{records: 4, valueSize: 50})
		second := record.ReadHeader(answer).Size()
		if _, err := l.Append(answer[:second], AppendArgs{LeaderEpoch: 8, Replica: true}); err != nil {
			t.Fatal(err)
		}
		answer = answer[second:]
		third := record.ReadHeader(answer).Size()
		end, size := l.LogEndOffset(), l.Size()
		epochs := fmt.Sprint(l.LatestEpoch())
		for _, g := range []struct {
			name   string
			change func(b []byte) []byte
			says   string
		}{
			{"a flipped bit", func(b []byte) []byte { b[third+70] ^= 4; return b }, "CRC is"},
			{"a flipped bit in the last batch", func(b []byte) []byte { b[len(b)-1] ^= 4; return b }, "CRC is"},
			{"text", func([]byte) []byte { return bytes.Repeat([]byte("HTTP/1.1 "), 30) }, "magic"},
			{"zeros", func(b []byte) []byte { return make([]byte, len(b)) }, "message format 0"},
			{"a negative length", func(b []byte) []byte { b[third+8] |= 0x80; return b }, "batch length"},
			{"a length that promises the world", func(b []byte) []byte { b[8] = 0x7f; return b[:third] }, "batch"},
			{"the beginning of a batch", func(b []byte) []byte { return b[:third-1] }, "no whole batch"},
			{"a batch left out", func(b []byte) []byte { return b[third:] }, fmt.Sprintf("the log ends at %d", end)},
			{"a gap", func(b []byte) []byte { return append(b[:third:third], b[2*third:]...) }, "base offset"},
			{"the same batch twice", func(b []byte) []byte { return append(b[:third:third], b...) }, "base offset"},
			{"a cut batch that is none", func(b []byte) []byte { b[third+5]++; return b[:len(b)-1-third] }, "base offset"},
			{"an epoch that falls", func(b []byte) []byte { record.SetLeaderEpoch(b[2*third:], 4); return b }, "leader epoch 4 after epoch 5"},
			{"an epoch from the future", func(b []byte) []byte { record.SetLeaderEpoch(b[2*third:], 9); return b }, "fetched in epoch 8"},
			{"more records than offsets", func(b []byte) []byte { binary.BigEndian.PutUint32(b[57:], 4000); record.FixCRC(b); return b }, "4000 records"},
			{"a negative offset delta", func(b []byte) []byte { b[23] = 0x80; record.FixCRC(b); return b }, "last offset delta"},
		} {
			t.Run(g.name, func(t *testing.T) {
				_, err := l.Append(g.change(bytes.Clone(answer)), AppendArgs{LeaderEpoch: 8, Replica: true})
				var refused *ReplicaError
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), g.says) {
					t.Errorf("%v, want %q", err, g.says)
				}
				if l.LogEndOffset() != end || l.Size() != size || fmt.Sprint(l.LatestEpoch()) != epochs {
					t.Errorf("log end %d of %d, %d bytes of %d, epoch %d", l.LogEndOffset(), end, l.Size(), size, l.LatestEpoch())
				}
			})
		}
		if _, err := l.Append(answer, AppendArgs{LeaderEpoch: 8, Replica: true}); err != nil {
			t.Error(err)
		}
	})
}

func TestAFollowerBeginsWhereItsLeaderDoes(t *testing.T) {
	followers(t, func(t *testing.T, l Log, cfg LogConfig) {
		answer := leaderAnswer(t, cfg, []int32{3, 3, 5, 8}, batchSpec{records: 4, valueSize: 50})
		first := record.ReadHeader(answer)
		second := record.ReadHeader(answer[first.Size():])
		if err := l.TruncateFullyAndStartAt(second.BaseOffset + 2); err != nil { // DeleteRecords went that far
			t.Fatal(err)
		}
		if l.LogStartOffset() != second.BaseOffset+2 || l.LogEndOffset() != second.BaseOffset+2 || l.LatestEpoch() != -1 {
			t.Fatalf("log [%d, %d), epoch %d", l.LogStartOffset(), l.LogEndOffset(), l.LatestEpoch())
		}
		if _, err := l.Append(answer[first.Size():], AppendArgs{LeaderEpoch: 8, Replica: true}); err != nil {
			t.Fatal(err)
		}
		if l.LogStartOffset() != second.BaseOffset+2 {
			t.Errorf("log start %d", l.LogStartOffset())
		}
		if got := bytes.Join(readAll(t, l, second.BaseOffset+2, 1<<20), nil); !bytes.Equal(got, answer[first.Size():]) {
			t.Error("the follower's batches are not the leader's")
		}
		if _, err := l.Read(second.BaseOffset, l.LogEndOffset(), 1); err != ErrOffsetOutOfRange {
			t.Errorf("read below the log start: %v", err)
		}
		// And far above what it has, and far below.
		for _, at := range []int64{1 << 40, 5} {
			if err := l.TruncateFullyAndStartAt(at); err != nil || l.LogStartOffset() != at || l.LogEndOffset() != at || l.FlushedOffset() != at {
				t.Errorf("begun at %d: [%d, %d), flushed %d, %v", at, l.LogStartOffset(), l.LogEndOffset(), l.FlushedOffset(), err)
			}
		}
		for _, at := range []int64{-1, 1<<63 - 1} {
			if err := l.TruncateFullyAndStartAt(at); err == nil || l.LogEndOffset() != 5 {
				t.Errorf("begun at %d: %v, log end %d", at, err, l.LogEndOffset())
			}
		}
	})
}

func TestALeadersEpochIsKnownBeforeItsFirstBatch(t *testing.T) {
	followers(t, func(t *testing.T, l Log, cfg LogConfig) {
		answer := leaderAnswer(t, cfg, []int32{2, 4}, batchSpec{records: 4, valueSize: 50})
		if _, err := l.Append(answer, AppendArgs{LeaderEpoch: 4, Replica: true}); err != nil {
			t.Fatal(err)
		}
		end := l.LogEndOffset()
		second := record.ReadHeader(answer).NextOffset()
		if err := l.AssignEpoch(6, end); err != nil {
			t.Fatal(err)
		}
		if err := l.AssignEpoch(5, end); err == nil {
			t.Error("an older epoch began after a newer one")
		}
		check := func(asked, found int32, at, byNext int64) {
			t.Helper()
			if f, e := l.EndOffsetForEpoch(asked); f != found || e != at || l.EndOffsetByNextEpoch(asked) != byNext {
				t.Errorf("epoch %d: %d ends at %d (by the next epoch's start %d), want %d at %d (%d)", asked, f, e, l.EndOffsetByNextEpoch(asked), found, at, byNext)
			}
		}
		check(-1, -1, -1, -1)
		check(1, 1, 0, -1)
		check(2, 2, second, second)
		check(3, 2, second, second) // B3: the older rule does not say that epoch 3 is not known here
		check(4, 4, end, end)
		check(6, 6, end, end)
		check(7, 6, end, -1)
		// It follows again before it wrote anything, and gets what another leader had in epoch 4.
		if err := l.Truncate(end); err != nil || l.LatestEpoch() != 4 {
			t.Fatalf("latest epoch %d, %v", l.LatestEpoch(), err)
		}
		if err := l.AssignEpoch(8, end); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(batchSpec{records: 4, valueSize: 50}.build(), AppendArgs{LeaderEpoch: 8}); err != nil {
			t.Fatal(err)
		}
		check(7, 4, end, end)
		check(8, 8, l.LogEndOffset(), l.LogEndOffset())
	})
}

// TestOlderEpochsEndWhereTheFirstBeginsInAnEmptyLog: a leader of whose log retention has left nothing begins an epoch. What its
// followers have of older ones is committed, and ends where that begins: told nothing, they cut it and began at 0.
func TestOlderEpochsEndWhereTheFirstBeginsInAnEmptyLog(t *testing.T) {
	followers(t, func(t *testing.T, l Log, cfg LogConfig) {
		const start = 40
		if err := l.TruncateFullyAndStartAt(start); err != nil {
			t.Fatal(err)
		}
		if found, end := l.EndOffsetForEpoch(4); found != -1 || end != -1 {
			t.Errorf("before any epoch: epoch %d ends at %d", found, end)
		}
		if err := l.AssignEpoch(6, start); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			asked, found int32
			end          int64
		}{{-1, -1, -1}, {0, 0, start}, {5, 5, start}, {6, 6, start}, {7, 6, start}} {
			if found, end := l.EndOffsetForEpoch(c.asked); found != c.found || end != c.end {
				t.Errorf("epoch %d: %d ends at %d, want %d at %d", c.asked, found, end, c.found, c.end)
			}
		}
	})
}

func TestNoLogStartPassesTheHighWatermark(t *testing.T) {
	followers(t, func(t *testing.T, l Log, cfg LogConfig) {
		for range 4 {
			testAppend(t, l, batchSpec{records: 4})
		}
		half := l.LogEndOffset() / 2
		if err := l.AdvanceLogStart(half+1, half); err != ErrOffsetOutOfRange || l.LogStartOffset() != 0 {
			t.Errorf("log start above the high watermark: %v, %d", err, l.LogStartOffset())
		}
		if err := l.AdvanceLogStart(half, half); err != nil || l.LogStartOffset() != half {
			t.Errorf("log start at the high watermark: %v, %d", err, l.LogStartOffset())
		}
	})
}

// What a leader answers is checked and taken without an allocation, however many batches and records it has.
func TestAFollowersAppendAllocatesNothing(t *testing.T) {
	if need.RaceDetector {
		t.Skip("counts of allocations say nothing under the race detector")
	}
	cfg := DefaultLogConfig()
	leader, _ := testOpen(t, testDir(t, vfs.NewSim(nil)), cfg)
	fill(t, leader, 2500, batchSpec{records: 100, valueSize: 10})
	all := bytes.Join(readAll(t, leader, 0, 1<<20), nil)
	writes := 0
	l, _ := testOpen(t, testDir(t, vfs.WithHook(vfs.NewReal(t.TempDir(), nil), func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, logSuffix) {
			writes++
		}
		return nil
	})), cfg)
	size, sent := len(all)/2500, 0
	n := testing.AllocsPerRun(90, func() {
		a, err := l.Append(all[sent:sent+25*size+size/2], AppendArgs{Replica: true, Now: 1000})
		if err != nil {
			t.Fatal(err)
		}
		sent += a.Bytes
	})
	if n > 0 || writes != 91 || sent != 91*25*size {
		t.Errorf("an answer of 25 batches: %v allocations; 91 of them: %d writes, %d bytes", n, writes, sent)
	}
}

// FuzzReplica: whatever a leader answers is an error or whole batches that continue the log.
func FuzzReplica(f *testing.F) {
	cfg := testConfig()
	l, _ := testOpen(f, testDir(f, vfs.NewSim(nil)), cfg)
	for i := range 3 {
		testAppend(f, l, batchSpec{records: 2, producer: 7, sequence: int32(2 * i)})
	}
	answer := bytes.Join(readAll(f, l, 0, 1<<20), nil)
	f.Add(answer, int64(0), false)
	f.Add(answer[:len(answer)-3], int64(1), true)
	f.Fuzz(func(t *testing.T, b []byte, end int64, empty bool) {
		c := replicaCheck{log: "orders-0", end: end, empty: empty, known: -1, current: 5, offsets: OffsetsLogical}
		n, err := c.check(b)
		if (err == nil) != (n > 0) || n > len(b) {
			t.Fatalf("took %d of %d bytes: %v", n, len(b), err)
		}
		at := 0
		for h, batch := range record.Batches(b[:n]) {
			if _, err := record.Check(batch); err != nil || (at > 0 || !empty) && h.BaseOffset != end {
				t.Fatalf("took a batch at offset %d where %d belongs: %v", h.BaseOffset, end, err)
			}
			at, end = at+len(batch), h.NextOffset()
		}
		if at != n {
			t.Fatalf("took %d bytes, of which %d are batches", n, at)
		}
	})
}
