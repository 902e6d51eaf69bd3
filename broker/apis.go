package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// API is one request kind and the versions served.
type API struct{ Key, Min, Max int16 }

// apis is the table of what is served, ascending by key. What a handler leaves
// out is said at the head of its file.
//
// Produce from version 0 and FindCoordinator are there although the first has no
// use and the second only refuses: librdkafka decides by them which message
// format a broker knows, and without them it sends uncompressed and says nothing.
var apis = []API{
	{int16(kmsg.Produce), 0, 13},
	{int16(kmsg.Fetch), 4, 18},
	{int16(kmsg.ListOffsets), 1, 11},
	{int16(kmsg.Metadata), 0, 13},
	{int16(kmsg.LeaderAndISR), leaderAndISRVersion, leaderAndISRVersion},
	{int16(kmsg.StopReplica), stopReplicaVersion, stopReplicaVersion},
	{int16(kmsg.UpdateMetadata), updateMetadataVersion, updateMetadataVersion},
	{int16(kmsg.ControlledShutdown), controlledShutdownVersion, controlledShutdownVersion},
	{int16(kmsg.FindCoordinator), 0, 6},
	{int16(kmsg.ApiVersions), 0, 4},
	{int16(kmsg.CreateTopics), 0, 7},
	{int16(kmsg.DeleteTopics), 0, 6},
	{int16(kmsg.DeleteRecords), 0, 2},
	{int16(kmsg.InitProducerID), 0, 5},
	{int16(kmsg.OffsetForLeaderEpoch), 0, 4},
	{int16(kmsg.DescribeConfigs), 0, 4},
	{int16(kmsg.AlterConfigs), 0, 2},
	{int16(kmsg.DescribeLogDirs), 0, 4},
	{int16(kmsg.CreatePartitions), 0, 3},
	{int16(kmsg.IncrementalAlterConfigs), 0, 1},
	{int16(kmsg.DescribeCluster), 0, 2},
}

// apiKeysMax is one more than the largest key in the table.
const apiKeysMax = int(kmsg.DescribeCluster) + 1

// APIs is the table of what is served, ascending by key. It is not to be changed.
func APIs() []API { return apis }

// Supports is true when requests of that key and version are served.
func Supports(key, version int16) bool {
	for _, a := range apis {
		if a.Key == key {
			return a.Min <= version && version <= a.Max
		}
	}
	return false
}

// dispatch calls the request's handler. The caller has checked Supports.
func (b *Broker) dispatch(req Request, reply Reply) {
	switch body := req.Body.(type) {
	case *kmsg.ProduceRequest:
		b.handleProduce(body, reply)
	case *kmsg.FetchRequest:
		b.handleFetch(req.Conn, body, reply)
	case *kmsg.ListOffsetsRequest:
		reply(Answer{Body: b.listOffsets(body)})
	case *kmsg.MetadataRequest:
		b.handleMetadata(body, req.Local, reply)
	case *kmsg.LeaderAndISRRequest:
		b.handleLeaderAndISR(body, reply)
	case *kmsg.StopReplicaRequest:
		b.handleStopReplica(body, reply)
	case *kmsg.UpdateMetadataRequest:
		b.handleUpdateMetadata(body, reply)
	case *kmsg.ControlledShutdownRequest:
		b.handleControlledShutdown(body, reply)
	case *kmsg.FindCoordinatorRequest:
		reply(Answer{Body: b.findCoordinator(body)})
	case *kmsg.ApiVersionsRequest:
		reply(Answer{Body: b.apiVersions(body)})
	case *kmsg.CreateTopicsRequest:
		b.handleCreateTopics(body, reply)
	case *kmsg.DeleteTopicsRequest:
		b.handleDeleteTopics(body, reply)
	case *kmsg.DeleteRecordsRequest:
		reply(Answer{Body: b.deleteRecords(body)})
	case *kmsg.InitProducerIDRequest:
		b.handleInitProducerID(body, reply)
	case *kmsg.OffsetForLeaderEpochRequest:
		reply(Answer{Body: b.offsetForLeaderEpoch(body)})
	case *kmsg.DescribeConfigsRequest:
		reply(Answer{Body: b.describeConfigs(body)})
	case *kmsg.AlterConfigsRequest:
		b.handleAlterConfigs(body, reply)
	case *kmsg.IncrementalAlterConfigsRequest:
		b.handleIncrementalAlterConfigs(body, reply)
	case *kmsg.DescribeLogDirsRequest:
		reply(Answer{Body: b.describeLogDirs(body)})
	case *kmsg.CreatePartitionsRequest:
		b.handleCreatePartitions(body, reply)
	case *kmsg.DescribeClusterRequest:
		reply(Answer{Body: b.describeCluster(body, req.Local)})
	default:
		reply(Answer{Silent: true, Close: true})
	}
}
