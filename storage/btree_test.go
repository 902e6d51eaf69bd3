package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

func openTestBTree(t testing.TB, root string, change func(*LogConfig)) (*btreeLog, *Dir) {
	t.Helper()
	cfg := DefaultLogConfig()
	cfg.Engine = EngineBTree
	change(&cfg)
	d, err := OpenDir(lazyFS{vfs.NewReal(root, nil)}, "logs", Identity{ClusterID: "trees", BrokerID: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close(false, -1) })
	l, _, err := d.Open("orders", [16]byte{1}, 0, cfg, metamorphicStart)
	if err != nil {
		t.Fatal(err)
	}
	return l.(*btreeLog), d
}

func messageIDKeys(c *LogConfig) { c.BTreeKey = BTreeKeyMessageID }

// plainBatch builds a batch of records with one value each of size bytes.
func plainBatch(rng *rand.Rand, timestamp int64, records, size int) []byte {
	b := record.NewBuilder(record.None)
	for range records {
		b.Append(timestamp, nil, randomBytes(rng, size))
	}
	return b.Build(nil)
}

func mustAppend(t testing.TB, l Log, batch []byte) {
	t.Helper()
	if _, err := l.Append(batch, AppendArgs{LeaderEpoch: 1, Now: metamorphicStart}); err != nil {
		t.Fatal(err)
	}
}

// checkMessageIDs demands one id for each record of the batches in the tree, and no other.
func checkMessageIDs(t *testing.T, l *btreeLog) {
	t.Helper()
	err := l.db.View(func(tx *bbolt.Tx) error {
		ids := tx.Bucket(bucketIDs)
		records := 0
		err := tx.Bucket(bucketBatches).ForEach(func(_, v []byte) error {
			h := record.ReadHeader(v)
			for o := h.BaseOffset; o < h.NextOffset(); o++ {
				id := messageIDOf(o)
				if got := ids.Get(id[:]); !bytes.Equal(got, offsetKey(o)) {
					return fmt.Errorf("the id of record %d leads to %x", o, got)
				}
				records++
			}
			return nil
		})
		if n := ids.Stats().KeyN; err == nil && n != records {
			err = fmt.Errorf("%d ids of %d records", n, records)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMessageIDsComeAndGoWithTheirRecords(t *testing.T) {
	l, _ := openTestBTree(t, t.TempDir(), messageIDKeys)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 { // more than one transaction trims
		mustAppend(t, l, plainBatch(rng, metamorphicStart, 1+rng.IntN(9), 20))
	}
	checkMessageIDs(t, l)
	if err := l.Truncate(l.LogEndOffset() - 100); err != nil {
		t.Fatal(err)
	}
	checkMessageIDs(t, l)
	if err := l.AdvanceLogStart(l.LogEndOffset()-30, l.LogEndOffset()); err != nil {
		t.Fatal(err)
	}
	checkMessageIDs(t, l)
	if err := l.AdvanceLogStart(l.LogEndOffset(), l.LogEndOffset()); err != nil {
		t.Fatal(err)
	}
	checkMessageIDs(t, l)
}

// TestInterruptedTrimGoesOnAtTheNextOpening moves the log start, and is killed before the first batch goes.
func TestInterruptedTrimGoesOnAtTheNextOpening(t *testing.T) {
	root := t.TempDir()
	l, d := openTestBTree(t, root, messageIDKeys)
	rng := rand.New(rand.NewPCG(1, 3))
	for range 10 {
		mustAppend(t, l, plainBatch(rng, metamorphicStart, 4, 20))
	}
	if err := l.db.Update(func(tx *bbolt.Tx) error { return l.saveStart(tx, 22) }); err != nil {
		t.Fatal(err)
	}
	d.Close(false, -1)
	l, _ = openTestBTree(t, root, messageIDKeys)
	if l.LogStartOffset() != 22 || l.LogEndOffset() != 40 {
		t.Fatalf("[%d, %d), want [22, 40)", l.LogStartOffset(), l.LogEndOffset())
	}
	checkMessageIDs(t, l)
	if err := l.db.View(func(tx *bbolt.Tx) error {
		if k, v := tx.Bucket(bucketBatches).Cursor().First(); k == nil || record.ReadHeader(v).BaseOffset != 20 {
			return errors.New("the batches below the log start are still there")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestLiveRegionDoesNotStopTheTree grows the file, which has to be mapped anew, while a region is live.
func TestLiveRegionDoesNotStopTheTree(t *testing.T) {
	l, _ := openTestBTree(t, t.TempDir(), func(*LogConfig) {})
	rng := rand.New(rand.NewPCG(1, 4))
	mustAppend(t, l, plainBatch(rng, metamorphicStart, 10, 1000))
	r, err := l.Read(0, l.LogEndOffset(), 1<<20)
	if err != nil || r.Len == 0 {
		t.Fatal(err)
	}
	before, size := bytes.Clone(r.Bytes), l.Size()
	for l.Size() < 64*size {
		mustAppend(t, l, plainBatch(rng, metamorphicStart, 100, 1000))
	}
	if err := l.AdvanceLogStart(l.LogEndOffset(), l.LogEndOffset()); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, plainBatch(rng, metamorphicStart, 100, 1000))
	if !bytes.Equal(r.Bytes, before) {
		t.Fatal("the live region changed")
	}
	r.Release()
}

func TestBTreeRetainsBatchByBatch(t *testing.T) {
	l, _ := openTestBTree(t, t.TempDir(), func(c *LogConfig) { c.RetentionMs = 1000; c.RetentionBytes = 2500 })
	rng := rand.New(rand.NewPCG(1, 5))
	for i := range 10 {
		mustAppend(t, l, plainBatch(rng, metamorphicStart+int64(i)*100, 1, 1000))
	}
	// At +1250 batches 0 to 2 are older than a second; of the seven left two are within 2500 bytes.
	deleted, err := l.Retain(metamorphicStart+1250, l.LogEndOffset()-1)
	if err != nil || len(deleted) != 2 || deleted[0].Why != "retention.ms" || deleted[0].BaseOffset != 0 || deleted[1].Why != "retention.bytes" || deleted[1].BaseOffset != 3 {
		t.Fatalf("%+v %v", deleted, err)
	}
	if l.LogStartOffset() != 7 {
		t.Fatalf("log start offset %d, want 7", l.LogStartOffset())
	}
}

func TestFailedTransactionTakesTheDirectoryOffline(t *testing.T) {
	l, d := openTestBTree(t, t.TempDir(), func(*LogConfig) {})
	batch := plainBatch(rand.New(rand.NewPCG(1, 6)), metamorphicStart, 1, 10)
	mustAppend(t, l, bytes.Clone(batch))
	l.db.Close()
	var failed *WriteError
	if _, err := l.Append(bytes.Clone(batch), AppendArgs{Now: metamorphicStart}); !errors.As(err, &failed) || d.Offline() == nil {
		t.Fatalf("%v, directory offline: %v", err, d.Offline())
	}
	if l.LogEndOffset() != 1 {
		t.Fatalf("log end offset %d after a failed append, want 1", l.LogEndOffset())
	}
}

func TestDamagedTreeIsReported(t *testing.T) {
	root := t.TempDir()
	l, d := openTestBTree(t, root, func(*LogConfig) {})
	mustAppend(t, l, plainBatch(rand.New(rand.NewPCG(1, 7)), metamorphicStart, 1, 10))
	cfg := l.cfg
	d.Close(false, -1)
	file := filepath.Join(root, "logs", "orders-0", btreeFileName)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * os.Getpagesize() { // both meta pages
		b[i] ^= 0x55
	}
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	d, err = OpenDir(vfs.NewReal(root, nil), "logs", Identity{ClusterID: "trees", BrokerID: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(false, -1)
	var damage *CorruptionError
	if _, _, err := d.Open("orders", [16]byte{1}, 0, cfg, metamorphicStart); !errors.As(err, &damage) {
		t.Fatalf("a tree without a valid meta page opened with %v", err)
	}
}

func TestBTreeIsLiveOnly(t *testing.T) {
	cfg := DefaultLogConfig()
	cfg.Engine = EngineBTree
	d := &Dir{fs: struct{ vfs.FS }{vfs.NewReal(t.TempDir(), nil)}}
	if _, _, err := openBTree(d, "orders-0", cfg, 0); !errors.Is(err, vfs.ErrUnsupported) {
		t.Fatalf("without real files: %v", err)
	}
}

// BenchmarkEngineAppend is one append of 100 records of 100 bytes to a tree or log that grows.
func BenchmarkEngineAppend(b *testing.B) {
	for _, c := range []Combination{
		{Engine: EngineLog, Cache: CachePage}, {Engine: EngineLog, Cache: CacheProcess}, {Engine: EngineLog, Cache: CacheDirect},
		{Engine: EngineBTree, Key: BTreeKeyOffset, Cache: CachePage}, {Engine: EngineBTree, Key: BTreeKeyMessageID, Cache: CachePage},
	} {
		b.Run(fmt.Sprintf("%s-%s/%s", c.Engine, c.Key, c.Cache), func(b *testing.B) {
			cfg := DefaultLogConfig()
			cfg.Engine, cfg.BTreeKey, cfg.Cache, cfg.CacheBytes = c.Engine, c.Key, c.Cache, 64<<20
			d, err := OpenDir(vfs.NewReal(b.TempDir(), nil), "logs", Identity{ClusterID: "bench", BrokerID: 1})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close(false, -1)
			l, _, err := d.Open("orders", [16]byte{1}, 0, cfg, metamorphicStart)
			if err != nil {
				b.Fatal(err)
			}
			batch := plainBatch(rand.New(rand.NewPCG(1, 8)), metamorphicStart, 100, 90)
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				mustAppend(b, l, batch)
			}
		})
	}
}
