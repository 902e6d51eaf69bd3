package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// elementsMax bounds what one request may name: topics, partitions, resources,
// settings. A frame's length bounds its bytes; this bounds the answer, which can
// be many times longer. A request over it closes its connection.
const elementsMax = 100_000

// elements counts what a request names. Those that name nothing count as 0.
func elements(body kmsg.Request) int {
	switch r := body.(type) {
	case *kmsg.ProduceRequest:
		return count(r.Topics, func(t *kmsg.ProduceRequestTopic) int { return len(t.Partitions) })
	case *kmsg.FetchRequest:
		return count(r.Topics, func(t *kmsg.FetchRequestTopic) int { return len(t.Partitions) })
	case *kmsg.ListOffsetsRequest:
		return count(r.Topics, func(t *kmsg.ListOffsetsRequestTopic) int { return len(t.Partitions) })
	case *kmsg.DeleteRecordsRequest:
		return count(r.Topics, func(t *kmsg.DeleteRecordsRequestTopic) int { return len(t.Partitions) })
	case *kmsg.OffsetForLeaderEpochRequest:
		return count(r.Topics, func(t *kmsg.OffsetForLeaderEpochRequestTopic) int { return len(t.Partitions) })
	case *kmsg.DescribeLogDirsRequest:
		return count(r.Topics, func(t *kmsg.DescribeLogDirsRequestTopic) int { return len(t.Partitions) })
	case *kmsg.CreateTopicsRequest:
		return count(r.Topics, func(t *kmsg.CreateTopicsRequestTopic) int { return len(t.Configs) + len(t.ReplicaAssignment) })
	case *kmsg.CreatePartitionsRequest:
		return count(r.Topics, func(t *kmsg.CreatePartitionsRequestTopic) int { return len(t.Assignment) })
	case *kmsg.MetadataRequest:
		return len(r.Topics)
	case *kmsg.DeleteTopicsRequest:
		return len(r.Topics) + len(r.TopicNames)
	case *kmsg.FindCoordinatorRequest:
		return len(r.CoordinatorKeys)
	case *kmsg.DescribeConfigsRequest:
		// Without names a resource is answered with all of its settings.
		return count(r.Resources, func(t *kmsg.DescribeConfigsRequestResource) int { return max(len(t.ConfigNames), len(settings)/8) })
	case *kmsg.AlterConfigsRequest:
		return count(r.Resources, func(t *kmsg.AlterConfigsRequestResource) int { return len(t.Configs) })
	case *kmsg.IncrementalAlterConfigsRequest:
		return count(r.Resources, func(t *kmsg.IncrementalAlterConfigsRequestResource) int { return len(t.Configs) })
	}
	return 0
}

// count adds up the items and what each of them names.
func count[T any](items []T, within func(*T) int) int {
	n := len(items)
	for i := range items {
		n += within(&items[i])
	}
	return n
}
