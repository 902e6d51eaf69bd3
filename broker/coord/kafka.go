package coord

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The JSON that Kafka keeps in its nodes, with its versions and odd spellings.
// Encoding gives the same bytes for the same value; decoding accepts fields that
// it does not know, as Kafka does, so that a newer one's nodes can be read.

// UUID is a topic id or cluster id.
type UUID [16]byte

// String is Kafka's form: base64url without padding.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// ParseUUID reads String's form.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(u) {
		return u, fmt.Errorf("%q is no id of 22 base64 characters", s)
	}
	copy(u[:], b)
	return u, nil
}

// EncodeClusterID is the content of ClusterIDPath.
func EncodeClusterID(id string) []byte {
	return mustJSON(struct {
		Version string `json:"version"`
		ID      string `json:"id"`
	}{"1", id})
}

// DecodeClusterID reads it.
func DecodeClusterID(b []byte) (string, error) {
	var v struct {
		ID string `json:"id"`
	}
	if err := decodeJSON(ClusterIDPath, b, &v); err != nil {
		return "", err
	}
	if v.ID == "" {
		return "", fmt.Errorf("coord: %s has no id", ClusterIDPath)
	}
	return v.ID, nil
}

// BrokerRegistration is the content of BrokerIDPath.
type BrokerRegistration struct {
	Host      string // advertised
	Port      int32
	Timestamp int64 // ms, of the registration
	Rack      string
}

type brokerJSON struct {
	Protocols map[string]string `json:"listener_security_protocol_map"`
	Endpoints []string          `json:"endpoints"`
	JMXPort   int               `json:"jmx_port"`
	Features  struct{}          `json:"features"`
	Host      string            `json:"host"`
	Timestamp string            `json:"timestamp"`
	Port      int32             `json:"port"`
	Version   int               `json:"version"`
	Rack      string            `json:"rack,omitempty"`
}

// Encode gives the JSON, version 5, of one PLAINTEXT listener.
func (r BrokerRegistration) Encode() []byte {
	host := r.Host
	if strings.Contains(host, ":") { // an IPv6 address
		host = "[" + host + "]"
	}
	return mustJSON(brokerJSON{
		Protocols: map[string]string{"PLAINTEXT": "PLAINTEXT"},
		Endpoints: []string{"PLAINTEXT://" + host + ":" + strconv.Itoa(int(r.Port))},
		JMXPort:   -1,
		Host:      r.Host,
		Timestamp: strconv.FormatInt(r.Timestamp, 10),
		Port:      r.Port,
		Version:   5,
		Rack:      r.Rack,
	})
}

// DecodeBrokerRegistration reads it.
func DecodeBrokerRegistration(b []byte) (BrokerRegistration, error) {
	var v brokerJSON
	if err := decodeJSON(BrokerIDsPath, b, &v); err != nil {
		return BrokerRegistration{}, err
	}
	ms, err := strconv.ParseInt(v.Timestamp, 10, 64)
	if err != nil {
		return BrokerRegistration{}, fmt.Errorf("coord: broker registration: timestamp %q", v.Timestamp)
	}
	return BrokerRegistration{v.Host, v.Port, ms, v.Rack}, nil
}

// TopicAssignment is the content of TopicPath: who replicates each partition.
type TopicAssignment struct {
	TopicID  UUID
	Replicas [][]int32 // by partition, preferred leader first
}

type topicJSON struct {
	Removing   map[string][]int32 `json:"removing_replicas"`
	Partitions map[string][]int32 `json:"partitions"`
	TopicID    string             `json:"topic_id"`
	Adding     map[string][]int32 `json:"adding_replicas"`
	Version    int                `json:"version"`
}

// Encode gives the JSON, version 3.
func (a TopicAssignment) Encode() []byte {
	v := topicJSON{
		Removing: map[string][]int32{}, Adding: map[string][]int32{},
		Partitions: make(map[string][]int32, len(a.Replicas)),
		TopicID:    a.TopicID.String(), Version: 3,
	}
	for p, replicas := range a.Replicas {
		v.Partitions[strconv.Itoa(p)] = replicas
	}
	return mustJSON(v)
}

// DecodeTopicAssignment reads it.
func DecodeTopicAssignment(b []byte) (TopicAssignment, error) {
	var v topicJSON
	if err := decodeJSON(TopicsPath, b, &v); err != nil {
		return TopicAssignment{}, err
	}
	id, err := ParseUUID(v.TopicID)
	if err != nil {
		return TopicAssignment{}, fmt.Errorf("coord: topic: %w", err)
	}
	a := TopicAssignment{id, make([][]int32, len(v.Partitions))}
	for _, key := range slices.Sorted(maps.Keys(v.Partitions)) {
		p, err := strconv.Atoi(key)
		if err != nil || p < 0 || p >= len(a.Replicas) || strconv.Itoa(p) != key {
			return TopicAssignment{}, fmt.Errorf("coord: topic %s: partition %q of %d", v.TopicID, key, len(a.Replicas))
		}
		a.Replicas[p] = v.Partitions[key]
	}
	return a, nil
}

// PartitionState is the content of PartitionStatePath. The node's version guards it: ISR changes are conditional writes.
type PartitionState struct {
	ControllerEpoch int32   `json:"controller_epoch"`
	Leader          int32   `json:"leader"` // -1: none
	Version         int     `json:"version"`
	LeaderEpoch     int32   `json:"leader_epoch"`
	ISR             []int32 `json:"isr"`
}

// Encode gives the JSON, version 1.
func (s PartitionState) Encode() []byte {
	s.Version = 1
	if s.ISR == nil {
		s.ISR = []int32{}
	}
	return mustJSON(s)
}

// DecodePartitionState reads it.
func DecodePartitionState(b []byte) (PartitionState, error) {
	var s PartitionState
	return s, decodeJSON("partition state", b, &s)
}

type configJSON struct {
	Version int               `json:"version"`
	Config  map[string]string `json:"config"`
}

// EncodeConfig is the content of TopicConfigPath and BrokerConfigPath.
func EncodeConfig(config map[string]string) []byte {
	if config == nil {
		config = map[string]string{}
	}
	return mustJSON(configJSON{1, config})
}

// DecodeConfig reads it.
func DecodeConfig(b []byte) (map[string]string, error) {
	v := configJSON{}
	if err := decodeJSON("config", b, &v); err != nil {
		return nil, err
	}
	if v.Config == nil {
		v.Config = map[string]string{}
	}
	return v.Config, nil
}

// ProducerIDBlock is the content of LatestProducerIDBlockPath: the ids that one
// broker may hand out. A new block is claimed by a conditional write before any
// of it is used, so an id is never given twice.
type ProducerIDBlock struct {
	Broker     int32
	Start, End int64 // both inclusive
}

// ProducerIDBlockSize is how many ids a block has.
const ProducerIDBlockSize = 1000

type producerIDBlockJSON struct {
	Version int    `json:"version"`
	Broker  int32  `json:"broker"`
	Start   string `json:"block_start"`
	End     string `json:"block_end"`
}

// Encode gives the JSON, version 1.
func (p ProducerIDBlock) Encode() []byte {
	return mustJSON(producerIDBlockJSON{1, p.Broker, strconv.FormatInt(p.Start, 10), strconv.FormatInt(p.End, 10)})
}

// DecodeProducerIDBlock reads it.
func DecodeProducerIDBlock(b []byte) (ProducerIDBlock, error) {
	var v producerIDBlockJSON
	if err := decodeJSON(LatestProducerIDBlockPath, b, &v); err != nil {
		return ProducerIDBlock{}, err
	}
	start, err1 := strconv.ParseInt(v.Start, 10, 64)
	end, err2 := strconv.ParseInt(v.End, 10, 64)
	if err1 != nil || err2 != nil || start < 0 || end < start {
		return ProducerIDBlock{}, fmt.Errorf("coord: %s: block %q to %q", LatestProducerIDBlockPath, v.Start, v.End)
	}
	return ProducerIDBlock{v.Broker, start, end}, nil
}

// mustJSON encodes without Go's escaping of <, > and &, which Kafka does not do.
func mustJSON(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("BUG: coord: encode %T: %v", v, err))
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

func decodeJSON(what string, b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("coord: %s holds no valid JSON: %w", what, err)
	}
	return nil
}
