package broker

import (
	"fmt"
	"path"

	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// Start opens the log directories, loads the metadata, recovers the partitions,
// and calls ready; after an error the broker is of no use. It is called once.
func (b *Broker) Start(ready func(error)) {
	if !b.state.CompareAndSwap(stateNew, stateStarting) {
		panic("BUG: broker: Start called twice")
	}
	if err := b.openDirs(); err != nil {
		b.closeDirs(false)
		ready(err)
		return
	}
	if b.replicated() {
		b.openHeld(func(err error) {
			if err == nil {
				b.member.join(ready)
				return
			}
			b.closeDirs(false)
			ready(err)
		})
		return
	}
	b.openCluster(func(r clusterRecord, err error) {
		var topics []*topic
		if err == nil {
			topics, err = b.load(r)
		}
		if err != nil {
			b.closeDirs(false)
			ready(err)
			return
		}
		var parts []*partition
		for _, t := range topics {
			parts = append(parts, t.partitions...)
		}
		b.openAll(parts, func() {
			b.meta.Store(newMetadata(r.id, topics))
			b.each((*partition).flushRecovered)
			b.startTimers()
			b.state.Store(stateRunning)
			ready(nil)
		})
	})
}

// serve lets requests in. It is called before the first registration, and again before later ones.
func (b *Broker) serve() {
	if b.state.CompareAndSwap(stateStarting, stateRunning) {
		b.startTimers()
	}
}

// openDirs takes the log directories for this process.
func (b *Broker) openDirs() error {
	for _, d := range b.dirs {
		store, err := storage.OpenDir(b.env.Disk(), d.path, storage.Identity{BrokerID: b.static.BrokerID})
		if err != nil {
			return err
		}
		d.store = store
		if b.cache != nil {
			store.SetBlockCache(b.cache)
		}
		if b.static.Log.Cache == storage.CacheDirect {
			if err := store.CheckDirect(); err != nil {
				return err
			}
		}
		for _, w := range store.Warnings() {
			b.env.Report(env.Warn, w)
		}
	}
	return nil
}

// closeDirs gives the directories back. Under clean each gets the mark of a clean
// shutdown that is entitled to it: offline ones are not, nor is one with a
// partition that could not be opened, and so was not recovered.
func (b *Broker) closeDirs(clean bool) error {
	var first error
	for _, d := range b.dirs {
		if d.store == nil {
			continue
		}
		if err := d.store.Close(clean && !d.unopened.Load(), b.cleanEpoch()); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// closeLogs closes all logs as a clean shutdown does, side by side. What fails keeps its directory's mark away.
func (b *Broker) closeLogs(done func()) {
	var steps []vfs.Syncer
	for _, d := range b.dirs {
		if d.store != nil {
			steps = append(steps, d.store.Closing()...)
		}
	}
	b.sideBySide(len(steps), func(i int) vfs.Syncer { return steps[i] }, func(int, error) {}, done)
}

// load brings what the cluster knows into force, and gives the topics with their
// partitions still to be opened.
func (b *Broker) load(r clusterRecord) ([]*topic, error) {
	if err := b.claimDirs(r.id); err != nil {
		return nil, err
	}
	b.epoch = r.epoch
	cfg, err := b.static.withDynamic(r.dynamic)
	if err != nil {
		return nil, fmt.Errorf("settings of broker %d, stored by AlterConfigs: %w", b.static.BrokerID, err)
	}
	b.cfg.Store(&cfg)
	places, err := b.places(r.topics)
	if err != nil {
		return nil, err
	}
	topics := make([]*topic, len(r.topics))
	for i, record := range r.topics {
		t := &topic{name: record.name, id: record.id, overrides: record.overrides}
		cfg := b.topicConfig(t.overrides)
		for index := range record.partitions {
			place := places[partitionName{t.name, int32(index)}]
			if place == nil {
				place = b.emptiestDir()
				b.report(env.Warn, "partition %s-%d is in none of the log directories: it begins empty in %s", t.name, index, place.path)
			}
			t.partitions = append(t.partitions, b.newPartition(t, int32(index), place, cfg))
		}
		topics[i] = t
	}
	return topics, nil
}

// claimDirs holds each directory against the cluster it should belong to.
func (b *Broker) claimDirs(clusterID string) error {
	for _, d := range b.dirs {
		switch d.store.ClusterID() {
		case clusterID:
		case "":
			if err := d.store.SetClusterID(clusterID); err != nil {
				return err
			}
		default:
			where := path.Join(b.dirs[0].path, metadataDir)
			if b.replicated() {
				where = "zookeeper.connect=" + b.static.ZooKeeperConnect
			}
			return fmt.Errorf("log directory %s belongs to cluster %s, and the metadata in %s is that of cluster %s: use the directories of one cluster in log.dirs, or empty ones",
				d.path, d.store.ClusterID(), where, clusterID)
		}
	}
	return nil
}

type partitionName struct {
	topic string
	index int32
}

// places finds the directory of each partition. What a deletion left that a crash
// cut short, of topics that are no more, is deleted here.
func (b *Broker) places(topics []topicRecord) (map[partitionName]*logDir, error) {
	known := make(map[string]*topicRecord, len(topics))
	for i := range topics {
		known[topics[i].name] = &topics[i]
	}
	places := map[partitionName]*logDir{}
	for _, d := range b.dirs {
		found, err := d.store.Partitions()
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			name := partitionName{f.Topic, f.Partition}
			t := known[f.Topic]
			if t == nil || f.TopicID != [16]byte{} && f.TopicID != t.id || int(f.Partition) >= t.partitions {
				b.report(env.Info, "partition %s-%d in %s is of a deleted topic: its deletion is carried on", f.Topic, f.Partition, d.path)
				if err := d.store.Delete(f.Topic, f.Partition, b.env.Wall().UnixMilli()); err != nil {
					return nil, err
				}
				continue
			}
			if other := places[name]; other != nil {
				return nil, errTwice(name, other, d)
			}
			places[name] = d
			d.partitions.Add(1)
		}
	}
	return places, nil
}

func errTwice(p partitionName, one, other *logDir) error {
	return fmt.Errorf("partition %s-%d is both in %s and in %s: move one of them away", p.topic, p.index, one.path, other.path)
}

// emptiestDir is where a new partition goes: the directory with fewest, the
// first of them; an offline one only when all are.
func (b *Broker) emptiestDir() *logDir {
	best := b.dirs[0]
	for _, d := range b.dirs[1:] {
		if best.isOffline() && !d.isOffline() || d.isOffline() == best.isOffline() && d.partitions.Load() < best.partitions.Load() {
			best = d
		}
	}
	best.partitions.Add(1)
	return best
}

// Shutdown refuses new requests, answers what waits, flushes everything, and
// leaves checkpoints and the mark of a clean shutdown. It is called once, after Start's ready.
func (b *Broker) Shutdown(done func(error)) {
	b.GiveAway(func() { b.shutdown(done) })
}

func (b *Broker) shutdown(done func(error)) {
	b.state.Store(stateStopping)
	b.stopTimers()
	b.fetchers.stop()
	b.waits.close()
	b.changes.run(func(release func()) {
		// Given back when the coordination service is closed, which refuses every change: a
		// request that came in just before the state was set is queued behind this, and wants its answer.
		ended := func(err error) {
			release()
			done(err)
		}
		parts := b.allPartitions()
		var failed firstError
		end := newCountdown(len(parts), func() {
			for _, p := range parts {
				p.stop(errStopping)
			}
			b.stopIdle(parts, &failed, ended)
		})
		for _, p := range parts {
			p.flushAll(func(err error) {
				if err != nil {
					failed.set(fmt.Errorf("log directory %s could not be flushed; the next start recovers it", p.dir.path))
				}
				end.done()
			})
		}
		end.done()
	})
}

// stopIdle closes everything once no sync is in flight.
func (b *Broker) stopIdle(parts []*partition, failed *firstError, done func(error)) {
	end := newCountdown(len(parts), func() {
		b.leaveCluster(func(err error) {
			if err != nil {
				failed.set(err)
			}
			b.closeLogs(func() {
				if err := b.closeDirs(true); err != nil {
					failed.set(err)
				}
				b.state.Store(stateStopped)
				done(failed.get())
			})
		})
	})
	for _, p := range parts {
		p.whenIdle(end.done)
	}
	end.done()
}

// allPartitions are those whose logs are open, or should be.
func (b *Broker) allPartitions() (parts []*partition) {
	if b.replicated() {
		for _, name := range sortedPartitions(b.held) {
			parts = append(parts, b.held[name])
		}
		return parts
	}
	b.each(func(p *partition) { parts = append(parts, p) })
	return parts
}

// leaveCluster ends the session.
func (b *Broker) leaveCluster(done func(error)) {
	if b.replicated() {
		b.member.leave(done)
		return
	}
	b.cluster.client().Close(done)
}

// cleanEpoch is what the mark of a clean shutdown says of this incarnation.
func (b *Broker) cleanEpoch() int64 {
	if !b.replicated() {
		return -1
	}
	b.member.mu.Lock()
	defer b.member.mu.Unlock()
	if b.member.epoch < 0 {
		return b.member.clean // it never was a member, so nothing changed: what was proven before still is
	}
	return b.member.epoch
}
