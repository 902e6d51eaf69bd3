package coord_test

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env/real"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Many goroutines over the live Env: each answer comes once, each number is given once.
func TestConcurrentCallsAreAnsweredOnceEach(t *testing.T) {
	l, err := coord.OpenLocal(liveWorld{real.New(vfs.NewReal(t.TempDir(), nil), slog.New(slog.DiscardHandler))}, "data")
	if err != nil {
		t.Fatal(err)
	}
	const clients, each = 8, 50
	var mu sync.Mutex
	numbers := map[string]int{}
	events := 0
	var wg sync.WaitGroup
	for range clients {
		wg.Add(each * 2)
		go func() {
			for range each {
				l.Create("/n-", nil, coord.Sequential, func(path string, _ coord.Stat, err error) {
					defer wg.Done()
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					}
					numbers[path]++
				})
				l.Children("/", func(coord.Event) { mu.Lock(); events++; mu.Unlock() }, func([]string, coord.Stat, error) { wg.Done() })
			}
		}()
	}
	wg.Wait()
	done := make(chan error)
	l.Close(func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(numbers) != clients*each || events == 0 || events > clients*each {
		t.Errorf("%d numbers of %d, %d events", len(numbers), clients*each, events)
	}
}

// liveWorld is the live environment as Local wants it.
type liveWorld struct{ *real.Env }

func (liveWorld) Warn(string)  {}
func (liveWorld) Error(string) {}
