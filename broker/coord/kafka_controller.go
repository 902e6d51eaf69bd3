package coord

import (
	"fmt"
	"strconv"
)

// Controller is the content of ControllerPath: who was elected.
type Controller struct {
	Broker    int32
	Timestamp int64 // ms, of the election
}

type controllerJSON struct {
	Version   int    `json:"version"`
	Broker    *int32 `json:"brokerid"`
	Timestamp string `json:"timestamp"`
}

// Encode gives the JSON, version 2.
func (c Controller) Encode() []byte {
	return mustJSON(controllerJSON{2, &c.Broker, strconv.FormatInt(c.Timestamp, 10)})
}

// DecodeController reads it.
func DecodeController(b []byte) (Controller, error) {
	var v controllerJSON
	if err := decodeJSON(ControllerPath, b, &v); err != nil {
		return Controller{}, err
	}
	ms, err := strconv.ParseInt(v.Timestamp, 10, 64)
	if err != nil || v.Broker == nil || *v.Broker < 0 {
		return Controller{}, fmt.Errorf("coord: %s cannot be: %.200q", ControllerPath, b)
	}
	return Controller{*v.Broker, ms}, nil
}

// EncodeControllerEpoch is the content of ControllerEpochPath: a number, no JSON.
func EncodeControllerEpoch(epoch int32) []byte { return strconv.AppendInt(nil, int64(epoch), 10) }

// DecodeControllerEpoch reads it.
func DecodeControllerEpoch(b []byte) (int32, error) {
	n, err := strconv.ParseInt(string(b), 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("coord: %s holds no number: %.40q", ControllerEpochPath, b)
	}
	return int32(n), nil
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// partitionsJSON is the form of three nodes: the replicas stand in one of them alone.
type partitionsJSON struct {
	Version    int             `json:"version"`
	Partitions []partitionJSON `json:"partitions"`
}

type partitionJSON struct {
	Topic     string  `json:"topic"`
	Partition *int32  `json:"partition"`
	Replicas  []int32 `json:"replicas,omitempty"`
}

func encodePartitions(partitions []TopicPartition) []byte {
	v := partitionsJSON{1, make([]partitionJSON, len(partitions))}
	for i := range partitions {
		v.Partitions[i] = partitionJSON{Topic: partitions[i].Topic, Partition: &partitions[i].Partition}
	}
	return mustJSON(v)
}

func decodePartitions(path string, b []byte) ([]partitionJSON, error) {
	var v partitionsJSON
	if err := decodeJSON(path, b, &v); err != nil {
		return nil, err
	}
	if v.Partitions == nil {
		return nil, fmt.Errorf("coord: %s names no partitions: %.200q", path, b)
	}
	for _, p := range v.Partitions {
		if p.Topic == "" || p.Partition == nil || *p.Partition < 0 || !brokerIDs(p.Replicas) {
			return nil, fmt.Errorf("coord: %s: partition cannot be: %.200q", path, b)
		}
	}
	return v.Partitions, nil
}

func decodeTopicPartitions(path string, b []byte) ([]TopicPartition, error) {
	v, err := decodePartitions(path, b)
	if err != nil {
		return nil, err
	}
	partitions := make([]TopicPartition, len(v))
	for i, p := range v {
		partitions[i] = TopicPartition{p.Topic, *p.Partition}
	}
	return partitions, nil
}

// EncodeISRChange is the content of a node under ISRChangeNotificationPath, by
// which a leader tells the controller whose ISR it has changed.
func EncodeISRChange(partitions []TopicPartition) []byte { return encodePartitions(partitions) }

// DecodeISRChange reads it.
func DecodeISRChange(b []byte) ([]TopicPartition, error) {
	return decodeTopicPartitions(ISRChangeNotificationPath, b)
}

type logDirEventJSON struct {
	Version int    `json:"version"`
	Broker  *int32 `json:"broker"`
	Event   int    `json:"event"`
}

// logDirFailure is the one kind of event that there is.
const logDirFailure = 1

// EncodeLogDirEvent is the content of a node under LogDirEventPath, by which a broker
// tells the controller that one of its log directories went offline; which partitions
// are there, it says when it is sent a LeaderAndISR.
func EncodeLogDirEvent(broker int32) []byte {
	return mustJSON(logDirEventJSON{1, &broker, logDirFailure})
}

// DecodeLogDirEvent reads whose log directory it is.
func DecodeLogDirEvent(b []byte) (broker int32, err error) {
	v := logDirEventJSON{}
	if err := decodeJSON(LogDirEventPath, b, &v); err != nil {
		return 0, err
	}
	if v.Broker == nil || *v.Broker < 0 || v.Event != logDirFailure {
		return 0, fmt.Errorf("coord: %s: no failure of a broker's log directory: %.200q", LogDirEventPath, b)
	}
	return *v.Broker, nil
}

// EncodePreferredElection is the content of PreferredElectionPath: which partitions are to go back to their preferred leader.
func EncodePreferredElection(partitions []TopicPartition) []byte {
	return encodePartitions(partitions)
}

// DecodePreferredElection reads it.
func DecodePreferredElection(b []byte) ([]TopicPartition, error) {
	return decodeTopicPartitions(PreferredElectionPath, b)
}

// Reassignment is one partition of ReassignPartitionsPath: who is to replicate it.
type Reassignment struct {
	TopicPartition
	Replicas []int32 // preferred leader first
}

// EncodeReassignments is the content of ReassignPartitionsPath.
func EncodeReassignments(all []Reassignment) []byte {
	v := partitionsJSON{1, make([]partitionJSON, len(all))}
	for i := range all {
		v.Partitions[i] = partitionJSON{all[i].Topic, &all[i].Partition, all[i].Replicas}
	}
	return mustJSON(v)
}

// DecodeReassignments reads it.
func DecodeReassignments(b []byte) ([]Reassignment, error) {
	v, err := decodePartitions(ReassignPartitionsPath, b)
	if err != nil {
		return nil, err
	}
	all := make([]Reassignment, len(v))
	for i, p := range v {
		if len(p.Replicas) == 0 {
			return nil, fmt.Errorf("coord: %s: %s/%d has no replicas", ReassignPartitionsPath, p.Topic, *p.Partition)
		}
		all[i] = Reassignment{TopicPartition{p.Topic, *p.Partition}, p.Replicas}
	}
	return all, nil
}

type configChangeJSON struct {
	Version int    `json:"version"`
	Entity  string `json:"entity_path"`
}

// EncodeConfigChange is the content of a node under ConfigChangesPath: whose
// settings have changed, as a path below ConfigPath ("topics/t", "brokers/1").
func EncodeConfigChange(entity string) []byte { return mustJSON(configChangeJSON{2, entity}) }

// DecodeConfigChange reads it.
func DecodeConfigChange(b []byte) (entity string, err error) {
	var v configChangeJSON
	if err := decodeJSON(ConfigChangesPath, b, &v); err != nil {
		return "", err
	}
	if v.Entity == "" {
		return "", fmt.Errorf("coord: %s names no entity: %.200q", ConfigChangesPath, b)
	}
	return v.Entity, nil
}
