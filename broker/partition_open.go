package broker

import (
	"sync/atomic"

	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// opensInFlightMax bounds how many partitions are opened, or removed, side by side.
const opensInFlightMax = 64

// openAll opens the logs of new partitions, or creates them, and then calls done.
// It is work of the disk that takes time, syncs included, so it goes where syncs
// go: side by side in a live broker. A partition that cannot be opened is there
// all the same, and answers KAFKA_STORAGE_ERROR.
func (b *Broker) openAll(parts []*partition, done func()) {
	b.sideBySide(len(parts), func(i int) vfs.Syncer { return opening{parts[i]} }, func(i int, err error) {
		if err != nil {
			parts[i].openFailed(err)
		}
	}, done)
}

// sideBySide has the environment do n pieces of work, so many at a time, and calls
// ended after each and done after all.
func (b *Broker) sideBySide(n int, work func(int) vfs.Syncer, ended func(int, error), done func()) {
	end := newCountdown(n, done)
	var next atomic.Int64
	var step func()
	step = func() {
		i := int(next.Add(1) - 1)
		if i >= n {
			return
		}
		b.env.Sync([]vfs.Syncer{work(i)}, func(err error) {
			ended(i, err)
			step()
			end.done()
		})
	}
	for range min(n, opensInFlightMax) {
		step()
	}
	end.done()
}

// newPartition makes partition index of t, whose log openAll opens in d.
func (b *Broker) newPartition(t *topic, index int32, d *logDir, cfg *Config) *partition {
	p := &partition{b: b, dir: d, topic: t.name, id: t.id, index: index, epoch: b.epoch}
	p.cfg.Store(cfg)
	return p
}

// opening is a partition's opening as the environment runs it. Nobody else knows
// the partition yet, so it needs no lock.
type opening struct{ p *partition }

func (o opening) Sync() error {
	p := o.p
	cfg := p.cfg.Load()
	log, found, err := p.dir.store.Open(p.topic, p.id, p.index, cfg.Log, p.b.env.Wall().UnixMilli())
	p.reportRecovery(found)
	if err != nil {
		return err
	}
	if p.b.replicated() {
		hw, _ := p.dir.store.HighWatermark(p.topic, p.index) // 0 where the checkpoint does not name it
		if !p.b.rules.HWCheckpointComplete {
			hw = 0 // as when the checkpoint was written while some partitions were not loaded yet (B9)
		}
		hw = max(hw, log.LogStartOffset()) // what was deleted had been committed
		p.log = p.observed(log, hw)
		p.replicate(hw)
		return nil
	}
	p.visible = log.LogEndOffset()
	if cfg.Visibility == VisibleFlushed {
		p.visible = log.FlushedOffset()
	}
	p.log = p.observed(log, p.visible)
	return nil
}

// adopt makes a log that was found at the start a topic's, before anybody else sees it.
func (p *partition) adopt(t *topic, cfg *Config) {
	p.mu.Lock()
	p.id = t.id
	p.mu.Unlock()
	p.setConfig(cfg)
}

func (p *partition) reportRecovery(found storage.RecoveryReport) {
	for i := range found.Damage {
		p.b.report(env.Error, "%s-%d: %v", p.topic, p.index, &found.Damage[i])
	}
	if found.TruncatedBytes > 0 {
		p.b.report(env.Warn, "%s-%d: %d bytes cut from the end: a tail that was torn by a crash", p.topic, p.index, found.TruncatedBytes)
	}
}

func (p *partition) openFailed(err error) {
	p.log = nil
	p.dir.unopened.Store(true)
	if failed := p.dir.store.Offline(); failed != nil {
		p.b.failDir(p.dir, failed)
		return
	}
	p.b.report(env.Error, "partition %s-%d is offline: %v", p.topic, p.index, err)
}

// flushRecovered makes durable what recovery found behind the recovery point:
// it was in the page cache at most.
func (p *partition) flushRecovered() {
	p.step(func(fx *effects) {
		if p.usable() == nil && p.log.FlushedOffset() < p.log.LogEndOffset() {
			p.sync.recovered = p.log.LogEndOffset()
			p.flushLocked(fx)
		}
	})
}

// settlesInFlightMax leaves most of the environment's syncs to others.
const settlesInFlightMax = 8

// settleAll has the logs that a killed process left settled while the broker waits for
// its registration: a change that comes earlier settles its log itself.
func (b *Broker) settleAll(parts []*partition) {
	var next atomic.Int64
	var step func()
	step = func() {
		for i := next.Add(1) - 1; i < int64(len(parts)); i = next.Add(1) - 1 {
			if parts[i].settle() {
				parts[i].whenIdle(step)
				return
			}
		}
	}
	for range min(len(parts), settlesInFlightMax) {
		step()
	}
}

// settle begins the sync that the first change of the log would need; false when there is none to do.
func (p *partition) settle() (begun bool) {
	p.step(func(fx *effects) {
		if p.usable() != nil || p.sync.inFlight != nil {
			return
		}
		if f := p.log.BeginSettling(); f != nil {
			p.sync.inFlight, begun = f, true
			fx.sync, fx.syncBytes = f, p.appendedBytes
		}
	})
	return begun
}
