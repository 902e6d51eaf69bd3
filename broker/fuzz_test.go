package broker_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
)

// FuzzRequests sends whatever decodes as a request of a served kind and version. The
// broker must not panic, must answer once, at the latest when the longest poll is
// over, with something that its own version can carry, and must go on serving.
func FuzzRequests(f *testing.F) {
	for i, a := range broker.APIs() {
		for v := a.Min; v <= a.Max; v++ {
			f.Add(byte(i), byte(v-a.Min), exampleRequest(a.Key, v).AppendTo(nil))
		}
	}
	const century = "3000000000000" // ms: no timer but the polls'
	e, b := started(f, "lab.partitions.max=20", "auto.create.topics.enable=false", "log.retention.check.interval.ms="+century,
		"log.flush.offset.checkpoint.interval.ms="+century, "log.flush.start.offset.checkpoint.interval.ms="+century)
	f.Fuzz(func(t *testing.T, api, version byte, data []byte) {
		a := broker.APIs()[int(api)%len(broker.APIs())]
		req := kmsg.RequestForKey(a.Key)
		req.SetVersion(a.Min + int16(version)%(a.Max-a.Min+1))
		if req.(kmsg.UnsafeReadFrom).UnsafeReadFrom(data) != nil {
			return
		}
		answers := 0
		b.Handle(broker.Request{Conn: 1, Body: req, Local: "x:1"}, func(a broker.Answer) {
			answers++
			checkAnswer(t, req, a)
		})
		e.Advance(25 * 24 * time.Hour) // an int32 of ms
		if answers != 1 {
			t.Fatalf("%d answers", answers)
		}
		again := 0
		b.Handle(broker.Request{Conn: 2, Body: kmsg.NewPtrApiVersionsRequest(), Local: "x:1"}, func(broker.Answer) { again++ })
		if again != 1 {
			t.Fatal("the broker serves no more")
		}
	})
}

func checkAnswer(t *testing.T, req kmsg.Request, a broker.Answer) {
	resp := req.ResponseKind()
	switch {
	case a.Silent:
		return
	case a.Fetch != nil:
		wire := fetchBytes(t, a.Fetch)
		a.Fetch.Release()
		if err := resp.ReadFrom(wire); err != nil {
			t.Fatalf("fetch answer: %v", err)
		}
	default:
		resp.SetVersion(a.Body.GetVersion())
		if err := resp.ReadFrom(a.Body.AppendTo(nil)); err != nil {
			t.Fatalf("answer: %v", err)
		}
	}
}

// exampleRequest is a request of that kind that names topic t where it can.
func exampleRequest(key, version int16) kmsg.Request {
	name := "t"
	var req kmsg.Request
	switch kmsg.Key(key) {
	case kmsg.Produce:
		req = produceRequest(batchOf(2))
	case kmsg.Fetch:
		req = pollRequest(name, 0, 0, 100)
	case kmsg.ListOffsets:
		r := kmsg.NewPtrListOffsetsRequest()
		r.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: name, Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -3, CurrentLeaderEpoch: -1}}}}
		req = r
	case kmsg.Metadata:
		r := kmsg.NewPtrMetadataRequest()
		r.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		req = r
	case kmsg.CreateTopics:
		r := kmsg.NewPtrCreateTopicsRequest()
		r.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "u", NumPartitions: 1, ReplicationFactor: 1, Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: &name}}}}
		req = r
	case kmsg.DeleteTopics:
		r := kmsg.NewPtrDeleteTopicsRequest()
		r.TopicNames, r.Topics = []string{"u"}, []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
		req = r
	case kmsg.DeleteRecords:
		r := kmsg.NewPtrDeleteRecordsRequest()
		r.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: name, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 1}}}}
		req = r
	case kmsg.OffsetForLeaderEpoch:
		r := kmsg.NewPtrOffsetForLeaderEpochRequest()
		r.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: name, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: -1}}}}
		req = r
	case kmsg.DescribeConfigs:
		r := kmsg.NewPtrDescribeConfigsRequest()
		r.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: name}, {ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "0"}}
		req = r
	case kmsg.AlterConfigs:
		r := kmsg.NewPtrAlterConfigsRequest()
		r.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: name, Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "segment.bytes", Value: kmsg.StringPtr("4096")}}}}
		req = r
	case kmsg.IncrementalAlterConfigs:
		r := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "0", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "log.retention.ms", Value: kmsg.StringPtr("-1")}}}}
		req = r
	case kmsg.CreatePartitions:
		r := kmsg.NewPtrCreatePartitionsRequest()
		r.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: name, Count: 2}}
		req = r
	case kmsg.DescribeLogDirs:
		r := kmsg.NewPtrDescribeLogDirsRequest()
		r.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: name, Partitions: []int32{0, 1}}}
		req = r
	default:
		req = kmsg.RequestForKey(key)
	}
	req.SetVersion(version)
	return req
}
