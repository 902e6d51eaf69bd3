package broker

import (
	"errors"
	"sync"
	"time"

	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// timers are what runs at intervals. Their lock is held while they run, so that
// nothing of them runs any more once stopTimers has returned.
type timers struct {
	mu      sync.Mutex
	stopped bool
	stops   [timersMax]func() bool
}

const (
	timerRetention = iota
	timerCheckpoint
	timersMax
)

func (b *Broker) startTimers() {
	b.every(timerRetention, b.static.RetentionCheck, b.retain)
	b.every(timerCheckpoint, min(b.static.CheckpointInterval, b.static.StartCheckpoint), b.checkpoint)
}

// every runs f each interval; the next one is counted from f's end.
func (b *Broker) every(timer int, interval time.Duration, f func()) {
	var tick func()
	start := func() { b.timers.stops[timer] = b.env.After(interval, tick) }
	tick = func() {
		b.unlessStopped(func() {
			f()
			start()
		})
	}
	b.unlessStopped(start)
}

// unlessStopped runs f, and keeps stopTimers waiting meanwhile.
func (b *Broker) unlessStopped(f func()) {
	b.timers.mu.Lock()
	defer b.timers.mu.Unlock()
	if !b.timers.stopped {
		f()
	}
}

func (b *Broker) stopTimers() {
	b.timers.mu.Lock()
	defer b.timers.mu.Unlock()
	b.timers.stopped = true
	for _, stop := range b.timers.stops {
		if stop != nil {
			stop()
		}
	}
}

// each calls f for every partition, in order.
func (b *Broker) each(f func(*partition)) {
	for _, t := range b.meta.Load().sorted {
		for _, p := range t.partitions {
			if p != nil {
				f(p)
			}
		}
	}
}

// retain deletes what retention says, and removes the files of what was deleted long enough ago.
func (b *Broker) retain() {
	b.each(func(p *partition) {
		if deleted := p.retain(); len(deleted) > 0 {
			last := deleted[len(deleted)-1]
			b.report(env.Info, "%s-%d: %d segments deleted, the last one begins at offset %d (%s)", p.topic, p.index, len(deleted), last.BaseOffset, last.Why)
			b.removeLater(p.cfg.Load())
		}
	})
	b.removeExpired()
}

func (p *partition) retain() (deleted []storage.DeletedSegment) {
	p.change(func() error {
		var err error
		deleted, err = p.log.Retain(p.b.env.Wall().UnixMilli(), p.committed())
		return err
	})
	return deleted
}

// change does something to the log that may fail, under the lock; a failed write takes the directory offline.
func (p *partition) change(f func() error) {
	p.step(func(fx *effects) {
		if p.usable() != nil {
			return
		}
		err := f()
		if errors.As(err, new(*storage.WriteError)) {
			fx.dirFailed = err
		} else if err != nil {
			p.b.report(env.Error, "%s-%d: %v", p.topic, p.index, err)
		}
	})
}

// removeLater looks for expired files again when a deletion's delay is over.
func (b *Broker) removeLater(cfg *Config) {
	if d := cfg.Log.FileDeleteDelayMs; d < millisMax {
		b.env.After(time.Duration(d)*time.Millisecond, func() { b.unlessStopped(b.removeExpired) })
	}
}

// removeExpired removes the files of deleted segments and partitions whose delay is over and that no region pins.
func (b *Broker) removeExpired() {
	now := b.env.Wall().UnixMilli()
	b.each(func(p *partition) {
		p.change(func() error { return p.log.RemoveExpired(now) })
	})
	for _, d := range b.dirs {
		if d.isOffline() {
			continue
		}
		if err := d.store.RemoveExpired(now); err != nil {
			b.failDir(d, err)
		}
	}
}

// checkpoint writes the recovery points, high watermarks and log start offsets of all directories. No lock is held.
func (b *Broker) checkpoint() {
	for _, d := range b.dirs {
		if d.isOffline() {
			continue
		}
		if err := d.store.Checkpoint(func() []storage.PartitionOffset { return b.highWatermarks(d) }); errors.Is(err, vfs.ErrTooManyOpen) {
			b.report(env.Warn, "no checkpoint of %s this time: %v", d.path, err)
		} else if err != nil {
			b.failDir(d, err)
		}
	}
}

// highWatermarks are those of the partitions of d, for its checkpoint. No lock is held.
func (b *Broker) highWatermarks(d *logDir) (all []storage.PartitionOffset) {
	b.each(func(p *partition) {
		if p.dir != d {
			return
		}
		if s := p.status(); !s.Offline {
			all = append(all, storage.PartitionOffset{Topic: p.topic, Partition: p.index, Offset: s.HighWatermark})
		}
	})
	return all
}
