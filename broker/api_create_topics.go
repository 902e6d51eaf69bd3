package broker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopics, versions 0-7. In a cluster of one replication factor 1 or the default, and
// assignments to this broker only; in a replicated one any broker takes it. The answer comes when the topics are durable and can be used.
//
// Left out: the timeout (the answer always tells the outcome).

// topicsPerRequestMax bounds the topics of one administrative request.
const topicsPerRequestMax = 10_000

func (b *Broker) handleCreateTopics(req *kmsg.CreateTopicsRequest, reply Reply) {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	resp.Topics = make([]kmsg.CreateTopicsResponseTopic, len(req.Topics))
	var specs []topicSpec
	var of []int // specs[i] is for topic of[i]
	named := timesNamed(req.Topics, func(t *kmsg.CreateTopicsRequestTopic) string { return t.Topic })
	for i := range req.Topics {
		t := &resp.Topics[i]
		t.Default()
		t.Topic = strings.Clone(req.Topics[i].Topic)
		spec, code, why := b.specOf(req, i, named)
		if code != codeNone {
			t.ErrorCode, t.ErrorMessage = code, &why
			continue
		}
		specs, of = append(specs, spec), append(of, i)
	}
	b.createTopics(specs, func(results []topicResult) {
		for i, r := range results {
			t := &resp.Topics[of[i]]
			if r.code != codeNone {
				t.ErrorCode, t.ErrorMessage = r.code, &r.why
				continue
			}
			t.TopicID, t.NumPartitions, t.ReplicationFactor = r.t.id, specs[i].partitions, b.factorOf(&specs[i])
			t.Configs = b.createdConfigs(r)
		}
		reply(Answer{Body: resp})
	})
}

// whyNamedTwice is said of each of them, as Kafka does: which was meant is not known, and who looks a name up in
// the answer must not find a success beside a failure.
const whyNamedTwice = "the topic is named twice in one request"

// timesNamed counts how often each topic is named in a request.
func timesNamed[T any](topics []T, name func(*T) string) map[string]int {
	times := make(map[string]int, len(topics))
	for i := range topics {
		times[name(&topics[i])]++
	}
	return times
}

// specOf reads topic i of a request, copying what outlives the call.
func (b *Broker) specOf(req *kmsg.CreateTopicsRequest, i int, named map[string]int) (spec topicSpec, code int16, why string) {
	t := &req.Topics[i]
	spec = topicSpec{
		name: strings.Clone(t.Topic), partitions: t.NumPartitions, dryRun: req.ValidateOnly,
		factor: t.ReplicationFactor, timeout: time.Duration(req.TimeoutMillis) * time.Millisecond,
	}
	switch {
	case len(req.Topics) > topicsPerRequestMax:
		return spec, codeInvalidRequest, fmt.Sprintf("%d topics in one request: at most %d are served", len(req.Topics), topicsPerRequestMax)
	case named[t.Topic] > 1:
		return spec, codeInvalidRequest, whyNamedTwice
	case len(t.ReplicaAssignment) > 0:
		if t.NumPartitions != -1 || t.ReplicationFactor != -1 {
			return spec, codeInvalidRequest, "with an assignment, partitions and replication factor must be -1"
		}
		spec.partitions = int32(len(t.ReplicaAssignment))
		if spec.assignment, why = b.checkAssignment(t.ReplicaAssignment); why != "" {
			return spec, codeInvalidReplicaAssignment, why
		}
	case !b.replicated() && t.ReplicationFactor != 1 && t.ReplicationFactor != -1:
		return spec, codeInvalidReplicationFactor, fmt.Sprintf("replication factor %d: this is a cluster of one broker", t.ReplicationFactor)
	}
	if len(t.ReplicaAssignment) == 0 && t.NumPartitions == -1 {
		spec.partitions = b.cfg.Load().NumPartitions
	}
	for _, c := range t.Configs {
		if c.Value == nil {
			return spec, codeInvalidConfig, "setting " + c.Name + " has no value"
		}
		if spec.overrides == nil {
			spec.overrides = map[string]string{}
		}
		spec.overrides[strings.Clone(c.Name)] = strings.Clone(*c.Value)
	}
	return spec, codeNone, ""
}

// checkAssignment wants each of the partitions 0, 1, 2, … once, in a cluster of one on this broker.
func (b *Broker) checkAssignment(assignment []kmsg.CreateTopicsRequestTopicReplicaAssignment) (replicas [][]int32, why string) {
	seen := make([]bool, len(assignment))
	replicas = make([][]int32, len(assignment))
	for _, a := range assignment {
		if a.Partition < 0 || int(a.Partition) >= len(seen) || seen[a.Partition] {
			return nil, fmt.Sprintf("partition %d: the assignment must name the partitions from 0 on, each once", a.Partition)
		}
		seen[a.Partition] = true
		replicas[a.Partition] = a.Replicas
		if b.replicated() {
			if why := b.checkReplicas(a.Replicas); why != "" {
				return nil, fmt.Sprintf("partition %d: %s", a.Partition, why)
			}
			continue
		}
		if len(a.Replicas) != 1 || a.Replicas[0] != b.static.BrokerID {
			return nil, fmt.Sprintf("partition %d: the only broker is %d", a.Partition, b.static.BrokerID)
		}
	}
	return replicas, ""
}

// checkReplicas wants live brokers, each once.
func (b *Broker) checkReplicas(replicas []int32) (why string) {
	nodes := b.meta.Load().nodes
	for i, id := range replicas {
		if slices.Contains(replicas[:i], id) {
			return fmt.Sprintf("broker %d is named twice", id)
		}
		if !slices.ContainsFunc(nodes, func(n node) bool { return n.id == id }) {
			return fmt.Sprintf("there is no live broker %d", id)
		}
	}
	if len(replicas) == 0 {
		return "no replicas"
	}
	return ""
}

func (b *Broker) createdConfigs(r topicResult) []kmsg.CreateTopicsResponseTopicConfig {
	topicNames := slices.Sorted(maps.Keys(byTopicName))
	configs := make([]kmsg.CreateTopicsResponseTopicConfig, 0, len(topicNames))
	for _, name := range topicNames {
		s := settingByTopicName(name)
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value = name, ptr(s.Value(r.cfg))
		c.Source = int8(s.topicSource(r.t.overrides, r.cfg))
		configs = append(configs, c)
	}
	return configs
}

// factorOf is the replication factor that a created topic has.
func (b *Broker) factorOf(spec *topicSpec) int16 {
	switch {
	case !b.replicated():
		return 1
	case len(spec.assignment) > 0:
		return int16(len(spec.assignment[0]))
	case spec.factor > 0:
		return spec.factor
	}
	return b.cfg.Load().ReplicationFactor
}
