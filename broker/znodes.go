package broker

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
)

// Kafka's znodes, all in one place, and their JSON. A cluster of one needs no
// /brokers/ids, /controller or partition states: nobody else could lead. Its
// leader epoch is the version of brokers/epochs/ID, which each start bumps.
const (
	pathBrokers       = "/brokers"
	pathTopics        = "/brokers/topics"
	pathEpochs        = "/brokers/epochs"
	pathConfig        = "/config"
	pathTopicConfigs  = "/config/topics"
	pathBrokerConfigs = "/config/brokers"
	pathCluster       = "/cluster"
	pathClusterID     = "/cluster/id"
	pathProducerIDs   = "/latest_producer_id_block"
)

func pathTopic(name string) string       { return pathTopics + "/" + name }
func pathTopicConfig(name string) string { return pathTopicConfigs + "/" + name }
func pathBrokerConfig(id int32) string   { return pathBrokerConfigs + "/" + strconv.Itoa(int(id)) }
func pathEpoch(id int32) string          { return pathEpochs + "/" + strconv.Itoa(int(id)) }

// topicNode is /brokers/topics/NAME.
type topicNode struct {
	Version          int                `json:"version"`
	TopicID          string             `json:"topic_id"`
	Partitions       map[string][]int32 `json:"partitions"` // partition to its replicas
	AddingReplicas   map[string][]int32 `json:"adding_replicas"`
	RemovingReplicas map[string][]int32 `json:"removing_replicas"`
}

// configNode is /config/topics/NAME and /config/brokers/ID.
type configNode struct {
	Version int               `json:"version"`
	Config  map[string]string `json:"config"`
}

// clusterNode is /cluster/id.
type clusterNode struct {
	Version string `json:"version"`
	ID      string `json:"id"`
}

// producerIDNode is /latest_producer_id_block: the last block handed out, both ends included.
type producerIDNode struct {
	Version int    `json:"version"`
	Broker  int32  `json:"broker"`
	Start   string `json:"block_start"`
	End     string `json:"block_end"`
}

func encodeNode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: broker: " + err.Error()) // none of the types can fail
	}
	return b
}

func decodeNode(path string, data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("metadata of %s: %w", path, err)
	}
	return nil
}

func encodeTopicNode(id topicID, partitions int, broker int32) []byte {
	n := topicNode{
		Version: 3, TopicID: id.String(), Partitions: make(map[string][]int32, partitions),
		AddingReplicas: map[string][]int32{}, RemovingReplicas: map[string][]int32{},
	}
	for i := range partitions {
		n.Partitions[strconv.Itoa(i)] = []int32{broker}
	}
	return encodeNode(n)
}

// decodeTopicNode gives id and partition count; the partitions must be 0, 1, 2, … without a gap.
func decodeTopicNode(name string, data []byte) (id topicID, partitions int, err error) {
	var n topicNode
	if err := decodeNode(pathTopic(name), data, &n); err != nil {
		return id, 0, err
	}
	for i := range len(n.Partitions) {
		if _, ok := n.Partitions[strconv.Itoa(i)]; !ok {
			return id, 0, fmt.Errorf("metadata of %s: partition %d is missing", pathTopic(name), i)
		}
	}
	id, err = parseTopicID(n.TopicID)
	if err != nil {
		return id, 0, fmt.Errorf("metadata of %s: %w", pathTopic(name), err)
	}
	return id, len(n.Partitions), nil
}

// String is Kafka's form of a UUID: base64 for URLs, without padding.
func (id topicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func parseTopicID(s string) (id topicID, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("topic id %q is no base64 UUID", s)
	}
	return topicID(b), nil
}

// newUUID is a random UUID, version 4, never one that begins with '-' as text: it would look like a flag.
func newUUID(random interface{ Uint64() uint64 }) topicID {
	for {
		var id topicID
		for i := 0; i < len(id); i += 8 {
			v := random.Uint64()
			for j := range 8 {
				id[i+j] = byte(v >> (8 * j))
			}
		}
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		if id.String()[0] != '-' {
			return id
		}
	}
}
