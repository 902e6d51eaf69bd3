package broker

import (
	"errors"
	"testing"

	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/record"
)

func TestWhatIsPutOffIsBounded(t *testing.T) {
	p := &partition{}
	cfg := DefaultConfig()
	cfg.Log.FlushMessages = 1
	p.cfg.Store(&cfg)
	p.sync.inFlight = &storage.Flush{}
	fill := func(size int) (n int, err error) {
		for ; ; n++ {
			putOff, err := p.putOffLocked(&appendArgs{batch: make([]byte, size), header: record.Header{RecordCount: 1}})
			if err != nil || !putOff {
				return n, err
			}
		}
	}
	for size, want := range map[int]int{1: putOffMax, 8 << 20: putOffBytesMax / (8 << 20)} {
		if n, err := fill(size); n != want || !errors.Is(err, errPutOffFull) {
			t.Errorf("%d batches of %d bytes, then %v; want %d", n, size, err, want)
		}
		for len(p.sync.putOff.appends) > 0 {
			p.sync.putOff.pop()
		}
		if p.sync.putOff.bytes != 0 {
			t.Errorf("%d bytes are left of nothing", p.sync.putOff.bytes)
		}
	}
}
