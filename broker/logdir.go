package broker

import (
	"fmt"
	"sync/atomic"

	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage"
)

// logDir is one of log.dirs. Once offline it stays so until the broker starts
// again, since nobody knows what its files hold; other directories go on.
type logDir struct {
	path    string
	offline atomic.Bool
}

// failDir takes a log directory offline after a failed write or sync. Nothing of
// it is acknowledged after this: what waits for its syncs is answered with an
// error here, and usable refuses what comes.
func (b *Broker) failDir(d *logDir, err error) {
	if d.offline.Swap(true) {
		return
	}
	b.env.Report(env.Error, fmt.Sprintf("log directory %s is offline until the broker is restarted, its partitions answer KAFKA_STORAGE_ERROR: %v", d.path, err))
	for _, t := range b.meta.Load().sorted {
		for _, p := range t.partitions {
			if p.dir == d {
				p.fail()
			}
		}
	}
}

// fail answers what waits at a partition of a directory that went offline.
func (p *partition) fail() {
	var fx effects
	p.mu.Lock()
	p.failWaiters(&fx, storage.ErrStorage)
	p.mu.Unlock()
	p.b.carryOut(p, &fx)
}
