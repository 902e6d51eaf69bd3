package storage

import (
	"testing"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// A file that is named like a segment and begins within a batch is none of this log's: it
// costs the log nothing, whatever is in it.
func TestASegmentThatBeginsWithinABatchTakesNothingAway(t *testing.T) {
	for name, content := range map[string]func(segment []byte) []byte{
		"empty":   func([]byte) []byte { return nil },
		"garbage": func([]byte) []byte { return []byte("what somebody left here") },
		"a copy":  func(segment []byte) []byte { return segment },
	} {
		disk := vfs.NewSim(nil)
		cfg := testConfig()
		l, _ := testOpen(t, testDir(t, disk), cfg)
		fill(t, l, 3, batchSpec{records: 50})
		segment, err := readFile(disk, l.active().path(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		disk.Kill()
		if err := writeFile(disk, "data/orders-0/00000000000000000120.log", content(segment)); err != nil {
			t.Fatal(err)
		}
		l, rep := testOpen(t, testDir(t, disk), cfg)
		if end := l.LogEndOffset(); end != 150 {
			t.Errorf("%s: the log ends at %d and not at 150: %+v", name, end, rep)
		}
		if n := len(l.segments); n != 1 {
			t.Errorf("%s: %d segments", name, n)
		}
	}
}
