package logdump

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

const start = int64(1_700_000_000_000) // ms

// logs writes a log directory by the storage layer itself: partition orders-0
// with three segments, every codec, an idempotent producer.
func logs(t testing.TB, change func(*storage.LogConfig)) *vfs.Sim {
	t.Helper()
	fs := vfs.NewSim(nil)
	d, err := storage.OpenDir(fs, "data", storage.Identity{ClusterID: "cluster", BrokerID: 1})
	if err != nil {
		t.Fatal(err)
	}
	cfg := storage.DefaultLogConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes, cfg.RetentionMs = 700, 200, -1
	if change != nil {
		change(&cfg)
	}
	l, _, err := d.Open("orders", [16]byte{1}, 0, cfg, start)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		b := record.NewBuilder([]record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd}[i%5])
		if i%3 == 0 {
			b.ProducerID, b.ProducerEpoch, b.BaseSequence = 7, 1, int32(i)
		}
		for j := range 3 {
			b.Append(start+int64(10*i+j), fmt.Appendf(nil, "key %d", j), bytes.Repeat([]byte("value "), 10), record.RecordHeader{Key: "h", Value: []byte{0xff}})
		}
		b.BaseSequence = int32(i / 3 * 3)
		if b.ProducerID < 0 {
			b.BaseSequence = -1
		}
		if _, err := l.Append(b.Build(nil), storage.AppendArgs{Now: start, LeaderEpoch: int32(i / 5)}); err != nil {
			t.Fatal(err)
		}
	}
	for f := l.BeginFlush(); f != nil; f = l.BeginFlush() {
		l.EndFlush(f, f.Sync())
	}
	if err := d.Checkpoint(func() []storage.PartitionOffset {
		return []storage.PartitionOffset{{Topic: "orders", Partition: 0, Offset: 3}}
	}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return fs
}

func verify(t testing.TB, fs vfs.FS, target string) (problems []Problem, sum Summary) {
	t.Helper()
	var out bytes.Buffer
	sum, err := Verify(fs, target, &out, Options{JSON: true})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, `{"type":"problem"`) {
			continue
		}
		var p Problem
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		problems = append(problems, p)
	}
	if len(problems) != sum.Problems {
		t.Errorf("%d problems printed, %d counted", len(problems), sum.Problems)
	}
	return problems, sum
}

func files(t testing.TB, fs vfs.FS, suffix string) (names []string) {
	t.Helper()
	all, err := fs.List("data/orders-0")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if strings.HasSuffix(n, suffix) {
			names = append(names, path.Join("data/orders-0", n))
		}
	}
	return names
}

func read(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	b, err := (&dumper{fs: fs}).read(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t testing.TB, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Open(name, vfs.Create|vfs.Truncate)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
}

func TestWhatTheStorageLayerWritesHasNoProblems(t *testing.T) {
	for name, change := range map[string]func(*storage.LogConfig){
		"logical offsets": nil,
		"byte offsets":    func(c *storage.LogConfig) { c.Offsets = storage.OffsetsByte },
		"append time":     func(c *storage.LogConfig) { c.LogAppendTime = true },
		"preallocated":    func(c *storage.LogConfig) { c.Preallocate = true },
	} {
		t.Run(name, func(t *testing.T) {
			fs := logs(t, change)
			problems, sum := verify(t, fs, "data")
			if len(problems) > 0 || sum.Batches != 10 || sum.Records != 30 || sum.Segments < 3 || sum.Partitions != 1 {
				t.Errorf("%+v\n%+v", sum, problems)
			}
			if again, _ := verify(t, fs, "data/orders-0"); len(again) > 0 {
				t.Errorf("the partition alone: %+v", again)
			}
		})
	}
}

// Every byte of every segment is changed in turn. Only the leader epoch, which
// no CRC covers, may pass; the report names file, batch and offset.
func TestEveryDamagedByteOfASegmentIsReportedWithItsBatch(t *testing.T) {
	for name, change := range map[string]func(*storage.LogConfig){
		"logical": nil,
		"byte":    func(c *storage.LogConfig) { c.Offsets = storage.OffsetsByte },
	} {
		t.Run(name, func(t *testing.T) {
			fs := logs(t, change)
			for _, file := range files(t, fs, ".log") {
				pos := int64(0)
				for h, raw := range record.Batches(read(t, fs, file)) {
					for i := range raw {
						if i >= 12 && i < 16 {
							continue
						}
						rotten := fs.Clone()
						rotten.Rot(file, pos+int64(i), 0x11)
						problems, _ := verify(t, rotten, "data")
						if !slices.ContainsFunc(problems, func(p Problem) bool { return p.File == file && p.Pos == pos }) {
							t.Fatalf("%s, byte %d of the batch at %d (offset %d): %+v", file, i, pos, h.BaseOffset, problems)
						}
					}
					pos += int64(len(raw))
				}
			}
		})
	}
}

func TestEveryDamagedByteOfAnIndexOrSnapshotIsReported(t *testing.T) {
	fs := logs(t, nil)
	checked := 0
	for _, suffix := range []string{".index", ".timeindex", ".snapshot"} {
		for _, file := range files(t, fs, suffix) {
			for i := range read(t, fs, file) {
				rotten := fs.Clone()
				rotten.Rot(file, int64(i), 0x04)
				problems, _ := verify(t, rotten, "data")
				if !slices.ContainsFunc(problems, func(p Problem) bool { return p.File == file }) {
					t.Errorf("%s byte %d: %+v", file, i, problems)
				}
				checked++
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d bytes", checked)
	}
}

func TestEachOfTwoDamagedBatchesIsReportedAndTheRestIsRead(t *testing.T) {
	fs := logs(t, func(c *storage.LogConfig) { c.SegmentBytes = 1 << 20 })
	file := files(t, fs, ".log")[0]
	var at []int64
	pos := int64(0)
	for _, raw := range record.Batches(read(t, fs, file)) {
		at = append(at, pos)
		pos += int64(len(raw))
	}
	fs.Rot(file, at[2]+9, 0x7f) // its length: where the next one is must be found by searching
	fs.Rot(file, at[6]+70, 1)   // its records
	problems, sum := verify(t, fs, file)
	inLog := slices.DeleteFunc(problems, func(p Problem) bool { return p.File != file })
	if len(inLog) != 2 || inLog[0].Pos != at[2] || inLog[0].Offset != 6 || inLog[1].Pos != at[6] || inLog[1].Offset != 18 {
		t.Errorf("%+v", inLog)
	}
	if sum.Batches != 8 {
		t.Errorf("%d good batches of 8", sum.Batches)
	}
}

func TestWhatIsMissingIsReported(t *testing.T) {
	whole := logs(t, nil)
	segments := files(t, whole, ".log")
	for name, c := range map[string]struct {
		do   func(fs *vfs.Sim)
		want string
	}{
		"a segment is gone":       {func(fs *vfs.Sim) { fs.Remove(segments[1]) }, "are missing before it"},
		"the last segment is cut": {func(fs *vfs.Sim) { write(t, fs, segments[len(segments)-1], nil) }, "was on disk up to offset 30, its log ends at"},
		"a batch is cut off":      {func(fs *vfs.Sim) { b := read(t, fs, segments[0]); write(t, fs, segments[0], b[:len(b)-5]) }, "no good batch in the last"},
		"garbage at the end":      {func(fs *vfs.Sim) { write(t, fs, segments[0], append(read(t, fs, segments[0]), "noise"...)) }, "no good batch in the last 5 bytes"},
		"half an index entry": {func(fs *vfs.Sim) {
			n := strings.TrimSuffix(segments[0], "log") + "index"
			write(t, fs, n, append(read(t, fs, n), 1, 2, 3))
		}, "3 bytes after the last whole entry"},
		"an index without segment": {func(fs *vfs.Sim) { write(t, fs, "data/orders-0/00000000000000009999.index", nil) }, "an index without its segment"},
		"a checkpoint twice": {func(fs *vfs.Sim) {
			write(t, fs, "data/recovery-point-offset-checkpoint", []byte("0\n2\norders 0 1\norders 0 2\n"))
		}, "stands in it twice"},
		"a checkpoint of nonsense": {func(fs *vfs.Sim) {
			write(t, fs, "data/recovery-point-offset-checkpoint", []byte("0\n1\norders zero 1\n"))
		}, "is not topic, partition and offset"},
		"a checkpoint cut off":      {func(fs *vfs.Sim) { write(t, fs, "data/recovery-point-offset-checkpoint", []byte("0\n9\norders 0 1\n")) }, `it says "9" entries and has 1`},
		"an epoch beyond the end":   {func(fs *vfs.Sim) { write(t, fs, "data/orders-0/leader-epoch-checkpoint", []byte("0\n1\n5 1000\n")) }, "the log ends at 30"},
		"epochs out of order":       {func(fs *vfs.Sim) { write(t, fs, "data/orders-0/leader-epoch-checkpoint", []byte("0\n2\n5 3\n4 4\n")) }, "comes after epoch 5"},
		"a log start beyond an end": {func(fs *vfs.Sim) { write(t, fs, "data/log-start-offset-checkpoint", []byte("0\n1\norders 0 31\n")) }, "starts at offset 31"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := whole.Clone()
			fs.Kill()
			c.do(fs)
			problems, _ := verify(t, fs, "data")
			if !slices.ContainsFunc(problems, func(p Problem) bool { return strings.Contains(p.What, c.want) }) {
				t.Errorf("%+v", problems)
			}
		})
	}
}

func TestZerosAfterTheLastBatchAreNoProblem(t *testing.T) {
	fs := logs(t, nil)
	segments := files(t, fs, ".log")
	last := segments[len(segments)-1]
	write(t, fs, last, append(read(t, fs, last), make([]byte, 300_000)...))
	if problems, _ := verify(t, fs, "data"); len(problems) > 0 {
		t.Errorf("%+v", problems)
	}
}

func TestADirectoryOfSomethingElseIsAnError(t *testing.T) {
	fs := vfs.NewSim(nil)
	if err := fs.MkdirAll("empty"); err != nil {
		t.Fatal(err)
	}
	write(t, fs, "empty/notes.txt", []byte("x"))
	for _, target := range []string{"empty", "missing", "empty/notes.txt"} {
		if _, err := Verify(fs, target, &bytes.Buffer{}, Options{}); err == nil {
			t.Errorf("%s passed", target)
		}
	}
}

// TestDump shows each kind of file as a person sees it.
func TestDump(t *testing.T) {
	fs := logs(t, nil)
	rotten := fs.Clone()
	rotten.Rot("data/orders-0/00000000000000000000.log", 100, 1)
	datadriven.RunTest(t, "testdata/dump", func(t *testing.T, d *datadriven.TestData) string {
		o := Options{Records: d.HasArg("records"), JSON: d.HasArg("json"), Color: d.HasArg("color")}
		disk := fs
		if d.HasArg("rotten") {
			disk = rotten
		}
		var out bytes.Buffer
		if _, err := Dump(disk, d.CmdArgs[0].Key, &out, o); err != nil {
			return err.Error()
		}
		return strings.ReplaceAll(out.String(), "\x1b", "^")
	})
}

// FuzzSegment: no bytes make a walk panic or loop.
func FuzzSegment(f *testing.F) {
	fs := logs(f, nil)
	for _, file := range files(f, fs, ".log") {
		f.Add(read(f, fs, file), []byte{0, 0, 0, 2, 0, 0, 1, 0}, []byte{})
	}
	f.Fuzz(func(t *testing.T, log, index, times []byte) {
		fs := vfs.NewSim(nil)
		if err := fs.MkdirAll("p"); err != nil {
			t.Fatal(err)
		}
		const stem = "p/00000000000000000000"
		write(t, fs, stem+".log", log)
		write(t, fs, stem+".index", index)
		write(t, fs, stem+".timeindex", times)
		if _, err := Verify(fs, "p", &bytes.Buffer{}, Options{}); err != nil {
			t.Fatal(err)
		}
	})
}
