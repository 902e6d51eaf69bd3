package broker

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/record"
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
	id    topicID
	index int32
	epoch int32 // leader epoch; in a cluster of one, one per incarnation of the broker

	cfg atomic.Pointer[Config] // the broker's configuration with the topic's over it

	mu  sync.Mutex
	log storage.Log // nil when the directory was offline at start
	// gone is set when the topic is deleted or the broker stops: nothing is
	// appended or read after it.
	gone error

	sync syncState
	repl *replication // nil in a cluster of one

	// Bytes since open: appended, and of those visible to consumers. Waiting
	// fetches count what they wait for by the second.
	appendedBytes, visibleBytes int64
	visible                     int64 // offset up to which consumers may read

	readReported bool // a failed read was reported less than reportInterval ago
	waiting      fetchWaitList
}

var (
	errGone     = &storage.ProtocolError{Code: codeUnknownTopicOrPartition, Name: "UNKNOWN_TOPIC_OR_PARTITION"}
	errStopping = &storage.ProtocolError{Code: codeLeaderNotAvailable, Name: "LEADER_NOT_AVAILABLE"}
)

// remove deletes the files of a stopped partition; no sync is in flight. Regions that fetches still hold pin them.
func (p *partition) remove() {
	p.dir.partitions.Add(-1)
	if p.log == nil || p.dir.isOffline() {
		return // a later start carries the deletion on
	}
	o := p.b.observer
	if o != nil {
		o.LogRemoves(p.topic, p.index)
	}
	if err := p.dir.store.Delete(p.topic, p.index, p.b.env.Wall().UnixMilli()); err != nil {
		p.b.failDir(p.dir, err)
		return
	}
	if o != nil {
		o.LogRemoved(p.topic, p.index)
	}
}

// removing is a stopped partition's removal as the environment runs it.
type removing struct{ p *partition }

func (r removing) Sync() error {
	r.p.remove()
	return nil
}

// usable says whether the partition may be written and read; called under its lock.
func (p *partition) usable() error {
	switch {
	case p.gone != nil:
		return p.gone
	case p.log == nil || p.dir.isOffline():
		return storage.ErrStorage
	}
	return nil
}

// step runs f under the lock and then carries out what it left to do. The lock is
// given back whatever happens: a panic must not make a hang of it.
func (p *partition) step(f func(*effects)) {
	var fx effects
	func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		f(&fx)
	}()
	p.b.carryOut(p, &fx)
}

// appendArgs is a validated batch and who is told of it.
type appendArgs struct {
	batch   []byte
	header  record.Header // as it was produced
	acks    int16
	timeout time.Duration // of acks=all
	owner   appendOwner
}

// appendOwner hears what append could not say.
type appendOwner interface {
	// synced is called once, after the sync that the ack has to wait for, when there is one.
	synced(error)
	// placed is called with the outcome of an append that was put off.
	placed(appended)
}

// appended says where a batch went. Where the flush policy asks for a sync before the ack, waits is true.
type appended struct {
	storage.Appended
	waits bool
	err   error
}

// append writes a batch and says where it went, or puts it off behind the syncs of
// those before it. woken are fetches that the caller completes after it has answered.
func (p *partition) append(args *appendArgs) (a appended, putOff bool, woken wokenFetches) {
	var fx effects
	func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if a.err = p.usable(); a.err != nil {
			return
		}
		if putOff, a.err = p.putOffLocked(args); !putOff && a.err == nil {
			a = p.appendLocked(&fx, args)
		}
	}()
	woken, fx.woken = fx.woken, wokenFetches{}
	p.b.carryOut(p, &fx)
	return a, putOff, woken
}

func (p *partition) appendLocked(fx *effects, args *appendArgs) appended {
	a, waits, err := p.appendAndFlush(fx, args)
	return appended{a, waits, err}
}

func (p *partition) appendAndFlush(fx *effects, args *appendArgs) (a storage.Appended, waits bool, err error) {
	cfg, now := p.cfg.Load(), p.b.env.Wall().UnixMilli()
	if !p.leads() {
		return a, false, errNotLeader
	}
	if p.repl != nil && args.acks == -1 && !p.repl.leader.MayAppendAll() {
		return a, false, errNotEnough
	}
	if err := checkCreateTime(&args.header, cfg, now); err != nil {
		return storage.Appended{LogStartOffset: -1}, false, err
	}
	if a, err = p.write(fx, args.batch, now); err != nil {
		return a, false, err
	}
	if !a.Duplicate {
		p.noteWritten(fx, &a, args, cfg)
	}
	flushNow, waits := p.durability(&a, args, cfg)
	if p.repl != nil && args.acks == -1 {
		// The high watermark says when: it counts what is synced, where the ack promises that.
		if waits = p.repl.leader.AckOffset() <= a.LastOffset; waits {
			p.waitCommitted(a.LastOffset+1, args.timeout, args.owner.synced)
		}
	} else {
		if f := &cfg.Faults; f.AckBeforeSync || f.AckResendEarly && a.Duplicate {
			waits = false
		}
		if waits {
			p.sync.wait(a.LastOffset+1, args.owner.synced)
		}
	}
	if flushNow {
		p.flushLocked(fx)
	}
	return a, waits, nil
}

// write appends to the log. A write that failed leaves nobody knows what: the directory is given up.
func (p *partition) write(fx *effects, batch []byte, now int64) (storage.Appended, error) {
	a, err := p.log.Append(batch, storage.AppendArgs{LeaderEpoch: p.epoch, Now: now})
	if err == nil {
		return a, nil
	}
	if _, failed := errors.AsType[*storage.WriteError](err); failed {
		fx.dirFailed = err
		return a, storage.ErrStorage
	}
	if codeOf(err) == codeStorageError {
		p.reportRead("an append", err) // nothing was written, and the next may succeed
	}
	return a, err
}

// noteWritten tells followers, and consumers that need not wait for more, of a batch that was appended.
func (p *partition) noteWritten(fx *effects, a *storage.Appended, args *appendArgs, cfg *Config) {
	p.appendedBytes += int64(a.Bytes)
	p.sync.unflushed += int64(args.header.RecordCount)
	if p.repl != nil {
		p.replicaAppended(fx)
	} else if cfg.Visibility != VisibleFlushed || cfg.Faults.ServeUnflushed {
		p.advanceVisible(fx, p.log.LogEndOffset(), p.appendedBytes)
	}
	p.startFlushTimer(cfg)
}

// durability says whether a sync begins now, and whether the ack waits for one.
func (p *partition) durability(a *storage.Appended, args *appendArgs, cfg *Config) (flushNow, waits bool) {
	flushNow = a.Rolled
	if !a.Duplicate && p.sync.unflushed >= cfg.Log.FlushMessages {
		flushNow, waits = true, args.acks != 0
	}
	if cfg.FlushGroup && args.acks != 0 {
		flushNow, waits = true, true
	}
	// The high watermark counts this log as far as it is synced, so without a sync it would
	// never pass the last acks=0 batch (L7).
	if p.repl != nil && cfg.durableBeforeAck() && !a.Duplicate {
		flushNow = true
	}
	// Where an ack promises durability, a resend of a batch whose first sync is
	// still under way has to wait for it like the first send: its connection may
	// have broken and come back in the meantime. So has one of a batch that a kill
	// left in the page cache: nothing waits for its sync in this incarnation.
	if a.Duplicate && args.acks != 0 {
		again := cfg.Log.FlushMessages == 1 && a.LastOffset >= p.log.FlushedOffset()
		flushNow = flushNow || again
		waits = waits || again || p.sync.awaits(a.LastOffset+1)
	}
	return flushNow, waits
}

// reportInterval keeps clients that read a damaged place again and again from filling the log.
const reportInterval = time.Minute

// reportRead tells of a read that failed, or of an append that wrote nothing, once an interval. Called under the lock.
func (p *partition) reportRead(what string, err error) {
	if p.readReported {
		return
	}
	p.readReported = true
	p.b.report(env.Error, "%s of %s-%d: %v", what, p.topic, p.index, err)
	p.b.env.After(reportInterval, func() { p.step(func(*effects) { p.readReported = false }) })
}

// advanceVisible moves the offset up to which consumers may read, never back, and
// wakes the fetches that have enough.
func (p *partition) advanceVisible(fx *effects, to, bytes int64) {
	if to <= p.visible {
		return
	}
	p.visible, p.visibleBytes = to, bytes
	if o := p.b.observer; o != nil {
		o.HighWatermark(p.topic, p.index, to, nil)
	}
	p.waiting.advance(fx, bytes, false)
}

// startFlushTimer sees to log.flush.interval.ms: one timer runs while something is unsynced.
func (p *partition) startFlushTimer(cfg *Config) {
	if p.sync.timer != nil || cfg.Log.FlushMs >= millisMax {
		return
	}
	p.sync.timer = p.b.env.After(time.Duration(cfg.Log.FlushMs)*time.Millisecond, func() {
		p.step(func(fx *effects) {
			p.sync.timer = nil
			if p.usable() == nil {
				p.flushLocked(fx)
			}
		})
	})
}

// stop ends the partition's life in this incarnation: everything that waits is
// answered with why, and nothing follows. The log is closed by the caller.
func (p *partition) stop(why error) {
	p.step(func(fx *effects) {
		p.gone = why
		p.failWaiters(fx, why)
	})
}

// failWaiters answers everything that waits, since what it waits for will not come.
func (p *partition) failWaiters(fx *effects, why error) {
	if p.sync.timer != nil {
		p.sync.timer()
		p.sync.timer = nil
	}
	fx.acks = append(fx.acks, p.sync.take(noLimit, why)...)
	p.failCommitWaiters(fx, why)
	p.failPutOff(fx, why)
	p.waiting.wakeAll(fx)
}
