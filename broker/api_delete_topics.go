package broker

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteTopics, versions 0-6, by id from 6. What fetches still send stays on disk until they have.
//
// Left out: the timeout.

func (b *Broker) handleDeleteTopics(req *kmsg.DeleteTopicsRequest, reply Reply) {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	m := b.meta.Load()
	var targets []*topic
	var of []int // targets[i] is for answer of[i]
	times := map[*topic]int{}
	add := func(name *string, id topicID) {
		t := kmsg.NewDeleteTopicsResponseTopic()
		known, code, why := b.deletable(m, name, id)
		if name != nil {
			t.Topic = ptr(strings.Clone(*name))
		}
		t.TopicID = id
		if code != codeNone {
			t.ErrorCode, t.ErrorMessage = code, &why
		} else {
			t.Topic, t.TopicID = &known.name, known.id
			targets, of = append(targets, known), append(of, len(resp.Topics))
			times[known]++
		}
		resp.Topics = append(resp.Topics, t)
	}
	for i := range req.TopicNames {
		add(&req.TopicNames[i], topicID{})
	}
	for _, t := range req.Topics {
		add(t.Topic, t.TopicID)
	}
	once := 0
	for i, t := range targets {
		if times[t] > 1 {
			twice := &resp.Topics[of[i]]
			twice.ErrorCode, twice.ErrorMessage = codeInvalidRequest, ptr(whyNamedTwice)
			continue
		}
		targets[once], of[once] = t, of[i]
		once++
	}
	targets, of = targets[:once], of[:once]
	b.deleteTopics(targets, min(max(time.Duration(req.TimeoutMillis)*time.Millisecond, time.Millisecond), produceTimeoutMax), func(results []topicResult) {
		for i, r := range results {
			if t := &resp.Topics[of[i]]; r.code != codeNone {
				t.ErrorCode, t.ErrorMessage = r.code, &r.why
			}
		}
		reply(Answer{Body: resp})
	})
}

// deletable finds the topic that a request names, by name or else by id.
func (b *Broker) deletable(m *metadata, name *string, id topicID) (t *topic, code int16, why string) {
	switch {
	case !b.static.DeleteTopicEnable:
		return nil, codeTopicDeletionDisabled, "delete.topic.enable is false"
	case name != nil && id != topicID{}:
		return nil, codeInvalidRequest, "a topic is named or its id is given, not both"
	case name != nil:
		if t = m.topics[*name]; t == nil {
			return nil, codeUnknownTopicOrPartition, "there is no such topic"
		}
	default:
		if t = m.byID[id]; t == nil {
			return nil, codeUnknownTopicID, "there is no topic with this id"
		}
	}
	return t, codeNone, ""
}
