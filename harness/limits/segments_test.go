package limits

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/harness/load"
)

// rowOf reads a row of segments: the sizes of its files, and what they hold together.
func rowOf(t *testing.T, dir string) (sizes []int, all []byte) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		sizes, all = append(sizes, len(b)), append(all, b...)
	}
	return sizes, all
}

func TestSegmentsHoldWholeChunksInOrder(t *testing.T) {
	dir := t.TempDir()
	w := newSegments(dir, 1000)
	var want []byte
	for i := range 7 {
		chunk := bytes.Repeat([]byte{byte('a' + i)}, 400)
		if err := w.write(chunk); err != nil {
			t.Fatal(err)
		}
		want = append(want, chunk...)
	}
	w.close()
	if sizes, got := rowOf(t, dir); !slices.Equal(sizes, []int{800, 800, 800, 400}) || !bytes.Equal(got, want) {
		t.Errorf("files of %v bytes, or not what was written", sizes)
	}
}

// A disk that has much else to write back takes long for one file. Whoever waits for that leaves it idle in the end, and measures less than it takes.
func TestAWriterOfSegmentsDoesNotWaitForASync(t *testing.T) {
	dir, synced := t.TempDir(), make(chan string, 10)
	release := make(chan struct{})
	w := newSegmentsSynced(dir, 10, func(f *os.File) error { <-release; synced <- f.Name(); return nil })
	written := make(chan error)
	go func() {
		for range 5 {
			if err := w.write(make([]byte, 10)); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	select {
	case err := <-written:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the writer waits for a sync that has not ended")
	}
	close(release)
	for _, name := range []string{"00000000000000000000", "00000000000000000010", "00000000000000000020", "00000000000000000030"} {
		select {
		case got := <-synced:
			if filepath.Base(got) != name {
				t.Errorf("%s was synced, want %s", got, name)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s was never synced", name)
		}
	}
	w.close()
}

func TestASyncThatFailsFailsTheWriter(t *testing.T) {
	broken := errors.New("broken")
	w := newSegmentsSynced(t.TempDir(), 10, func(*os.File) error { return broken })
	var err error
	for range segmentsUnsyncedMax + 4 { // before the last of these, one sync at least has ended
		if err = w.write(make([]byte, 10)); err != nil {
			break
		}
	}
	w.close()
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func TestTheWriteLoopWritesSegments(t *testing.T) {
	dir, requests := t.TempDir(), OpaqueRequests(10_000, 1)
	addr := serve(t, ServerConfig{Mode: ModeWrite, File: dir, SegmentBytes: 100_000, FrameMax: 20_000})
	st, err := load.Bare{Addr: addr, Requests: requests, Depth: 3}.Run(t.Context(), window())
	if err != nil || st.Bytes < 1<<20 {
		t.Fatalf("%+v, %v", st.Tick, err)
	}
	rows, err := os.ReadDir(dir)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows of files for one connection, %v", len(rows), err)
	}
	n := len(requests[0]) - 4
	sizes, got := rowOf(t, filepath.Join(dir, rows[0].Name()))
	for i, size := range sizes[:len(sizes)-1] {
		if size != 100_000/n*n {
			t.Errorf("file %d has %d bytes, and a request has %d", i, size, n)
		}
	}
	for at := 0; at+n <= 1<<20; at += n {
		if want := requests[at/n%len(requests)]; !bytes.Equal(got[at+8:at+n], want[12:]) {
			t.Fatalf("request %d is not in the files as it was sent", at/n)
		}
	}
}

// fromBytes is a measured part that begins with so many bytes written.
type fromBytes struct {
	bytes, asked   int64
	opened, closed int
}

func (f *fromBytes) Begun(_ time.Time, written int64) bool {
	f.asked = written
	return written >= f.bytes
}
func (f *fromBytes) Open()  { f.opened++ }
func (f *fromBytes) Close() { f.closed++ }

// What is written before the measured part has begun is not counted.
func TestSustainedCountsFromWhenTheMeasuredPartBegins(t *testing.T) {
	w := newSegments(t.TempDir(), 4<<20)
	defer w.close()
	const before = 6 << 20
	part := &fromBytes{bytes: before}
	written, elapsed, err := sustain(t.Context(), w, time.Nanosecond, part)
	// One chunk is enough for a measurement of a nanosecond, and the question is not put again.
	if err != nil || written != 1<<20 || elapsed <= 0 || *part != (fromBytes{before, before, 1, 1}) || w.base+w.at != before+written {
		t.Errorf("%d bytes, %v; %+v, %d written", written, err, part, w.base+w.at)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := sustain(ctx, w, time.Hour, &fromBytes{bytes: 1 << 40}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
