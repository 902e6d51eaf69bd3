package workers

import (
	"runtime"
	"sync"
	"testing"
)

// TestEachFunctionRunsAtOnce: none waits for another to end, and all run once.
func TestEachFunctionRunsAtOnce(t *testing.T) {
	for range 3 {
		var started, done sync.WaitGroup
		release := make(chan struct{})
		ran := make([]int, 3*idleMax)
		for i := range ran {
			started.Add(1)
			done.Add(1)
			Go(func() {
				ran[i]++
				started.Done()
				<-release
				done.Done()
			})
		}
		started.Wait() // all of them, though none has ended
		close(release)
		done.Wait()
		for i, n := range ran {
			if n != 1 {
				t.Fatalf("function %d ran %d times", i, n)
			}
		}
	}
}

func TestFewGoroutinesAreKept(t *testing.T) {
	before := runtime.NumGoroutine()
	var done sync.WaitGroup
	release := make(chan struct{})
	for range 10 * idleMax {
		done.Add(1)
		Go(func() { <-release; done.Done() })
	}
	close(release)
	done.Wait()
	for runtime.NumGoroutine() > before+idleMax {
		runtime.Gosched()
	}
}

var sink int

//go:noinline
func deep(n int) int {
	var b [256]byte
	if n == 0 {
		return int(b[n])
	}
	return deep(n-1) + int(b[n%256])
}

func BenchmarkDeepWork(b *testing.B) {
	for name, run := range map[string]func(func()){"go": func(f func()) { go f() }, "kept": Go} {
		b.Run(name, func(b *testing.B) {
			done := make(chan struct{})
			for b.Loop() {
				run(func() { sink = deep(60); done <- struct{}{} })
				<-done
			}
		})
	}
}
