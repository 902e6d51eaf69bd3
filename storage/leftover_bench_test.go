package storage

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// BenchmarkOpeningAfterAKill tells what an unflushed tail of 256 MiB costs: the opening, and the flush
// that follows it, with and without writing the tail again. The tail is on the disk already, the
// case in which writing it again is wasted.
func BenchmarkOpeningAfterAKill(b *testing.B) {
	const tail, batch = 256 << 20, 64 << 10
	for _, trust := range []bool{true, false} {
		b.Run(fmt.Sprintf("again=%v", !trust), func(b *testing.B) {
			cfg := DefaultLogConfig()
			cfg.TrustPageCache = trust
			fs := vfs.NewReal(b.TempDir(), nil)
			d := testDir(b, fs)
			l, _ := testOpen(b, d, cfg)
			for range tail / batch {
				testAppend(b, l, batchSpec{valueSize: batch - 100})
			}
			if err := syncPath(fs, l.active().path()); err != nil {
				b.Fatal(err)
			}
			var opening, flushing time.Duration
			for b.Loop() {
				if err := d.Close(false, -1); err != nil { // as a kill leaves it
					b.Fatal(err)
				}
				start := time.Now()
				d = testDir(b, fs)
				l, _ = testOpen(b, d, cfg)
				opened := time.Now()
				testFlush(b, l)
				opening, flushing = opening+opened.Sub(start), flushing+time.Since(opened)
			}
			b.ReportMetric(opening.Seconds()/float64(b.N), "open-s")
			b.ReportMetric(flushing.Seconds()/float64(b.N), "flush-s")
			if err := d.Close(false, -1); err != nil {
				b.Fatal(err)
			}
		})
	}
}
