package broker

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreatePartitions, versions 0-3. Left out: the timeout.

func (b *Broker) handleCreatePartitions(req *kmsg.CreatePartitionsRequest, reply Reply) {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	resp.Topics = make([]kmsg.CreatePartitionsResponseTopic, len(req.Topics))
	pending := newCountdown(len(req.Topics), func() { reply(Answer{Body: resp}) })
	named := timesNamed(req.Topics, func(t *kmsg.CreatePartitionsRequestTopic) string { return t.Topic })
	for i := range req.Topics {
		rt, t := &req.Topics[i], &resp.Topics[i]
		t.Default()
		t.Topic = strings.Clone(rt.Topic)
		code, why := b.checkGrowth(rt)
		if named[t.Topic] > 1 {
			code, why = codeInvalidRequest, whyNamedTwice
		}
		if code != codeNone {
			t.ErrorCode, t.ErrorMessage = code, &why
			pending.done()
			continue
		}
		b.growTopic(t.Topic, rt.Count, assignmentOf(rt), req.ValidateOnly, func(r topicResult) {
			if r.code != codeNone {
				t.ErrorCode, t.ErrorMessage = r.code, &r.why
			}
			pending.done()
		})
	}
	pending.done()
}

// checkGrowth looks at an explicit assignment of the new partitions: each to this broker.
func (b *Broker) checkGrowth(t *kmsg.CreatePartitionsRequestTopic) (code int16, why string) {
	known := b.meta.Load().topics[t.Topic]
	if t.Assignment == nil || known == nil || int(t.Count) <= len(known.partitions) {
		return codeNone, "" // what cannot grow so is growTopic's to say
	}
	if want := int(t.Count) - len(known.partitions); len(t.Assignment) != want {
		return codeInvalidReplicaAssignment, fmt.Sprintf("%d assignments for %d new partitions", len(t.Assignment), want)
	}
	for _, a := range t.Assignment {
		if b.replicated() {
			if why := b.checkReplicas(a.Replicas); why != "" {
				return codeInvalidReplicaAssignment, why
			}
			continue
		}
		if len(a.Replicas) != 1 || a.Replicas[0] != b.static.BrokerID {
			return codeInvalidReplicaAssignment, fmt.Sprintf("the only broker is %d", b.static.BrokerID)
		}
	}
	return codeNone, ""
}

// assignmentOf is where the request wants the new partitions; nil: anywhere.
func assignmentOf(t *kmsg.CreatePartitionsRequestTopic) (replicas [][]int32) {
	for _, a := range t.Assignment {
		replicas = append(replicas, a.Replicas)
	}
	return replicas
}
