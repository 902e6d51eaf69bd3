package broker

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// configResource is what DescribeConfigs and the two AlterConfigs speak of: a
// topic, or this broker.
type configResource struct {
	kind kmsg.ConfigResourceType
	name string
	t    *topic // of a topic
}

// configResource finds the resource, or says why it is none.
func (b *Broker) configResource(kind kmsg.ConfigResourceType, name string) (r configResource, code int16, why string) {
	r = configResource{kind: kind, name: name}
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if why := checkTopicName(name); why != "" {
			return r, codeInvalidTopic, why
		}
		if r.t = b.meta.Load().topics[name]; r.t == nil {
			return r, codeUnknownTopicOrPartition, "there is no topic " + name
		}
	case kmsg.ConfigResourceTypeBroker:
		if name != strconv.Itoa(int(b.static.BrokerID)) {
			return r, codeInvalidRequest, fmt.Sprintf("broker %q: this is broker %d, which tells and changes its own settings alone; defaults for all brokers are not kept", name, b.static.BrokerID)
		}
	default:
		return r, codeInvalidRequest, fmt.Sprintf("resource type %d: topics (2) and brokers (4) have settings here", kind)
	}
	return r, codeNone, ""
}

// find gives a setting by its name in the resource.
func (r configResource) find(name string) *Setting {
	if r.t != nil || r.kind == kmsg.ConfigResourceTypeTopic {
		return settingByTopicName(name)
	}
	return settingByName(name)
}

// names are the resource's settings, ascending.
func (r configResource) names() []string {
	if r.t != nil {
		return slices.Sorted(maps.Keys(byTopicName))
	}
	return slices.Sorted(maps.Keys(byName))
}

// own are the settings given to the resource itself by AlterConfigs (or CreateTopics).
func (r configResource) own(b *Broker) map[string]string {
	if r.t != nil {
		return r.t.overrides
	}
	return b.cfg.Load().dynamic
}

// topicSource says where a topic's value of s comes from.
func (s *Setting) topicSource(overrides map[string]string, cfg *Config) kmsg.ConfigSource {
	if _, ok := overrides[s.Topic]; ok {
		return kmsg.ConfigSourceDynamicTopicConfig
	}
	return s.brokerSource(cfg)
}

// brokerSource says where the broker's value of s comes from.
func (s *Setting) brokerSource(cfg *Config) kmsg.ConfigSource {
	if _, ok := cfg.dynamic[s.Name]; ok {
		return kmsg.ConfigSourceDynamicBrokerConfig
	}
	if _, ok := cfg.static[s.Name]; ok {
		return kmsg.ConfigSourceStaticBrokerConfig
	}
	return kmsg.ConfigSourceDefaultConfig
}

// synonyms lists all values that s could take, the one in force first.
func (s *Setting) synonyms(overrides map[string]string, cfg *Config) []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym {
	var list []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym
	add := func(name, value string, source kmsg.ConfigSource) {
		y := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		y.Name, y.Value, y.Source = name, &value, source
		list = append(list, y)
	}
	if v, ok := overrides[s.Topic]; ok && s.Topic != "" {
		add(s.Topic, v, kmsg.ConfigSourceDynamicTopicConfig)
	}
	if v, ok := cfg.dynamic[s.Name]; ok {
		add(s.Name, v, kmsg.ConfigSourceDynamicBrokerConfig)
	}
	if v, ok := cfg.static[s.Name]; ok {
		add(s.Name, v, kmsg.ConfigSourceStaticBrokerConfig)
	}
	defaults := DefaultConfig()
	add(s.Name, s.Value(&defaults), kmsg.ConfigSourceDefaultConfig)
	return list
}

// configChange computes a resource's own settings from the present ones; it
// returns a map of its own.
type configChange func(r configResource, own map[string]string) (next map[string]string, code int16, why string)

// alterConfig changes one resource's settings: all of the change or nothing. It is
// durable and in force when done is called with no error.
func (b *Broker) alterConfig(kind kmsg.ConfigResourceType, name string, dryRun bool, change configChange, done func(code int16, why string)) {
	b.changes.run(func(release func()) {
		end := func(code int16, why string) {
			release()
			done(code, why)
		}
		r, code, why := b.configResource(kind, name)
		if code != codeNone {
			end(code, why)
			return
		}
		next, code, why := change(r, r.own(b))
		if code != codeNone {
			end(code, why)
			return
		}
		cfg, err := b.checkConfig(r, next)
		if err != nil {
			end(codeInvalidConfig, err.Error())
			return
		}
		if dryRun {
			end(codeNone, "")
			return
		}
		stored := func(err error) {
			if err != nil {
				end(codeStorageError, errMetadata(err))
				return
			}
			end(codeNone, "")
		}
		if r.t != nil {
			b.setTopicConfig(r.t, next, stored)
		} else {
			b.setBrokerConfig(cfg, next, stored)
		}
	})
}

// checkConfig is the configuration that the resource would have with next as its own settings.
func (b *Broker) checkConfig(r configResource, next map[string]string) (cfg Config, err error) {
	if r.t != nil {
		return b.cfg.Load().withTopic(next)
	}
	return b.static.withDynamic(next)
}

// setBrokerConfig stores the broker's dynamic settings and brings them into force, in every topic.
func (b *Broker) setBrokerConfig(cfg Config, dynamic map[string]string, done func(error)) {
	path := coord.BrokerConfigPath(strconv.Itoa(int(b.static.BrokerID)))
	op, needed := configOp(path, b.cfg.Load().dynamic, dynamic)
	if !needed {
		done(nil)
		return
	}
	b.commitConfig(b.cfg.Load().dynamic, []coord.Op{op}, func(err error) {
		if err == nil {
			b.cfg.Store(&cfg)
			for _, t := range b.meta.Load().sorted {
				b.applyConfig(t)
			}
		}
		done(err)
	})
}
