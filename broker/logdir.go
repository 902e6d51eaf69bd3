package broker

import (
	"slices"
	"sync/atomic"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage"
)

// logDir is one of log.dirs. Once offline it stays so until the broker starts
// again, since nobody knows what its files hold; other directories go on.
type logDir struct {
	path       string
	store      *storage.Dir
	partitions atomic.Int32 // that live here
	failed     atomic.Bool  // failDir has seen to it
	unopened   atomic.Bool  // a partition of it could not be opened
}

// isOffline is true from the failed write or sync on, which the store notes itself.
func (d *logDir) isOffline() bool { return d.failed.Load() || d.store.Offline() != nil }

// allOffline is true when no log directory takes new partitions.
func (b *Broker) allOffline() bool {
	return !slices.ContainsFunc(b.dirs, func(d *logDir) bool { return !d.isOffline() })
}

// anyOffline is true when a log directory is.
func (b *Broker) anyOffline() bool {
	return slices.ContainsFunc(b.dirs, (*logDir).isOffline)
}

// failDir takes a log directory offline after a failed write or sync. Nothing of
// it is acknowledged after this: what waits for its syncs is answered with an
// error here, and usable refuses what comes.
func (b *Broker) failDir(d *logDir, err error) {
	if d.failed.Swap(true) {
		return
	}
	d.store.Fail(err)
	b.report(env.Error, "log directory %s is offline until the broker is restarted, its partitions answer KAFKA_STORAGE_ERROR: %v", d.path, err)
	for _, t := range b.meta.Load().sorted {
		for _, p := range t.partitions {
			if p != nil && p.dir == d {
				p.fail()
			}
		}
	}
	if b.replicated() && b.rules.TellLogDirFailure {
		b.tellDirFailed(b.member.registered.Load())
	}
}

// tellDirFailed tells the controller that a directory went offline, so that others lead
// what was led from there. It is tried again until it is told, or another registration has
// come: it tells anew.
func (b *Broker) tellDirFailed(registered int64) {
	if registered < 0 || registered != b.member.registered.Load() || b.state.Load() >= stateStopping {
		return
	}
	b.cluster.client().Create(coord.LogDirEventPrefix, coord.EncodeLogDirEvent(b.static.BrokerID), coord.Sequential, func(_ string, _ coord.Stat, err error) {
		if err != nil {
			b.env.After(coordRetry, func() { b.tellDirFailed(registered) })
		}
	})
}

// fail answers what waits at a partition of a directory that went offline.
func (p *partition) fail() {
	p.step(func(fx *effects) { p.failWaiters(fx, storage.ErrStorage) })
}
