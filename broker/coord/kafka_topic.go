package coord

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// TopicAssignment is the content of TopicPath: who replicates each partition.
type TopicAssignment struct {
	TopicID  UUID
	Replicas [][]int32 // by partition, preferred leader first; adding and removing ones included
	// While partitions are reassigned: by partition, which replicas are on their way in and out. nil: none.
	Adding, Removing map[int32][]int32
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
		Removing: byName(a.Removing), Adding: byName(a.Adding),
		Partitions: make(map[string][]int32, len(a.Replicas)),
		TopicID:    a.TopicID.String(), Version: 3,
	}
	for p, replicas := range a.Replicas {
		v.Partitions[strconv.Itoa(p)] = replicas
	}
	return mustJSON(v)
}

func byName(m map[int32][]int32) map[string][]int32 {
	named := make(map[string][]int32, len(m))
	for _, p := range sortedKeys(m) {
		named[strconv.Itoa(int(p))] = m[p]
	}
	return named
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
	a := TopicAssignment{TopicID: id, Replicas: make([][]int32, len(v.Partitions))}
	for _, key := range slices.Sorted(maps.Keys(v.Partitions)) {
		p, err := partitionNumber(key, len(a.Replicas), v.Partitions[key])
		if err != nil {
			return TopicAssignment{}, fmt.Errorf("coord: topic %s: %w", v.TopicID, err)
		}
		a.Replicas[p] = v.Partitions[key]
	}
	if a.Adding, err = byNumber(v.Adding, len(a.Replicas)); err != nil {
		return TopicAssignment{}, fmt.Errorf("coord: topic %s: adding: %w", v.TopicID, err)
	}
	if a.Removing, err = byNumber(v.Removing, len(a.Replicas)); err != nil {
		return TopicAssignment{}, fmt.Errorf("coord: topic %s: removing: %w", v.TopicID, err)
	}
	return a, nil
}

func byNumber(named map[string][]int32, partitions int) (map[int32][]int32, error) {
	if len(named) == 0 {
		return nil, nil
	}
	m := make(map[int32][]int32, len(named))
	for _, key := range slices.Sorted(maps.Keys(named)) {
		p, err := partitionNumber(key, partitions, named[key])
		if err != nil {
			return nil, err
		}
		m[p] = named[key]
	}
	return m, nil
}

func partitionNumber(key string, partitions int, replicas []int32) (int32, error) {
	p, err := strconv.ParseInt(key, 10, 32)
	if err != nil || p < 0 || p >= int64(partitions) || strconv.FormatInt(p, 10) != key {
		return 0, fmt.Errorf("partition %q of %d", key, partitions)
	}
	if !brokerIDs(replicas) {
		return 0, fmt.Errorf("partition %d: replicas %v", p, replicas)
	}
	return int32(p), nil
}

// brokerIDs says whether these can be the ids of different brokers.
func brokerIDs(ids []int32) bool {
	for i, id := range ids {
		if id < 0 || slices.Contains(ids[:i], id) {
			return false
		}
	}
	return true
}

// PartitionState is the content of PartitionStatePath. The node's version, the partition epoch, guards it: ISR changes are conditional writes.
type PartitionState struct {
	ControllerEpoch int32
	Leader          int32 // NoBroker: none
	LeaderEpoch     int32
	ISR             []int32
	ELR             []int32 // ours, as KIP-966: left the ISR below min.insync.replicas, may still lead
	LastLeader      int32   // ours, as KIP-966; NoBroker: not known
	LastKnownELR    []int32 // ours, as KIP-966: had to leave ISR and ELR by an unclean start while nobody led
}

// NoBroker stands where there is no leader.
const NoBroker int32 = -1

// partitionStateJSON has pointers where a missing field must not pass for 0.
type partitionStateJSON struct {
	ControllerEpoch *int32  `json:"controller_epoch"`
	Leader          *int32  `json:"leader"`
	Version         int     `json:"version"`
	LeaderEpoch     *int32  `json:"leader_epoch"`
	ISR             []int32 `json:"isr"`
	ELR             []int32 `json:"elr"`
	LastLeader      *int32  `json:"last_leader"`
	LastKnownELR    []int32 `json:"last_known_elr"`
}

// Encode gives the JSON, version 1.
func (s PartitionState) Encode() []byte {
	return mustJSON(partitionStateJSON{
		ControllerEpoch: &s.ControllerEpoch, Leader: &s.Leader, Version: 1, LeaderEpoch: &s.LeaderEpoch,
		ISR: notNil(s.ISR), ELR: notNil(s.ELR), LastLeader: &s.LastLeader, LastKnownELR: notNil(s.LastKnownELR),
	})
}

func notNil(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}

// DecodePartitionState reads it. One without our fields has no ELR and no last leader.
func DecodePartitionState(b []byte) (PartitionState, error) {
	var v partitionStateJSON
	if err := decodeJSON("partition state", b, &v); err != nil {
		return PartitionState{}, err
	}
	if v.ControllerEpoch == nil || v.Leader == nil || v.LeaderEpoch == nil || v.ISR == nil {
		return PartitionState{}, fmt.Errorf("coord: partition state lacks a field: %.200q", b)
	}
	s := PartitionState{*v.ControllerEpoch, *v.Leader, *v.LeaderEpoch, v.ISR, notNil(v.ELR), NoBroker, notNil(v.LastKnownELR)}
	if v.LastLeader != nil {
		s.LastLeader = *v.LastLeader
	}
	if s.Leader < NoBroker || s.LastLeader < NoBroker || s.LeaderEpoch < 0 || !brokerIDs(s.ISR) || !brokerIDs(s.ELR) || !brokerIDs(s.LastKnownELR) {
		return PartitionState{}, fmt.Errorf("coord: partition state cannot be: %.200q", b)
	}
	return s, nil
}
