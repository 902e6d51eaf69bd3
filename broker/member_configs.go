package broker

import (
	"errors"
	"strconv"
	"strings"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
)

// configWatch follows the notices of changed settings, for one session. What changed
// before it began is read as a whole.
type configWatch struct {
	s    *session
	seen int64 // the largest number of a notice that was dealt with; -1: none yet
	all  bool  // everything was read
}

func (b *Broker) watchConfigs(s *session) {
	w := &configWatch{s: s, seen: -1}
	w.look()
}

func (w *configWatch) look() {
	changed := func(coord.Event) {
		if !w.s.over.Load() {
			w.look()
		}
	}
	w.s.client.Children(coord.ConfigChangesPath, changed, func(names []string, _ coord.Stat, err error) {
		if err != nil {
			w.s.failed(err, w.look)
			return
		}
		last := w.seen
		for _, name := range names {
			number, ok := coord.ParseSequence(name)
			if !ok || number <= w.seen {
				continue
			}
			last = max(last, number)
			if w.all {
				w.read(coord.ConfigChangesPath + "/" + name)
			}
		}
		w.seen = last
		if !w.all {
			w.all = true
			w.readAll()
		}
	})
}

// readAll reads the settings of this broker and of every topic that it knows.
func (w *configWatch) readAll() {
	b := w.s.m.b
	b.rereadBrokerConfig(w.s)
	for _, t := range b.meta.Load().sorted {
		b.rereadTopicConfig(w.s, t.name)
	}
}

func (w *configWatch) read(path string) {
	b := w.s.m.b
	w.s.client.Get(path, nil, func(data []byte, _ coord.Stat, err error) {
		if err != nil {
			if !errors.Is(err, coord.ErrNoNode) {
				w.s.failed(err, func() { w.read(path) })
			}
			return
		}
		entity, err := coord.DecodeConfigChange(data)
		if err != nil {
			b.report(env.Error, "%s: %v", path, err)
			return
		}
		if topic, ok := strings.CutPrefix(entity, "topics/"); ok {
			b.rereadTopicConfig(w.s, topic)
		} else if id, ok := strings.CutPrefix(entity, "brokers/"); ok && id == strconv.Itoa(int(b.static.BrokerID)) {
			b.rereadBrokerConfig(w.s)
		}
	})
}

func (b *Broker) rereadTopicConfig(s *session, name string) {
	s.client.Get(coord.TopicConfigPath(name), nil, func(data []byte, _ coord.Stat, err error) {
		var overrides map[string]string
		if err == nil {
			overrides, err = coord.DecodeConfig(data)
		}
		if err != nil && !errors.Is(err, coord.ErrNoNode) {
			if !s.failed(err, func() { b.rereadTopicConfig(s, name) }) {
				b.report(env.Error, "topic %s: %v", name, err)
			}
			return
		}
		b.changes.run(func(release func()) {
			if t := b.meta.Load().topics[name]; t != nil {
				changed := *t
				changed.overrides = overrides
				b.meta.Store(b.meta.Load().with(&changed))
				b.applyConfig(&changed)
			}
			release()
		})
		if d := b.driver(); d != nil && d.ready() {
			d.readTopics([]string{name}) // min.insync.replicas and unclean elections are the controller's too
		}
	})
}

func (b *Broker) rereadBrokerConfig(s *session) {
	path := coord.BrokerConfigPath(strconv.Itoa(int(b.static.BrokerID)))
	s.client.Get(path, nil, func(data []byte, _ coord.Stat, err error) {
		var dynamic map[string]string
		if err == nil {
			dynamic, err = coord.DecodeConfig(data)
		}
		if err != nil && !errors.Is(err, coord.ErrNoNode) {
			if !s.failed(err, func() { b.rereadBrokerConfig(s) }) {
				b.report(env.Error, "%s: %v", path, err)
			}
			return
		}
		b.changes.run(func(release func()) {
			defer release()
			cfg, err := b.static.withDynamic(dynamic)
			if err != nil {
				b.report(env.Error, "settings of broker %d, stored by AlterConfigs: %v", b.static.BrokerID, err)
				return
			}
			b.cfg.Store(&cfg)
			for _, t := range b.meta.Load().sorted {
				b.applyConfig(t)
			}
		})
	})
}

// noticeConfig is the operation that tells all brokers of changed settings, where there are others.
func (b *Broker) noticeConfig(entity string) []coord.Op {
	if !b.replicated() {
		return nil
	}
	return []coord.Op{coord.CreateOp(coord.ConfigChangePrefix, coord.EncodeConfigChange(entity), coord.Sequential)}
}
