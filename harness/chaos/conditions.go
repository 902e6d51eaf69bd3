package chaos

import (
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/experiments"
)

// condition is what a step waits for, as the simulator understands it, seen through metadata.
type condition func(m *kmsg.MetadataResponse, acked int) bool

// isCondition says whether a condition can be seen from outside.
func isCondition(text string) bool { return parseCondition(text) != nil }

func parseCondition(text string) condition {
	every := func(f func(p *kmsg.MetadataResponseTopicPartition) bool) condition {
		return func(m *kmsg.MetadataResponse, _ int) bool {
			all := partitionsOf(m)
			return len(all) > 0 && !slices.ContainsFunc(all, func(p kmsg.MetadataResponseTopicPartition) bool { return !f(&p) })
		}
	}
	inSync := every(func(p *kmsg.MetadataResponseTopicPartition) bool {
		return p.Leader > 0 && len(p.ISR) == len(p.Replicas)
	})
	led := every(func(p *kmsg.MetadataResponseTopicPartition) bool { return p.Leader > 0 })
	switch text {
	case "in sync":
		return inSync
	case "out of sync":
		return func(m *kmsg.MetadataResponse, n int) bool { return len(partitionsOf(m)) > 0 && !inSync(m, n) }
	case "led":
		return led
	case "no leader":
		return func(m *kmsg.MetadataResponse, n int) bool { return len(partitionsOf(m)) > 0 && !led(m, n) }
	case "ISR of one":
		return every(func(p *kmsg.MetadataResponseTopicPartition) bool { return len(p.ISR) == 1 })
	case "topic made":
		return func(m *kmsg.MetadataResponse, _ int) bool { return len(partitionsOf(m)) > 0 }
	case "acknowledged":
		return func(_ *kmsg.MetadataResponse, acked int) bool { return acked > 0 }
	}
	kind, rest, _ := strings.Cut(text, " ")
	if kind == "ISR" {
		return every(func(p *kmsg.MetadataResponseTopicPartition) bool { return joined(p.ISR) == rest })
	}
	n, err := strconv.ParseInt(rest, 10, 32)
	if err != nil || n < 1 {
		return nil
	}
	known := func(m *kmsg.MetadataResponse) bool {
		return slices.ContainsFunc(m.Brokers, func(b kmsg.MetadataResponseBroker) bool { return b.NodeID == int32(n) })
	}
	switch kind {
	case "leader":
		return every(func(p *kmsg.MetadataResponseTopicPartition) bool { return p.Leader == int32(n) })
	case "controller":
		return func(m *kmsg.MetadataResponse, _ int) bool { return m.ControllerID == int32(n) }
	case "registered":
		return func(m *kmsg.MetadataResponse, _ int) bool { return known(m) }
	case "gone":
		return func(m *kmsg.MetadataResponse, _ int) bool { return !known(m) }
	case "acked":
		return func(_ *kmsg.MetadataResponse, acked int) bool { return acked >= int(n) }
	}
	return nil
}

func joined(ids []int32) string {
	var all []string
	for _, id := range slices.Sorted(slices.Values(ids)) {
		all = append(all, strconv.Itoa(int(id)))
	}
	return strings.Join(all, ",")
}

func partitionsOf(m *kmsg.MetadataResponse) []kmsg.MetadataResponseTopicPartition {
	for _, t := range m.Topics {
		if t.Topic != nil && *t.Topic == topic {
			return t.Partitions
		}
	}
	return nil
}

// inRole gives the brokers in a role, as metadata tells it, out of n.
func inRole(m *kmsg.MetadataResponse, t experiments.Target, n int) []int32 {
	var id int32
	switch t.Role {
	case experiments.RoleBroker:
		id = t.Number
	case experiments.RoleController:
		id = m.ControllerID
	case experiments.RoleBrokers:
		var all []int32
		for i := range n {
			all = append(all, int32(i)+1)
		}
		return all
	}
	for _, p := range partitionsOf(m) {
		if p.Partition != t.Partition {
			continue
		}
		switch t.Role {
		case experiments.RoleLeader:
			id = p.Leader
		case experiments.RoleFollower:
			for _, r := range slices.Sorted(slices.Values(p.ISR)) {
				if r != p.Leader && id == 0 {
					id = r
				}
			}
		case experiments.RoleLagging:
			for _, r := range p.Replicas {
				if !slices.Contains(p.ISR, r) {
					id = r
				}
			}
		}
	}
	if id < 1 || int(id) > n {
		return nil
	}
	return []int32{id}
}
