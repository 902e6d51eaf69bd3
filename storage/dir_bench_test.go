package storage

import (
	"sync"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// BenchmarkManyPartitions creates 10,000 partitions side by side, as a broker does,
// writes to each, stops cleanly and starts again; then again after a kill.
func BenchmarkManyPartitions(b *testing.B) {
	const partitions, inFlight = 10_000, 64
	cfg := DefaultLogConfig()
	for b.Loop() {
		fs := vfs.WithDescriptorCache(vfs.NewReal(b.TempDir(), nil), 512) // half of an ordinary limit
		d := testDir(b, fs)
		logs := make([]Log, partitions)
		measure := func(name string, f func()) {
			start := time.Now()
			f()
			b.ReportMetric(time.Since(start).Seconds(), name)
		}
		each := func(n int, f func(i int) error) {
			var wg sync.WaitGroup
			next := make(chan int)
			for range inFlight {
				wg.Go(func() {
					for i := range next {
						if err := f(i); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for i := range n {
				next <- i
			}
			close(next)
			wg.Wait()
		}
		open := func(i int) (err error) {
			logs[i], _, err = d.Open("orders", [16]byte{1}, int32(i), cfg, 1)
			return err
		}
		closeAll := func() {
			steps := d.Closing()
			each(len(steps), func(i int) error { return steps[i].Sync() })
			if err := d.Close(true, 1); err != nil {
				b.Fatal(err)
			}
		}
		fill := func() {
			for _, l := range logs {
				testAppend(b, l, batchSpec{records: 3, valueSize: 100})
			}
		}
		measure("create-s", func() { each(partitions, open) })
		measure("close-idle-s", closeAll)
		d = testDir(b, fs)
		measure("open-idle-s", func() { each(partitions, open) })
		fill()
		measure("close-dirty-s", closeAll)
		d = testDir(b, fs)
		measure("open-s", func() { each(partitions, open) })
		if d.CleanEpoch() != 1 {
			b.Fatal("not closed cleanly")
		}
		fill()
		measure("checkpoint-s", func() {
			if err := d.Checkpoint(nil); err != nil {
				b.Fatal(err)
			}
		})
		if err := d.Close(false, -1); err != nil { // as a kill leaves it
			b.Fatal(err)
		}
		d = testDir(b, fs)
		measure("open-after-kill-s", func() { each(partitions, open) })
		if err := d.Close(false, -1); err != nil {
			b.Fatal(err)
		}
	}
}
