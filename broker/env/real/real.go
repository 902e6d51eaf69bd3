// Package real is the live form of env.Env: the machine's clock, timers, files,
// and a bounded pool of goroutines for durability.
package real

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage/vfs"
	"github.com/tidemark-log/tidemark/storage/vfs/syscount"
)

const (
	// syncWorkers is how many Syncs run at once: enough to keep a disk's queue
	// busy, few enough that a stuck disk does not take a thread for each partition.
	syncWorkers = 16
	// syncQueueMax is how many Syncs may wait. Every one belongs to a request in
	// flight or to a partition's own flush, so reaching it means a disk that is
	// hopelessly behind: the Sync fails with ErrSyncQueueFull, its caller treats
	// that as a failed sync, and nothing is acknowledged. Callers never block.
	syncQueueMax = 1 << 16
)

// ErrSyncQueueFull: the disk is syncQueueMax syncs behind.
var ErrSyncQueueFull = errors.New("too many syncs are waiting for the disk")

// Env is the live env.Env.
type Env struct {
	start time.Time
	disk  vfs.FS
	log   *slog.Logger
	syncs syncPool
	peers peers
	coord string // zookeeper.connect; empty: a cluster of one
	note  *sessionNote
}

var _ env.Env = (*Env)(nil)

// New makes an environment over disk that reports to log.
func New(disk vfs.FS, log *slog.Logger) *Env {
	return &Env{start: time.Now(), disk: disk, log: log}
}

// CountPeers counts what is exchanged with other brokers. It is called before the first Send.
func (e *Env) CountPeers(c *syscount.Counters) { e.peers.counters = c }

// Now is monotonic time since New.
func (e *Env) Now() time.Duration { return time.Since(e.start) }

// Wall is the machine's clock.
func (e *Env) Wall() time.Time { return time.Now() }

// After runs f in a goroutine of its own.
func (e *Env) After(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

// Rand is the process's own generator: seeded by the operating system, and safe for concurrent use.
func (e *Env) Rand() env.Rand { return processRand{} }

type processRand struct{}

func (processRand) Uint64() uint64       { return rand.Uint64() }
func (processRand) Int64N(n int64) int64 { return rand.Int64N(n) }

// BootID is the kernel's, where it tells.
func (e *Env) BootID() string { return bootID() }

var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// Disk is the file system given to New.
func (e *Env) Disk() vfs.FS { return e.disk }

// Sync runs the steps in order in the pool, and then done.
func (e *Env) Sync(steps []vfs.Syncer, done func(error)) {
	e.syncs.add(syncJob{steps, done})
}

var levels = map[env.Level]slog.Level{env.Info: slog.LevelInfo, env.Warn: slog.LevelWarn, env.Error: slog.LevelError}

// Report writes a line to the log.
func (e *Env) Report(level env.Level, text string) {
	e.log.Log(context.Background(), levels[level], text)
}

type syncJob struct {
	steps []vfs.Syncer
	done  func(error)
}

func (j syncJob) run() {
	for _, s := range j.steps {
		if err := s.Sync(); err != nil {
			j.done(err)
			return
		}
	}
	j.done(nil)
}

// syncPool runs jobs, first come first served, on goroutines that exist only
// while there is work. Two jobs may run at once and end in either order.
type syncPool struct {
	mu      sync.Mutex
	queue   []syncJob // queue[next:] wait
	next    int
	workers int
}

func (p *syncPool) add(j syncJob) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue)-p.next >= syncQueueMax {
		go j.done(ErrSyncQueueFull) // never inside the call that registered it
		return
	}
	p.queue = append(p.queue, j)
	if p.workers < syncWorkers {
		p.workers++
		go p.work()
	}
}

func (p *syncPool) work() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.next < len(p.queue) {
		j := p.queue[p.next]
		p.queue[p.next] = syncJob{}
		if p.next++; p.next*2 >= len(p.queue) { // at most half of it is spent
			p.queue, p.next = slices.Delete(p.queue, 0, p.next), 0
		}
		p.mu.Unlock()
		j.run()
		p.mu.Lock()
	}
	p.workers--
}
