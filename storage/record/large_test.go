package record

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
)

// One batch at a time may take the memory of a large one, whoever else waits, and the small ones do not wait.
func TestLargeBatchesAreDecompressedOneAtATime(t *testing.T) {
	bombs := map[string]func(raw []byte) error{
		"validate": func(raw []byte) error {
			_, err := Validate(raw, LevelRecords, roomy)
			return err
		},
		"recompress": func(raw []byte) error {
			_, err := Recompress(nil, raw, Zstd, roomy.DecompressedBytesMax)
			return err
		},
		"lookup by timestamp": func(raw []byte) error {
			_, _, ok, err := AtTime(raw, sampleTs, 0)
			if err == nil && !ok {
				err = errors.New("not found")
			}
			return err
		},
	}
	for _, c := range codecs[1:] {
		b := NewBuilder(c)
		b.Append(sampleTs, nil, make([]byte, bufferKeepMax))
		raw := b.Build(nil)
		for name, use := range bombs {
			large.Lock()
			done := make(chan error, 1)
			go func() { done <- use(raw) }()
			if _, err := Validate(sample(c), LevelRecords, roomy); err != nil {
				t.Errorf("%s: a small batch: %v", c, err)
			}
			for !waitsForLarge() {
				select {
				case err := <-done:
					t.Fatalf("%s, %s: a batch of more than %d bytes did not wait for another one (%v)", c, name, bufferKeepMax, err)
				default:
					runtime.Gosched()
				}
			}
			large.Unlock()
			if err := <-done; err != nil {
				t.Errorf("%s, %s: %v", c, name, err)
			}
		}
	}
}

// waitsForLarge is true when a goroutine stands at the lock.
func waitsForLarge() bool {
	stacks := make([]byte, 1<<20)
	for s := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
		if bytes.Contains(s, []byte("[sync.Mutex.Lock")) && bytes.Contains(s, []byte("withDecompressed")) {
			return true
		}
	}
	return false
}
