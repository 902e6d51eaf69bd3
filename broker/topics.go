package broker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// topicSpec is a topic somebody wants.
type topicSpec struct {
	name       string
	partitions int32
	overrides  map[string]string
	dryRun     bool
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
	results := make([]topicResult, len(specs))
	b.changes.run(func(release func()) {
		end := newCountdown(len(specs), func() {
			b.install(results, func() {
				release()
				done(results)
			})
		})
		wanted := b.meta.Load() // and what this request already has
		for i := range specs {
			r := &results[i]
			b.checkSpec(wanted, &specs[i], r)
			if r.code != codeNone {
				end.done()
				continue
			}
			wanted = wanted.with(r.t)
			if specs[i].dryRun {
				end.done()
				continue
			}
			b.cluster.store.multi(b.createOps(r.t, specs[i].partitions), func(err error) {
				switch {
				case err == nil:
					r.t.partitions = make([]*partition, specs[i].partitions)
				case errors.Is(err, errNodeExists):
					r.fail(codeTopicAlreadyExists, "topic "+r.t.name+" exists")
				default:
					r.fail(codeUnknownServerError, "the metadata could not be written: "+err.Error())
				}
				end.done()
			})
		}
		end.done()
	})
}

func (r *topicResult) fail(code int16, why string) { r.code, r.why = code, why }

// checkSpec says why the topic cannot be, or makes it, still without partitions.
func (b *Broker) checkSpec(m *metadata, spec *topicSpec, r *topicResult) {
	cfg := b.cfg.Load()
	if why := checkTopicName(spec.name); why != "" {
		r.code, r.why = codeInvalidTopic, why
		return
	}
	if m.topics[spec.name] != nil {
		r.code, r.why = codeTopicAlreadyExists, "topic "+spec.name+" exists"
		return
	}
	if other, ok := m.collision[collisionKey(spec.name)]; ok {
		r.code, r.why = codeInvalidTopic, fmt.Sprintf("topic %s collides with %s: '.' and '_' are the same in names of metrics", spec.name, other)
		return
	}
	if spec.partitions < 1 || spec.partitions > cfg.MaxPartitionsPerTopic {
		r.code, r.why = codeInvalidPartitions, fmt.Sprintf("%d partitions: from 1 to lab.topic.partitions.max=%d are allowed", spec.partitions, cfg.MaxPartitionsPerTopic)
		return
	}
	topicCfg, err := cfg.withTopic(spec.overrides)
	if err != nil {
		r.code, r.why = codeInvalidConfig, err.Error()
		return
	}
	r.cfg = &topicCfg
	r.t = &topic{name: spec.name, id: newUUID(b.env.Rand()), overrides: spec.overrides}
}

func (b *Broker) createOps(t *topic, partitions int32) []storeOp {
	ops := []storeOp{{kind: opCreate, path: pathTopic(t.name), data: encodeTopicNode(t.id, int(partitions), b.static.BrokerID)}}
	if len(t.overrides) > 0 {
		ops = append(ops, storeOp{kind: opCreate, path: pathTopicConfig(t.name), data: encodeNode(configNode{1, t.overrides})})
	}
	return ops
}

// install opens the partitions of the topics that the coordination service has
// accepted and publishes them.
func (b *Broker) install(results []topicResult, done func()) {
	m := b.meta.Load()
	for i := range results {
		r := &results[i]
		if r.code != codeNone || r.t == nil || r.t.partitions == nil {
			continue
		}
		for index := range r.t.partitions {
			r.t.partitions[index] = b.newPartition(r.t, int32(index), r.cfg)
		}
		m = m.with(r.t)
	}
	b.meta.Store(m)
	done()
}

// deleteTopics deletes topics, and gives a result for each.
func (b *Broker) deleteTopics(targets []*topic, done func([]topicResult)) {
	results := make([]topicResult, len(targets))
	b.changes.run(func(release func()) {
		end := newCountdown(len(targets), func() {
			b.uninstall(results)
			release()
			done(results)
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
			ops := []storeOp{{kind: opDelete, path: pathTopic(t.name), version: -1}}
			if len(t.overrides) > 0 {
				ops = append(ops, storeOp{kind: opDelete, path: pathTopicConfig(t.name), version: -1})
			}
			b.cluster.store.multi(ops, func(err error) {
				if err != nil {
					r.fail(codeUnknownServerError, "the metadata could not be written: "+err.Error())
				} else {
					r.t = t
				}
				end.done()
			})
		}
		end.done()
	})
}

// uninstall takes deleted topics out of the snapshot, then ends their
// partitions. Regions that fetches still hold pin their files.
func (b *Broker) uninstall(results []topicResult) {
	m := b.meta.Load()
	for _, r := range results {
		if r.t != nil {
			m = m.without(r.t)
		}
	}
	b.meta.Store(m)
	for _, r := range results {
		if r.t == nil {
			continue
		}
		for _, p := range r.t.partitions {
			p.stop(errGone)
			p.whenIdle(p.remove)
		}
	}
}

// growTopic gives a topic more partitions.
func (b *Broker) growTopic(name string, count int32, dryRun bool, done func(topicResult)) {
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
			r.code, r.why = codeUnknownTopicOrPartition, "there is no topic "+name
		case int(count) <= len(t.partitions):
			r.code, r.why = codeInvalidPartitions, fmt.Sprintf("topic %s has %d partitions, so it cannot grow to %d", name, len(t.partitions), count)
		case count > limit:
			r.code, r.why = codeInvalidPartitions, fmt.Sprintf("%d partitions: at most lab.topic.partitions.max=%d are allowed", count, limit)
		}
		if r.code != codeNone || dryRun {
			end()
			return
		}
		op := storeOp{kind: opSet, path: pathTopic(name), data: encodeTopicNode(t.id, int(count), b.static.BrokerID), version: -1}
		b.cluster.store.multi([]storeOp{op}, func(err error) {
			if err != nil {
				r.code, r.why = codeUnknownServerError, "the metadata could not be written: "+err.Error()
				end()
				return
			}
			grown := *t
			grown.partitions = slices.Clone(t.partitions)
			cfg := b.topicConfig(t.overrides)
			for i := len(t.partitions); i < int(count); i++ {
				grown.partitions = append(grown.partitions, b.newPartition(t, int32(i), cfg))
			}
			b.meta.Store(b.meta.Load().with(&grown))
			end()
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
	op := storeOp{kind: opSet, path: pathTopicConfig(t.name), data: encodeNode(configNode{1, overrides}), version: -1}
	switch {
	case len(overrides) == 0 && len(t.overrides) == 0:
		done(nil)
		return
	case len(overrides) == 0:
		op.kind = opDelete
	case len(t.overrides) == 0:
		op.kind = opCreate
	}
	b.cluster.store.multi([]storeOp{op}, func(err error) {
		if err == nil {
			changed := *t
			changed.overrides = overrides
			b.meta.Store(b.meta.Load().with(&changed))
			b.applyConfig(&changed)
		}
		done(err)
	})
}

// applyConfig makes the topic's partitions use its present settings.
func (b *Broker) applyConfig(t *topic) {
	cfg := b.topicConfig(t.overrides)
	for _, p := range t.partitions {
		p.setConfig(cfg)
	}
}

func (p *partition) setConfig(cfg *Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg.Store(cfg)
	if p.usable() == nil {
		p.log.SetConfig(cfg.Log)
	}
}
