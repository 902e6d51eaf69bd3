package broker

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-log/tidemark/storage"
)

// partition is one partition that this broker leads.
//
// Its lock orders appends, reads and flushes. What follows from a step and
// reaches outside (acks, woken fetches, a sync, a failed directory) is collected
// in an effects value and carried out after unlock, in order.
type partition struct {
	b     *Broker
	dir   *logDir
	topic string
	index int32
	epoch int32 // leader epoch; one per incarnation of the broker

	cfg atomic.Pointer[Config] // the broker's configuration with the topic's over it

	mu  sync.Mutex
	log storage.Log // nil when the directory was offline at start
	// gone is set when the topic is deleted or the broker stops: nothing is
	// appended or read after it.
	gone error

	sync syncState

	// Bytes since open: appended, and of those visible to consumers. Waiting
	// fetches count what they wait for by the second.
	appendedBytes, visibleBytes int64
	visible                     int64 // offset up to which consumers may read
	waiting                     fetchWaitList
}

var (
	errGone     = &storage.ProtocolError{Code: codeUnknownTopicOrPartition, Name: "UNKNOWN_TOPIC_OR_PARTITION"}
	errStopping = &storage.ProtocolError{Code: codeLeaderNotAvailable, Name: "LEADER_NOT_AVAILABLE"}
)

// usable says whether the partition may be written and read; called under its lock.
func (p *partition) usable() error {
	switch {
	case p.gone != nil:
		return p.gone
	case p.log == nil || p.dir.offline.Load():
		return storage.ErrStorage
	}
	return nil
}

// append writes validated batches of records in all and says where they went. wait is called
// once, after the sync that the flush policy asks for, if it asks for one before
// the ack; waits says so.
func (p *partition) append(batches []byte, records int64, acks int16, wait func(error)) (a storage.Appended, waits bool, err error) {
	var fx effects
	p.mu.Lock()
	a, waits, err = p.appendLocked(&fx, batches, records, acks, wait)
	p.mu.Unlock()
	p.b.carryOut(p, &fx)
	return a, waits, err
}

func (p *partition) appendLocked(fx *effects, batches []byte, records int64, acks int16, wait func(error)) (a storage.Appended, waits bool, err error) {
	if err := p.usable(); err != nil {
		return a, false, err
	}
	a, err = p.log.Append(batches, storage.AppendArgs{LeaderEpoch: p.epoch, Now: p.b.env.Wall().UnixMilli()})
	if err != nil {
		var failed *storage.WriteError
		if errors.As(err, &failed) {
			fx.dirFailed = err
			return a, false, storage.ErrStorage
		}
		return a, false, err
	}
	cfg := p.cfg.Load()
	flushNow := a.Rolled
	if !a.Duplicate {
		p.appendedBytes += int64(a.Bytes)
		p.sync.unflushed += records
		if p.sync.unflushed >= cfg.Log.FlushMessages {
			flushNow, waits = true, acks != 0
		}
		if cfg.Visibility != VisibleFlushed {
			p.advanceVisible(fx, p.log.LogEndOffset(), p.appendedBytes)
		}
		p.startFlushTimer(cfg)
	}
	if cfg.FlushGroup && acks != 0 {
		flushNow, waits = true, true
	}
	// An ack promises durability here: a resend of a batch whose first sync is
	// still under way has to wait for it like the first send.
	if waits {
		p.sync.wait(a.LastOffset+1, wait)
	}
	if flushNow {
		p.flushLocked(fx)
	}
	return a, waits, nil
}

// advanceVisible moves the offset up to which consumers may read, never back, and
// wakes the fetches that have enough.
func (p *partition) advanceVisible(fx *effects, to, bytes int64) {
	if to <= p.visible {
		return
	}
	p.visible, p.visibleBytes = to, bytes
	p.waiting.advance(fx, bytes)
}

// startFlushTimer sees to log.flush.interval.ms: one timer runs while something is unsynced.
func (p *partition) startFlushTimer(cfg *Config) {
	if p.sync.timer != nil || cfg.Log.FlushMs >= millisMax {
		return
	}
	p.sync.timer = p.b.env.After(time.Duration(cfg.Log.FlushMs)*time.Millisecond, func() {
		var fx effects
		p.mu.Lock()
		p.sync.timer = nil
		if p.usable() == nil {
			p.flushLocked(&fx)
		}
		p.mu.Unlock()
		p.b.carryOut(p, &fx)
	})
}

// stop ends the partition's life in this incarnation: everything that waits is
// answered with why, and nothing follows. The log is closed by the caller.
func (p *partition) stop(why error) {
	var fx effects
	p.mu.Lock()
	p.gone = why
	p.failWaiters(&fx, why)
	p.mu.Unlock()
	p.b.carryOut(p, &fx)
}

// failWaiters answers everything that waits, since what it waits for will not come.
func (p *partition) failWaiters(fx *effects, why error) {
	if p.sync.timer != nil {
		p.sync.timer()
		p.sync.timer = nil
	}
	fx.acks = append(fx.acks, p.sync.take(noLimit, why)...)
	p.waiting.wakeAll(fx)
}
