package server

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
)

// A request of 30 bytes may have an answer of megabytes. While those are not
// written, no further request is read.
func TestAnswersThatAreNotWrittenCountAgainstTheBytesInFlight(t *testing.T) {
	metadata := kmsg.NewPtrMetadataResponse()
	metadata.Topics = []kmsg.MetadataResponseTopic{{Partitions: make([]kmsg.MetadataResponseTopicPartition, 10_000)}}
	configs := kmsg.NewPtrDescribeConfigsResponse()
	configs.Resources = make([]kmsg.DescribeConfigsResponseResource, 5_000)
	configs.Resources[0].Configs = make([]kmsg.DescribeConfigsResponseResourceConfig, 2_000)
	dirs := kmsg.NewPtrDescribeLogDirsResponse()
	dirs.Dirs = []kmsg.DescribeLogDirsResponseDir{{Topics: make([]kmsg.DescribeLogDirsResponseDirTopic, 10_000)}}
	topics := kmsg.NewPtrCreateTopicsResponse()
	topics.Topics = make([]kmsg.CreateTopicsResponseTopic, 10_000)
	for name, a := range map[string]broker.Answer{
		"metadata": {Body: metadata}, "configs": {Body: configs}, "log dirs": {Body: dirs}, "topics": {Body: topics},
		"fetch": {Fetch: &broker.FetchAnswer{Parts: make([]broker.FetchPart, 10_000)}},
	} {
		p := newPipeline(9, 1_000_000, func([]*pending) error { return nil }, nil)
		q := &pending{cost: 30}
		p.admit(q)
		q.reply(a) // while the reader is inside Handle: nobody writes yet
		if p.cost < p.costMax {
			t.Errorf("%s: the answer costs %d bytes in flight", name, p.cost)
		}
		p.handled()
		if p.cost != 0 {
			t.Errorf("%s: %d bytes in flight when all is written", name, p.cost)
		}
	}
}
