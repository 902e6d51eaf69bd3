package real

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

type syncFunc func() error

func (f syncFunc) Sync() error { return f() }

func TestSyncRunsItsStepsInOrderAndStopsAtTheFirstFailure(t *testing.T) {
	e := New(nil, slog.Default())
	broken := errors.New("broken disk")
	var ran []string
	step := func(name string, err error) vfs.Syncer {
		return syncFunc(func() error { ran = append(ran, name); return err })
	}
	done := make(chan error)
	e.Sync([]vfs.Syncer{step("file", nil), step("directory", broken), step("never", nil)}, func(err error) { done <- err })
	if err := <-done; !errors.Is(err, broken) || len(ran) != 2 {
		t.Errorf("ran %v, %v", ran, err)
	}
	e.Sync(nil, func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Errorf("nothing to sync: %v", err)
	}
}

func TestSyncNeverBlocksItsCallerAndSaysSoAtTheBound(t *testing.T) {
	e := New(nil, slog.Default())
	stuck := make(chan struct{})
	var running, most atomic.Int32
	disk := []vfs.Syncer{syncFunc(func() error {
		n := running.Add(1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		<-stuck
		running.Add(-1)
		return nil
	})}
	const over = 10
	var refused, ok atomic.Int32
	var all sync.WaitGroup
	early := make(chan struct{}, over)
	for range syncQueueMax + syncWorkers + over {
		all.Add(1)
		e.Sync(disk, func(err error) {
			defer all.Done()
			switch {
			case err == nil:
				ok.Add(1)
			case errors.Is(err, ErrSyncQueueFull):
				refused.Add(1)
				early <- struct{}{}
			}
		})
	}
	// At least `over` were too many: up to syncWorkers more, when workers had not begun yet.
	for range over {
		<-early
	}
	go func() {
		for range early {
		}
	}()
	close(stuck)
	all.Wait()
	if n := most.Load(); n > syncWorkers {
		t.Errorf("%d syncs ran at once", n)
	}
	if r, o := refused.Load(), ok.Load(); r < over || r > over+syncWorkers || r+o != syncQueueMax+syncWorkers+over {
		t.Errorf("%d refused, %d done", r, o)
	}
	close(early)
}

func TestAStoppedTimerDoesNotFire(t *testing.T) {
	e := New(nil, slog.Default())
	fired := make(chan time.Duration, 1)
	stop := e.After(time.Hour, func() { t.Error("fired after it was stopped") })
	if !stop() || stop() {
		t.Error("stop should report true, then false")
	}
	const d = 5 * time.Millisecond
	began := e.Now()
	e.After(d, func() { fired <- e.Now() })
	if at := <-fired; at-began < d {
		t.Errorf("fired after %v, before %v", at-began, d)
	}
}

func TestRandMayBeUsedFromManyGoroutines(t *testing.T) {
	e := New(nil, slog.Default())
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				v := e.Rand().Uint64()
				mu.Lock()
				seen[v] = true
				mu.Unlock()
				if n := e.Rand().Int64N(3); n < 0 || n > 2 {
					t.Errorf("Int64N(3) = %d", n)
				}
			}
		})
	}
	all.Wait()
	if len(seen) != 800 {
		t.Errorf("%d distinct of 800", len(seen))
	}
}

func TestReportsBecomeLogLines(t *testing.T) {
	var b bytes.Buffer
	e := New(nil, slog.New(slog.NewTextHandler(&b, nil)))
	e.Report(env.Error, "log directory /a is offline")
	if s := b.String(); !bytes.Contains(b.Bytes(), []byte("level=ERROR")) || !bytes.Contains(b.Bytes(), []byte("/a is offline")) {
		t.Error(s)
	}
}
