package logdump

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/record"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// batchesOf gives what the storage layer wrote: ten batches of three records.
func batchesOf(t *testing.T, change func(*storage.LogConfig)) (batches [][]byte) {
	t.Helper()
	fs := logs(t, change)
	for _, file := range files(t, fs, ".log") {
		for _, raw := range record.Batches(read(t, fs, file)) {
			batches = append(batches, raw)
		}
	}
	if len(batches) != 10 {
		t.Fatalf("%d batches", len(batches))
	}
	return batches
}

// writeCopy lays batches down as a partition's directory, so many in a segment; the first begins at from.
func writeCopy(t *testing.T, fs vfs.FS, dir string, from int64, perSegment int, batches [][]byte, tail ...byte) Copy {
	t.Helper()
	if err := fs.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	for first := true; first || len(batches) > 0; first = false {
		n := min(perSegment, len(batches))
		if !first {
			from = record.ReadHeader(batches[0]).BaseOffset
		}
		write(t, fs, fmt.Sprintf("%s/%020d.log", dir, from), append(bytes.Join(batches[:n], nil), tail...))
		batches = batches[n:]
	}
	return Copy{Name: dir, Dir: dir}
}

func lines(c Comparison) (all []string) {
	for _, d := range c.Differences {
		all = append(all, d.String())
	}
	return all
}

func TestEqualCopiesWithOtherSegmentsHaveNoDifference(t *testing.T) {
	for name, change := range map[string]func(*storage.LogConfig){
		"logical offsets": nil,
		"byte offsets":    func(c *storage.LogConfig) { c.Offsets = storage.OffsetsByte },
	} {
		t.Run(name, func(t *testing.T) {
			fs, batches := vfs.NewSim(nil), batchesOf(t, change)
			third := record.ReadHeader(batches[3]).BaseOffset
			end := record.ReadHeader(batches[9]).NextOffset()
			copies := []Copy{
				writeCopy(t, fs, "a", 0, 3, batches),
				writeCopy(t, fs, "b", 0, 4, batches, make([]byte, 5000)...), // preallocated
				writeCopy(t, fs, "c", third, 100, batches[3:]),              // what was before is deleted
			}
			done := int64(0)
			c, err := Compare(fs, copies, Options{Progress: func(n, total int64) {
				if done = n; n > total {
					t.Errorf("%d bytes of %d", n, total)
				}
			}})
			if err != nil || c.Count > 0 || c.Batches != 7 || c.From != third || c.To != end || c.Bytes != int64(len(bytes.Join(batches[3:], nil))) {
				t.Errorf("%v: %+v", err, c)
			}
			if want := int64(3*len(bytes.Join(batches, nil)) - len(bytes.Join(batches[:3], nil))); done != want {
				t.Errorf("%d bytes were read, want %d", done, want)
			}
		})
	}
}

func TestEmptyCopies(t *testing.T) {
	fs, batches := vfs.NewSim(nil), batchesOf(t, nil)
	begun, other := writeCopy(t, fs, "a", 30, 1, nil), writeCopy(t, fs, "b", 30, 1, nil)
	if c, err := Compare(fs, []Copy{begun, other}, Options{}); err != nil || c.Count > 0 || c.Batches != 0 || c.From != 30 || c.To != 30 {
		t.Errorf("two of them: %v: %+v", err, c)
	}
	full := writeCopy(t, fs, "full", 0, 5, batches)
	if c, err := Compare(fs, []Copy{begun, full}, Options{}); err != nil || c.Count > 0 || c.From != 30 {
		t.Errorf("one whose records are deleted: %v: %+v", err, c)
	}
	lost := writeCopy(t, fs, "lost", 0, 1, nil)
	if c, err := Compare(fs, []Copy{full, lost}, Options{}); err != nil || !slices.Equal(lines(c), []string{"at offset 0: log end 30 in full and 0 in lost"}) {
		t.Errorf("one whose records are lost: %v: %+v", err, c)
	}
}

// Each kind of difference is planted into one copy of three, which lie in segments of other lengths.
func TestAPlantedDifferenceIsOneLineThatSaysWhereAndWhat(t *testing.T) {
	batches := batchesOf(t, nil)
	// edit gives the batches with the fifth of them, offsets 12 to 14 and leader epoch 0, changed.
	edit := func(change func(b []byte) []byte) [][]byte {
		changed := slices.Clone(batches)
		changed[4] = change(slices.Clone(changed[4]))
		return changed
	}
	crc := func(b []byte) string { return fmt.Sprintf("%08x", record.ReadHeader(b).CRC) }
	fixed := edit(func(b []byte) []byte { b[40] ^= 1; record.FixCRC(b); return b }) // its latest timestamp
	rotten := edit(func(b []byte) []byte { b[80] ^= 1; return b })
	_, why := record.Check(rotten[4])
	longer := edit(func([]byte) []byte {
		b := record.NewBuilder(record.None)
		for range 3 {
			b.Append(start, nil, []byte("another's"))
		}
		other := b.Build(nil)
		record.SetBaseOffset(other, 12)
		return other
	})
	for name, c := range map[string]struct {
		planted [][]byte
		want    []string
	}{
		"another leader epoch": {edit(func(b []byte) []byte { record.SetLeaderEpoch(b, 7); return b }),
			[]string{"at offset 12: leader epoch 0 in a, b and 7 in c"}},
		"a byte, with the CRC put right": {fixed, []string{"at offset 12: CRC " + crc(batches[4]) + " in a, b and " + crc(fixed[4]) + " in c"}},
		"a byte":                         {rotten, []string{"at offset 12: damaged in c: " + why.(*record.Error).Reason + "; first other byte none in a, b and 80 in c"}},
		"another batch, and what it stands for": {longer, []string{fmt.Sprintf("at offset 12: leader epoch 0 in a, b and -1 in c; length %d in a, b and %d in c; CRC %s in a, b and %s in c",
			len(batches[4]), len(longer[4]), crc(batches[4]), crc(longer[4]))}},
		"a batch that is missing": {slices.Delete(slices.Clone(batches), 4, 5),
			[]string{"at offset 12: batch there in a, b and missing, the next is at 15 in c"}},
		"the first is missing":      {batches[1:], []string{"at offset 0: batch there in a, b and missing, the next is at 3 in c"}},
		"the last is missing":       {batches[:9], []string{"at offset 27: log end 30 in a, b and 27 in c"}},
		"noise in place of a batch": {edit(func([]byte) []byte { return []byte("noise") }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewSim(nil)
			copies := []Copy{writeCopy(t, fs, "a", 0, 3, batches), writeCopy(t, fs, "b", 0, 4, batches), writeCopy(t, fs, "c", 0, 100, c.planted)}
			got, err := Compare(fs, copies, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if c.want == nil {
				c.want = []string{fmt.Sprintf("at offset 12: no batch stands at byte %d of c/%020d.log", len(bytes.Join(batches[:4], nil)), 0)}
				if got.Count != 1 || !strings.HasPrefix(lines(got)[0], c.want[0]) {
					t.Errorf("%q, want %q", lines(got), c.want)
				}
				return
			}
			if !slices.Equal(lines(got), c.want) || got.Count != len(c.want) {
				t.Errorf("%q, want %q", lines(got), c.want)
			}
			// Whichever comes first, it is seen, and where it is.
			slices.Reverse(copies)
			if again, err := Compare(fs, copies, Options{}); err != nil || again.Count != got.Count || again.Differences[0].Offset != got.Differences[0].Offset {
				t.Errorf("the other way round: %v: %+v", err, again)
			}
		})
	}
}

// Every byte of every batch counts, those that no CRC covers too.
func TestEveryOtherByteIsSeen(t *testing.T) {
	batches := batchesOf(t, nil)
	fs := vfs.NewSim(nil)
	a, b := writeCopy(t, fs, "a", 0, 3, batches), writeCopy(t, fs, "b", 0, 4, batches)
	for _, file := range []string{"b/00000000000000000000.log", "b/00000000000000000012.log"} {
		for i := range read(t, fs, file) {
			rotten := fs.Clone()
			rotten.Rot(file, int64(i), 0x11)
			if c, err := Compare(rotten, []Copy{a, b}, Options{}); err != nil || c.Count == 0 {
				t.Fatalf("%s, byte %d: %v: %+v", file, i, err, c)
			}
		}
	}
}

func TestLogsThatNeedNotEndTogether(t *testing.T) {
	fs, batches := vfs.NewSim(nil), batchesOf(t, nil)
	copies := []Copy{writeCopy(t, fs, "a", 0, 3, batches), writeCopy(t, fs, "b", 0, 4, batches[:8]), writeCopy(t, fs, "c", 0, 4, batches[:9])}
	if c, err := Compare(fs, copies, Options{Tails: true}); err != nil || c.Count > 0 || c.Batches != 8 || c.To != 24 {
		t.Errorf("%v: %+v", err, c)
	}
	other := slices.Clone(batches[8])
	record.SetLeaderEpoch(other, 7)
	write(t, fs, "c/00000000000000000024.log", other)
	// Where the shortest has ended the others go on.
	if c, err := Compare(fs, copies, Options{Tails: true}); err != nil || !slices.Equal(lines(c), []string{"at offset 24: leader epoch 1 in a and 7 in c"}) {
		t.Errorf("%v: %+v", err, c)
	}
}

func TestDifferencesAreBounded(t *testing.T) {
	fs := vfs.NewSim(nil)
	build := func(i, epoch int) []byte {
		b := record.NewBuilder(record.None)
		b.Append(start, nil, []byte("v"))
		raw := b.Build(nil)
		record.SetBaseOffset(raw, int64(i))
		record.SetLeaderEpoch(raw, int32(epoch))
		return raw
	}
	var one, other [][]byte
	for i := range 50 {
		one, other = append(one, build(i, 1)), append(other, build(i, 2))
	}
	copies := []Copy{writeCopy(t, fs, "a", 0, 20, one), writeCopy(t, fs, "b", 0, 30, other)}
	var out bytes.Buffer
	c, err := Diff(fs, copies, &out, Options{})
	if err != nil || c.Count != 50 || len(c.Differences) != differencesMax {
		t.Errorf("%v: %+v", err, c)
	}
	text := out.String()
	if strings.Count(text, "\n") != differencesMax+1 || !strings.HasPrefix(text, "difference: at offset 0: leader epoch 1 in a and 2 in b\n") ||
		!strings.HasSuffix(text, "2 copies, 50 batches in each, 3450 B, from offset 0 to 50: 50 differences, of which the last 30 are not shown\n") {
		t.Errorf("%s", text)
	}
	out.Reset()
	if _, err := Diff(fs, copies, &out, Options{JSON: true}); err != nil || !strings.HasPrefix(out.String(), `{"type":"difference","offset":0,"what":"leader epoch 1 in a and 2 in b"}`+"\n") ||
		!strings.HasSuffix(out.String(), `{"type":"comparison","copies":2,"batches":50,"bytes":3450,"from":0,"to":50,"difference_count":50}`+"\n") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestWhatCannotBeComparedIsAnError(t *testing.T) {
	fs := logs(t, nil)
	copies := []Copy{{"a", "data/orders-0"}, {"b", "data"}}
	if _, err := Compare(fs, copies[:1], Options{}); err == nil || err.Error() != "1 copy: it takes two to compare" {
		t.Errorf("%v", err)
	}
	if _, err := Compare(fs, copies, Options{}); err == nil || err.Error() != "data holds no segments: it is no partition's directory" {
		t.Errorf("%v", err)
	}
	if _, err := Compare(fs, []Copy{copies[0], {"c", "absent"}}, Options{}); err == nil {
		t.Error("what is not there is compared")
	}
}

// FuzzCompare: no bytes make a comparison panic or loop, and what is not equal has a difference.
func FuzzCompare(f *testing.F) {
	fs := logs(f, nil)
	for _, file := range files(f, fs, ".log") {
		f.Add(read(f, fs, file), read(f, fs, file)[70:])
	}
	f.Fuzz(func(t *testing.T, one, other []byte) {
		fs := vfs.NewSim(nil)
		copies := []Copy{{"a", "a"}, {"b", "b"}}
		for i, b := range [][]byte{one, other} {
			if err := fs.MkdirAll(copies[i].Dir); err != nil {
				t.Fatal(err)
			}
			write(t, fs, copies[i].Dir+"/00000000000000000000.log", b)
		}
		c, err := Compare(fs, copies, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Count == 0 && !bytes.Equal(bytes.TrimRight(one, "\x00"), bytes.TrimRight(other, "\x00")) {
			t.Errorf("they are not equal, and no difference is seen: %+v", c)
		}
	})
}
