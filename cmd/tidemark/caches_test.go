package main

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestCachesServeFromWhereTheySay reads a topic twice under each cache, from a
// broker that has just started: the first time the data comes from the files,
// the second time, where blocks are cached and fit, from the process.
func TestCachesServeFromWhereTheySay(t *testing.T) {
	const records, size = 5000, 1000
	for _, tc := range []struct {
		cache   string
		process bool // blocks are cached, and the second reading reads no file
	}{{"page", false}, {"process", true}, {"direct", true}} {
		t.Run(tc.cache, func(t *testing.T) {
			dir := t.TempDir()
			settings := []string{"lab.cache=" + tc.cache, "lab.fetch.transfer=copy"}
			b := startBroker(t, dir, settings...)
			produce(t, client(t, b, kgo.ProducerBatchCompression(kgo.NoCompression())), "orders", records, size)
			b.shutdown()
			b = startBroker(t, dir, settings...)
			for i, again := range []bool{false, true} {
				before := b.counters()
				consume(t, client(t, b, kgo.ConsumeTopics("orders")), records)
				after := b.counters()
				copied := after.ToUser - before.ToUser // requests come this way, too
				loaded := after.Status.BlockCache.LoadedBytes - before.Status.BlockCache.LoadedBytes
				hits := after.Status.BlockCache.HitBytes - before.Status.BlockCache.HitBytes
				t.Logf("reading %d: %d bytes loaded into blocks, %d served from blocks, %d copied from the kernel", i+1, loaded, hits, copied)
				switch {
				case !tc.process && loaded+hits > 0:
					t.Error("lab.cache=page used the block cache")
				case tc.process && !again && loaded < records*size:
					t.Errorf("only %d of %d bytes went through the block cache", loaded, records*size)
				case tc.process && again && (loaded > 0 || hits < records*size):
					t.Errorf("the second reading loaded %d bytes again and found %d", loaded, hits)
				case tc.cache == "page" && copied < records*size:
					t.Errorf("%d bytes were copied from the page cache, of %d", copied, records*size)
				case tc.cache == "direct" && copied > records*size/10:
					t.Errorf("%d bytes were copied from the page cache in spite of O_DIRECT", copied)
				}
			}
		})
	}
}
