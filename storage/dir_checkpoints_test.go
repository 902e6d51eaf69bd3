package storage

import (
	"fmt"
	"testing"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// A checkpoint reads the high watermarks partition by partition. What is read and then no
// longer true must not be written: after a restart it would call committed what others appended there (S26).
func TestACheckpointWritesNoHighWatermarkFromBeforeACut(t *testing.T) {
	for _, engine := range Engines {
		t.Run(fmt.Sprint(engine), func(t *testing.T) { testCheckpointsBesideCuts(t, engine) })
	}
}

func testCheckpointsBesideCuts(t *testing.T, engine Engine) {
	cfg := testConfig()
	cfg.Engine = engine
	fill := func(t *testing.T, l Log, batches int) {
		for range batches {
			testAppend(t, l, batchSpec{valueSize: 10})
		}
	}
	truncate := func(offset int64) func(*testing.T, *Dir, Log) {
		return func(t *testing.T, _ *Dir, l Log) {
			if err := l.Truncate(offset); err != nil {
				t.Fatal(err)
			}
			fill(t, l, 6) // the log is longer again: no bound by its end would do
		}
	}
	delete := func(t *testing.T, d *Dir, _ Log) {
		if err := d.Delete("orders", 0, 1000); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		before int64 // in the checkpoint before
		then   func(*testing.T, *Dir, Log)
		want   int64
		known  bool
	}{
		"nothing happened":              {3, func(*testing.T, *Dir, Log) {}, 5, true},
		"cut below the last one":        {3, truncate(2), 2, true},
		"cut between the last and this": {3, truncate(4), 3, true},
		"cut above":                     {3, truncate(6), 5, true},
		"begun anew": {3, func(t *testing.T, _ *Dir, l Log) {
			if err := l.TruncateFullyAndStartAt(1); err != nil {
				t.Fatal(err)
			}
		}, 1, true},
		"deleted": {3, delete, 0, false},
		"another topic of the name": {3, func(t *testing.T, d *Dir, l Log) {
			delete(t, d, l)
			if _, _, err := d.Open("orders", [16]byte{2}, 0, cfg, 1000); err != nil {
				t.Fatal(err)
			}
		}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewReal(t.TempDir(), nil)
			d := testDir(t, disk)
			l, _, err := d.Open("orders", [16]byte{1}, 0, cfg, 1000)
			if err != nil {
				t.Fatal(err)
			}
			fill(t, l, 8)
			if err := flushNow(l); err != nil {
				t.Fatal(err)
			}
			mark := func(hw int64, then func(*testing.T, *Dir, Log)) {
				t.Helper()
				err := d.Checkpoint(func() []PartitionOffset {
					read := []PartitionOffset{{"orders", 0, hw}}
					then(t, d, l)
					return read
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			nothing := func(*testing.T, *Dir, Log) {}
			mark(c.before, nothing)
			mark(5, c.then)
			if err := d.Close(false, -1); err != nil {
				t.Fatal(err)
			}
			again := testDir(t, disk)
			defer again.Close(false, -1)
			if hw, known := again.HighWatermark("orders", 0); known != c.known || hw != c.want {
				t.Errorf("high watermark %d, known: %t", hw, known)
			}
		})
	}
}
