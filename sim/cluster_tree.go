package sim

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/sim/ghost"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// treeSeen is what was last seen of the coordination service's tree.
type treeSeen struct {
	zxid       int64
	controller int32
	epoch      int32             // of the controller
	states     []int64           // by partition: mzxid of its state
	assigned   int64             // mzxid of the topic
	replicas   [][]int32         // by partition
	registered []coord.SessionID // by broker: owner of its registration
}

// look tells the ghost what has changed in the tree since it was last looked at.
// It costs something only when a transaction was applied.
func (c *Cluster) look() {
	tree := c.service.Tree()
	if tree.Zxid() == c.tree.zxid {
		return
	}
	t := &c.tree
	t.zxid = tree.Zxid()
	if t.states == nil {
		t.states, t.registered = make([]int64, c.cfg.partitions), make([]coord.SessionID, len(c.nodes))
		t.controller = -1
	}
	c.lookAtController(tree)
	if data, st, err := tree.Get(coord.TopicPath(topicName)); err == nil && st.Mzxid != t.assigned {
		t.assigned = st.Mzxid
		if a, err := coord.DecodeTopicAssignment(data); err == nil {
			t.replicas = a.Replicas
			for i, r := range a.Replicas {
				c.ghost.Assigned(tp(int32(i)), r)
			}
		}
	}
	for i := range t.states {
		data, st, err := tree.Get(coord.PartitionStatePath(topicName, int32(i)))
		if err != nil || st.Mzxid == t.states[i] {
			continue
		}
		t.states[i] = st.Mzxid
		s, err := coord.DecodePartitionState(data)
		if err != nil {
			c.violated("the state of partition %d does not decode: %v", i, err)
			return
		}
		n := ghost.StateNode{Leader: s.Leader, LeaderEpoch: s.LeaderEpoch, ControllerEpoch: s.ControllerEpoch, ISR: s.ISR, ELR: s.ELR}
		if i < len(t.replicas) {
			n.Replicas = t.replicas[i]
		}
		c.trace.say(c.now, "state of %s-%d: leader %d, epoch %d, ISR %v, ELR %v", topicName, i, s.Leader, s.LeaderEpoch, ids(s.ISR), ids(s.ELR))
		c.ghost.StateWritten(tp(int32(i)), n, t.epoch)
		c.changed()
	}
	c.lookAtBrokers(tree)
}

func (c *Cluster) lookAtController(tree *coord.Tree) {
	t := &c.tree
	if data, _, err := tree.Get(coord.ControllerEpochPath); err == nil {
		if epoch, err := coord.DecodeControllerEpoch(data); err == nil && epoch != t.epoch {
			t.epoch = epoch
			c.trace.say(c.now, "controller epoch %d", epoch)
		}
	}
	t.controller = -1
	if data, _, err := tree.Get(coord.ControllerPath); err == nil {
		if k, err := coord.DecodeController(data); err == nil {
			t.controller = k.Broker
		}
	}
}

func (c *Cluster) lookAtBrokers(tree *coord.Tree) {
	for i, n := range c.nodes {
		st, err := tree.Exists(coord.BrokerIDPath(n.id))
		var owner coord.SessionID
		if err == nil {
			owner = st.EphemeralOwner
		}
		mine := owner != 0 && n.live != nil && slices.ContainsFunc(n.live.sessions, func(s *coord.ModelClient) bool { return s.Session() == owner })
		key := owner
		if !mine {
			key = -owner
		}
		if key != c.tree.registered[i] {
			c.tree.registered[i] = key
			n.say("registration: session %x, of the running process: %v", int64(owner), mine)
			c.ghost.Registered(n.id, mine)
		}
	}
}

// lookAtRecoveryPoints tells the ghost where a next life of the broker would begin to recover.
func (c *Cluster) lookAtRecoveryPoints(n *node) {
	for i := range c.cfg.partitions {
		if point, known := recoveryPointOnDisk(n.disk, topicName, i); known {
			c.ghost.RecoveryPoint(n.id, tp(i), point)
		}
	}
}

// recoveryPointOnDisk reads the checkpoint of what is durable, past every hook.
func recoveryPointOnDisk(disk *vfs.Sim, topic string, partition int32) (offset int64, known bool) {
	for line := range strings.Lines(string(contentOnDisk(disk, path.Join(logDir, "recovery-point-offset-checkpoint")))) {
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("%s %d ", topic, partition)); ok {
			offset, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return offset, err == nil
		}
	}
	return 0, false
}

func contentOnDisk(disk *vfs.Sim, name string) []byte {
	f, err := disk.Open(name, vfs.ReadOnly)
	if err != nil {
		return nil
	}
	size, _ := f.Size()
	data := make([]byte, size)
	_, _ = f.ReadAt(data, 0)
	_ = f.Close()
	return data
}

// entriesOnDisk reads a partition's segments as they lie on a node's disk, past every
// hook: the whole batches from the first on.
func entriesOnDisk(disk *vfs.Sim, topic string, partition int32) []ghost.Entry {
	dir := path.Join(logDir, fmt.Sprintf("%s-%d", topic, partition))
	names, err := disk.List(dir)
	if err != nil {
		return nil
	}
	var all []ghost.Entry
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			all = append(all, ghost.Entries(contentOnDisk(disk, path.Join(dir, name)))...)
		}
	}
	return all
}
