package broker

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// topicSpec is a topic somebody wants.
type topicSpec struct {
	name       string
	partitions int32
	overrides  map[string]string
	dryRun     bool

	// Of a replicated cluster.
	factor     int16     // -1: the default
	assignment [][]int32 // by partition; nil: the brokers decide
	timeout    time.Duration
}

// topicResult is what became of one spec; on success t is the topic, under dryRun what it would be.
type topicResult struct {
	t    *topic
	cfg  *Config
	code int16
	why  string
}

// createTopics creates what can be, each topic on its own, and gives a result for
// each spec. When done is called, the topics are durable in the coordination
// service and their partitions can be used.
func (b *Broker) createTopics(specs []topicSpec, done func([]topicResult)) {
	if b.replicated() {
		b.createReplicatedTopics(specs, done)
		return
	}
	results := make([]topicResult, len(specs))
	b.changes.run(func(release func()) {
		end := newCountdown(len(specs), func() {
			b.install(results, func() {
				release()
				done(results)
			})
		})
		wanted := b.meta.Load().edit() // with what this request already has
		partitions := b.meta.Load().partitions()
		for i := range specs {
			r := &results[i]
			b.checkSpec(wanted, &specs[i], partitions, r)
			if r.code != codeNone {
				end.done()
				continue
			}
			wanted.put(r.t)
			partitions += int(specs[i].partitions)
			if specs[i].dryRun {
				end.done()
				continue
			}
			b.commit(b.createOps(r.t, specs[i].partitions), func(err error) {
				switch {
				case err == nil:
					r.t.partitions = make([]*partition, specs[i].partitions)
				case errors.Is(err, coord.ErrNodeExists):
					r.fail(codeTopicAlreadyExists, "topic "+r.t.name+" exists")
				default:
					r.fail(codeStorageError, errMetadata(err))
				}
				end.done()
			})
		}
		end.done()
	})
}

func (r *topicResult) fail(code int16, why string) { r.code, r.why = code, why }

// errAllOffline: the topic could be noted, but its partitions could not be used.
const errAllOffline = "all log directories are offline: see the broker's log, and restart it"

func errMetadata(err error) string { return "the metadata could not be written: " + err.Error() }

// checkSpec says why the topic cannot be, or makes it, still without partitions.
// partitions is how many the broker has.
func (b *Broker) checkSpec(m *metadata, spec *topicSpec, partitions int, r *topicResult) {
	cfg := b.cfg.Load()
	if why := checkTopicName(spec.name); why != "" {
		r.fail(codeInvalidTopic, why)
		return
	}
	if m.topics[spec.name] != nil {
		r.fail(codeTopicAlreadyExists, "topic "+spec.name+" exists")
		return
	}
	if other, ok := m.collision[collisionKey(spec.name)]; ok {
		r.fail(codeInvalidTopic, fmt.Sprintf("topic %s collides with %s: '.' and '_' are the same in names of metrics", spec.name, other))
		return
	}
	if spec.partitions < 1 || spec.partitions > cfg.MaxPartitionsPerTopic {
		r.fail(codeInvalidPartitions, fmt.Sprintf("%d partitions: from 1 to lab.topic.partitions.max=%d are allowed", spec.partitions, cfg.MaxPartitionsPerTopic))
		return
	}
	if partitions+int(spec.partitions) > int(cfg.MaxPartitions) {
		r.fail(codeInvalidPartitions, fmt.Sprintf("the broker has %d partitions and may have lab.partitions.max=%d", partitions, cfg.MaxPartitions))
		return
	}
	if b.allOffline() {
		r.fail(codeStorageError, errAllOffline)
		return
	}
	topicCfg, err := cfg.withTopic(spec.overrides)
	if err != nil {
		r.fail(codeInvalidConfig, err.Error())
		return
	}
	r.cfg = &topicCfg
	r.t = &topic{name: spec.name, id: newUUID(b.env.Rand()), overrides: spec.overrides}
}

func (b *Broker) createOps(t *topic, partitions int32) []coord.Op {
	ops := []coord.Op{coord.CreateOp(coord.TopicPath(t.name), b.assignment(t.id, int(partitions)), coord.Persistent)}
	if len(t.overrides) > 0 {
		ops = append(ops, coord.CreateOp(coord.TopicConfigPath(t.name), coord.EncodeConfig(t.overrides), coord.Persistent))
	}
	return ops
}

// install opens the partitions of the topics that the coordination service has
// accepted, and publishes them.
func (b *Broker) install(results []topicResult, done func()) {
	m := b.meta.Load().edit()
	var parts []*partition
	for i := range results {
		r := &results[i]
		if r.code != codeNone || r.t.partitions == nil {
			continue
		}
		for index := range r.t.partitions {
			r.t.partitions[index] = b.newPartition(r.t, int32(index), b.emptiestDir(), r.cfg)
		}
		parts = append(parts, r.t.partitions...)
		m.put(r.t)
	}
	b.openAll(parts, func() {
		b.meta.Store(m.sort())
		done()
	})
}

// deleteTopics deletes topics, and gives a result for each.
func (b *Broker) deleteTopics(targets []*topic, timeout time.Duration, done func([]topicResult)) {
	if b.replicated() {
		b.deleteReplicatedTopics(targets, timeout, done)
		return
	}
	results := make([]topicResult, len(targets))
	b.changes.run(func(release func()) {
		end := newCountdown(len(targets), func() {
			b.uninstall(results, func() {
				release()
				done(results)
			})
		})
		m := b.meta.Load()
		for i := range targets {
			r := &results[i]
			t := m.byID[targets[i].id]
			if t == nil || slices.Contains(targets[:i], targets[i]) {
				r.fail(codeUnknownTopicOrPartition, "there is no topic "+targets[i].name)
				end.done()
				continue
			}
			ops := []coord.Op{coord.DeleteOp(coord.TopicPath(t.name), coord.AnyVersion)}
			if len(t.overrides) > 0 {
				ops = append(ops, coord.DeleteOp(coord.TopicConfigPath(t.name), coord.AnyVersion))
			}
			b.commit(ops, func(err error) {
				if err != nil {
					r.fail(codeStorageError, errMetadata(err))
				} else {
					r.t = t
				}
				end.done()
			})
		}
		end.done()
	})
}

// uninstall takes deleted topics out of the snapshot, then ends their partitions.
// It is over when their directories have other names, so that a topic of the same
// name can be created. Regions that fetches still hold pin their files.
func (b *Broker) uninstall(results []topicResult, done func()) {
	m := b.meta.Load().edit()
	var parts []*partition
	for _, r := range results {
		if r.t != nil {
			m.drop(r.t)
			parts = append(parts, r.t.partitions...)
		}
	}
	b.meta.Store(m.sort())
	// Each removal syncs the log directory, so they go where syncs go: done one by one
	// in this callback, thousands of them would hold up the metadata for a minute.
	idle := newCountdown(len(parts), func() { b.removeAll(parts, done) })
	for _, p := range parts {
		p.stop(errGone)
		p.whenIdle(idle.done)
	}
	idle.done()
}

// removeAll deletes the logs of stopped partitions.
func (b *Broker) removeAll(parts []*partition, done func()) {
	b.sideBySide(len(parts), func(i int) vfs.Syncer { return removing{parts[i]} }, func(i int, _ error) {
		b.removeLater(parts[i].cfg.Load())
	}, done)
}

// growTopic gives a topic more partitions.
func (b *Broker) growTopic(name string, count int32, assignment [][]int32, dryRun bool, done func(topicResult)) {
	b.changes.run(func(release func()) {
		var r topicResult
		end := func() {
			release()
			done(r)
		}
		t := b.meta.Load().topics[name]
		limit := b.cfg.Load().MaxPartitionsPerTopic
		switch {
		case t == nil:
			r.fail(codeUnknownTopicOrPartition, "there is no topic "+name)
		case int(count) <= len(t.partitions):
			r.fail(codeInvalidPartitions, fmt.Sprintf("topic %s has %d partitions, so it cannot grow to %d", name, len(t.partitions), count))
		case count > limit:
			r.fail(codeInvalidPartitions, fmt.Sprintf("%d partitions: at most lab.topic.partitions.max=%d are allowed", count, limit))
		case b.meta.Load().partitions()+int(count)-len(t.partitions) > int(b.cfg.Load().MaxPartitions):
			r.fail(codeInvalidPartitions, fmt.Sprintf("the broker may have lab.partitions.max=%d partitions", b.cfg.Load().MaxPartitions))
		}
		if r.code == codeNone && b.allOffline() {
			r.fail(codeStorageError, errAllOffline)
		}
		if r.code != codeNone || dryRun {
			end()
			return
		}
		if b.replicated() {
			release()
			b.growReplicatedTopic(t, count, assignment, done)
			return
		}
		op := coord.SetOp(coord.TopicPath(name), b.assignment(t.id, int(count)), coord.AnyVersion)
		b.commit([]coord.Op{op}, func(err error) {
			if err != nil {
				r.fail(codeStorageError, errMetadata(err))
				end()
				return
			}
			grown := *t
			grown.partitions = slices.Clone(t.partitions)
			cfg := b.topicConfig(t.overrides)
			for i := len(t.partitions); i < int(count); i++ {
				grown.partitions = append(grown.partitions, b.newPartition(t, int32(i), b.emptiestDir(), cfg))
			}
			b.openAll(grown.partitions[len(t.partitions):], func() {
				b.meta.Store(b.meta.Load().with(&grown))
				end()
			})
		})
	})
}

// topicConfig is the broker's configuration with a topic's settings over it.
// Settings that no longer hold (the broker's own have changed since) are reported and left out.
func (b *Broker) topicConfig(overrides map[string]string) *Config {
	cfg, err := b.cfg.Load().withTopic(overrides)
	if err == nil {
		return &cfg
	}
	cfg = *b.cfg.Load()
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if next, err := cfg.withTopic(map[string]string{name: overrides[name]}); err == nil {
			cfg = next
		}
	}
	return &cfg
}

// setTopicConfig replaces a topic's settings; overrides is not changed any more.
func (b *Broker) setTopicConfig(t *topic, overrides map[string]string, done func(error)) {
	op, needed := configOp(coord.TopicConfigPath(t.name), t.overrides, overrides)
	if !needed {
		done(nil)
		return
	}
	b.commitConfig(t.overrides, append([]coord.Op{op}, b.noticeConfig("topics/"+t.name)...), func(err error) {
		if err == nil {
			changed := *t
			changed.overrides = overrides
			b.meta.Store(b.meta.Load().with(&changed))
			b.applyConfig(&changed)
		}
		done(err)
	})
}

// commitConfig writes a node of settings, the first of ops, and the notice of it. had is what the change began with. Where the outcome
// of a try is open, it is made again unless another's change has come meanwhile: that would be lost.
func (b *Broker) commitConfig(had map[string]string, ops []coord.Op, done func(error)) {
	b.settle(topicWait, func(again bool, done func(error)) {
		if !again {
			b.commit(ops, done)
			return
		}
		b.cluster.client().Get(ops[0].Path, nil, func(data []byte, _ coord.Stat, err error) {
			var have map[string]string
			if err == nil {
				have, err = coord.DecodeConfig(data)
			}
			switch {
			case err != nil && !errors.Is(err, coord.ErrNoNode):
				done(err)
			case bytes.Equal(data, ops[0].Data): // the earlier try was carried out
				done(nil)
			case maps.Equal(have, had):
				b.commit(ops, done)
			default:
				done(errConfigChanged)
			}
		})
	}, done)
}

var errConfigChanged = errors.New("the settings were changed by another request while the coordination service was not heard")

// configOp is the operation that brings a node of settings from had to next; an
// empty set of settings has no node.
func configOp(path string, had, next map[string]string) (op coord.Op, needed bool) {
	switch {
	case len(had) == 0 && len(next) == 0:
		return op, false
	case len(next) == 0:
		return coord.DeleteOp(path, coord.AnyVersion), true
	case len(had) == 0:
		return coord.CreateOp(path, coord.EncodeConfig(next), coord.Persistent), true
	}
	return coord.SetOp(path, coord.EncodeConfig(next), coord.AnyVersion), true
}

// applyConfig makes the topic's partitions use its present settings.
func (b *Broker) applyConfig(t *topic) {
	cfg := b.topicConfig(t.overrides)
	for _, p := range t.partitions {
		if p != nil {
			p.setConfig(cfg)
		}
	}
}

func (p *partition) setConfig(cfg *Config) {
	p.step(func(fx *effects) {
		p.cfg.Store(cfg)
		if p.usable() != nil {
			return
		}
		p.log.SetConfig(cfg.Log)
		if p.repl != nil {
			p.led(fx, p.repl.leader.SetSettings(cfg.replicaSettings()))
			p.repl.follower.SetDurable(cfg.durableBeforeAck())
			p.syncForHighWatermark(fx)
		}
	})
}
