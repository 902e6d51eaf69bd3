package broker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tidemark-log/tidemark/broker/controller"
	"github.com/tidemark-log/tidemark/broker/coord"
)

// versionedNodes is a service that has nodes, each with a version, and carries out transactions on them.
type versionedNodes struct {
	coord.Client
	versions map[string]int32
	sizes    []int // of the transactions, in operations
	fail     error // of every transaction
}

func (v *versionedNodes) Multi(ops []coord.Op, done func([]coord.Result, error)) {
	v.sizes = append(v.sizes, len(ops))
	if v.fail != nil {
		done(nil, v.fail)
		return
	}
	results := make([]coord.Result, len(ops))
	for i, op := range ops {
		if v.versions[op.Path] != op.Version {
			for j := i + 1; j < len(ops); j++ {
				results[j].Err = coord.ErrRuntimeInconsistency
			}
			results[i].Err = coord.ErrBadVersion
			done(results, coord.ErrBadVersion)
			return
		}
	}
	for i, op := range ops {
		if op.Kind == coord.OpSet {
			v.versions[op.Path]++
			results[i].Stat.Version = v.versions[op.Path]
		}
	}
	done(results, nil)
}

func statesAt(nodes *versionedNodes, n int) (writes []controller.StateWrite) {
	for i := range n {
		w := controller.StateWrite{Partition: controller.TopicPartition{Topic: "t", Partition: int32(i)}, Version: int32(10 * i)}
		nodes.versions[coord.PartitionStatePath("t", int32(i))] = w.Version
		writes = append(writes, w)
	}
	return writes
}

func outcomesOf(results []controller.StateWritten) (text []string) {
	for _, r := range results {
		text = append(text, fmt.Sprint(r.Outcome, " ", r.Version))
	}
	return text
}

// States are written together; where one is not as believed the others are written all the same.
func TestStatesAreWrittenTogetherAndRefusedAlone(t *testing.T) {
	const accepted, conflict, fenced, unknown = controller.Accepted, controller.Conflict, controller.Fenced, controller.Unknown
	for _, c := range []struct {
		name   string
		change func(*versionedNodes, []controller.StateWrite)
		want   []string
		sizes  []int
	}{
		{"all as believed", func(*versionedNodes, []controller.StateWrite) {},
			[]string{fmt.Sprint(accepted, " 1"), fmt.Sprint(accepted, " 11"), fmt.Sprint(accepted, " 21")}, []int{5}},
		{"one state has changed", func(n *versionedNodes, _ []controller.StateWrite) { n.versions[coord.PartitionStatePath("t", 1)]++ },
			[]string{fmt.Sprint(accepted, " 1"), fmt.Sprint(conflict, " 0"), fmt.Sprint(accepted, " 21")}, []int{5, 2, 2, 3}},
		{"the joiner of one is another incarnation", func(n *versionedNodes, _ []controller.StateWrite) { n.versions[coord.BrokerEpochPath(7)]++ },
			[]string{fmt.Sprint(accepted, " 1"), fmt.Sprint(accepted, " 11"), fmt.Sprint(conflict, " 0")}, []int{5, 2, 2, 3}},
		{"there is a newer controller", func(n *versionedNodes, _ []controller.StateWrite) { n.versions[coord.ControllerEpochPath]++ },
			slices.Repeat([]string{fmt.Sprint(fenced, " 0")}, 3), []int{5}},
		{"nobody knows what became of it", func(n *versionedNodes, _ []controller.StateWrite) { n.fail = coord.ErrConnectionLoss },
			slices.Repeat([]string{fmt.Sprint(unknown, " 0")}, 3), []int{5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := &versionedNodes{versions: map[string]int32{coord.ControllerEpochPath: 4, coord.BrokerEpochPath(7): 2}}
			writes := statesAt(nodes, 3)
			writes[2].Join = []controller.BrokerEpoch{{Broker: 7, Epoch: 2}}
			c.change(nodes, writes)
			d := &driver{s: &session{client: nodes}}
			results, ended := make([]controller.StateWritten, 3), 0
			d.writeTogether(4, writes, results, func() { ended++ })
			if got := outcomesOf(results); !slices.Equal(got, c.want) {
				t.Errorf("outcomes and versions %v, want %v", got, c.want)
			}
			if !slices.Equal(nodes.sizes, c.sizes) || ended != 1 {
				t.Errorf("transactions of %v operations, want %v; ended %d times", nodes.sizes, c.sizes, ended)
			}
		})
	}
}
