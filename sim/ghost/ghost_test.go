package ghost

import (
	"slices"
	"strings"
	"testing"
)

// cluster is a hand-made history of three brokers and one partition.
type cluster struct {
	*State
	told   []string
	probes map[string]int
	n      uint32 // of the last batch
}

var t0 = TP{"t", 0}

// fresh is a cluster in its first moments: 1 leads in epoch 0, all in sync, logs empty.
func fresh(rules Rules) *cluster {
	c := &cluster{probes: map[string]int{}}
	c.State = New(3, rules, func(text string) { c.told = append(c.told, text) }, func(name string, n int) { c.probes[name] += n })
	c.ControllerElected(1, 1)
	for id := int32(1); id <= 3; id++ {
		c.Started(id)
		c.LogOpened(id, t0, Bounds{}, nil)
		c.Registered(id, true)
	}
	c.state(1, 0, []int32{1, 2, 3}, nil)
	c.BecameLeader(1, t0, 0)
	c.BecameFollower(2, t0, 0)
	c.BecameFollower(3, t0, 0)
	return c
}

var strict = Rules{MinISR: 2, RetentionMs: -1, RetentionBytes: -1}

func (c *cluster) state(leader, epoch int32, isr, elr []int32) {
	c.StateWritten(t0, StateNode{Leader: leader, LeaderEpoch: epoch, ControllerEpoch: 1, ISR: isr, ELR: elr, Replicas: []int32{1, 2, 3}}, 1)
}

// batch makes the next one, a single record at offset base.
func (c *cluster) batch(base int64, epoch int32) Entry {
	c.n++
	return Entry{Base: base, Next: base + 1, Epoch: epoch, ID: BatchID{CRC: c.n, Content: c.n, Bytes: 100, Records: 1, Producer: -1, Sequence: -1, Timestamp: 1000}}
}

// write appends e at the leader and at the followers named.
func (c *cluster) write(e Entry, leader int32, followers ...int32) {
	c.LogAppended(leader, t0, []Entry{e}, false)
	for _, id := range followers {
		c.LogAppended(id, t0, []Entry{e}, true)
	}
}

func (c *cluster) commit(leader int32, to int64, isr ...int32) {
	c.HighWatermark(leader, t0, to, isr)
}

func (c *cluster) ack(leader int32, e Entry) { c.AckLeaves(leader, t0, -1, e.Base, e.ID) }

func (c *cluster) truncate(id int32, to int64) { c.LogChanged(id, t0, Bounds{End: to}, 0) }

// committed writes n batches everywhere, commits and acknowledges them.
func (c *cluster) committed(n int64) {
	for base := range n {
		e := c.batch(base, 0)
		c.write(e, 1, 2, 3)
		c.commit(1, base+1, 1, 2, 3)
		c.ack(1, e)
		c.HighWatermark(2, t0, base+1, nil)
		c.HighWatermark(3, t0, base+1, nil)
	}
}

// restart is a new life of a broker whose log now ends at end.
func (c *cluster) restart(id int32, power bool, end int64) {
	c.Stopped(id, power)
	c.Started(id)
	c.LogOpened(id, t0, Bounds{End: end, Flushed: 0}, slices.Clone(c.partition(t0).replica(id).log[:end]))
}

// move makes another broker leader in the next epoch.
func (c *cluster) move(to, epoch int32, isr ...int32) {
	c.state(to, epoch, isr, nil)
	c.BecameLeader(to, t0, epoch)
	for _, id := range isr {
		if id != to {
			c.BecameFollower(id, t0, epoch)
		}
	}
}

func (c *cluster) want(t *testing.T, invariant string) {
	t.Helper()
	switch {
	case invariant == "" && len(c.told) > 0:
		t.Errorf("a good history is called a violation: %q", c.told)
	case invariant != "" && len(c.told) == 0:
		t.Errorf("no violation of %s", invariant)
	case invariant != "" && !strings.HasPrefix(c.told[0], invariant+" "):
		t.Errorf("want %s: %q", invariant, c.told)
	}
}

// TestAGoodHistoryHasNoViolation plays what a cluster does in an hour of trouble.
func TestAGoodHistoryHasNoViolation(t *testing.T) {
	c := fresh(strict)
	c.committed(3)
	x := c.batch(3, 0)
	c.write(x, 1, 2) // not on 3, never committed
	c.state(1, 0, []int32{1, 2}, nil)
	c.commit(1, 4, 1, 2)
	c.ack(1, x)
	c.restart(3, false, 3) // killed: nothing is lost
	c.Registered(3, true)
	c.LogAppended(3, t0, []Entry{x}, true)
	c.state(1, 0, []int32{1, 2, 3}, nil)
	y := c.batch(4, 0)
	c.write(y, 1) // and dies with it
	c.Stopped(1, false)
	c.Registered(1, false)
	c.move(2, 1, 2, 3)
	z := c.batch(4, 1)
	c.write(z, 2, 3)
	c.commit(2, 5, 2, 3)
	c.ack(2, z)
	c.Started(1)
	c.LogOpened(1, t0, Bounds{End: 5, HighWatermark: 4}, slices.Clone(c.partition(t0).replica(1).log))
	c.Registered(1, true)
	c.BecameFollower(1, t0, 1)
	c.truncate(1, 4)
	c.LogAppended(1, t0, []Entry{z}, true)
	c.HighWatermark(1, t0, 5, nil)
	c.state(2, 1, []int32{1, 2, 3}, nil)
	c.restart(3, true, 2) // the power: it comes back short and catches up
	c.state(2, 1, []int32{1, 2}, nil)
	c.Registered(3, true)
	if n := c.Outstanding(1); n != 1 {
		t.Errorf("%d lossy restarts outstanding, want 1", n)
	}
	c.BecameFollower(3, t0, 1)
	for _, e := range c.partition(t0).truth[2:] {
		c.LogAppended(3, t0, []Entry{e}, true)
	}
	c.HighWatermark(3, t0, 5, nil)
	c.state(2, 1, []int32{1, 2, 3}, nil)
	if n := c.Outstanding(1); n != 0 {
		t.Errorf("%d lossy restarts outstanding, want 0", n)
	}
	if next := c.Delivered(t0, 0, c.partition(t0).truth); next != 5 {
		t.Errorf("a consumer of all is at %d", next)
	}
	c.S9EndOffset(t0, 4, 5, 0)
	c.S20AtLeastOnce(t0, 3, 3, 0)
	c.want(t, "")
	for _, name := range []string{"truncation that dropped records", "ISR grew", "lossy restart that lost committed records", "lossy replica caught up"} {
		if c.probes[name] == 0 {
			t.Errorf("probe %q was not reached", name)
		}
	}
}

// TestEachInvariantCatchesItsFault: one planted fault for each.
func TestEachInvariantCatchesItsFault(t *testing.T) {
	for _, f := range []struct {
		name, invariant string
		rules           Rules
		play            func(c *cluster)
	}{
		{"two brokers lead in one epoch", "S1", strict, func(c *cluster) { c.BecameLeader(2, t0, 0) }},
		{"a broker appends in another's epoch", "S1", strict, func(c *cluster) { c.LogAppended(2, t0, []Entry{c.batch(0, 0)}, false) }},
		{"two controllers in one epoch", "S1", strict, func(c *cluster) { c.ControllerElected(2, 1) }},
		{"the leader changes and the epoch does not", "S1", strict, func(c *cluster) { c.state(2, 0, []int32{1, 2, 3}, nil) }},
		{"a gap in a log", "S2", strict, func(c *cluster) { c.write(c.batch(0, 0), 1); c.write(c.batch(2, 0), 1) }},
		{"an older epoch behind a newer one", "S2", strict, func(c *cluster) {
			c.LogAppended(2, t0, []Entry{c.batch(0, 3)}, true)
			c.LogAppended(2, t0, []Entry{c.batch(1, 2)}, true)
		}},
		{"a broker goes back to an older leader epoch", "S2", strict, func(c *cluster) { c.BecameFollower(2, t0, 3); c.BecameFollower(2, t0, 2) }},
		{"the stored leader epoch goes back", "S2", strict, func(c *cluster) {
			c.state(1, 4, []int32{1, 2, 3}, nil)
			c.state(1, 3, []int32{1, 2, 3}, nil)
		}},
		{"a follower counts as committed what is not what was committed", "S3", strict, func(c *cluster) {
			x := c.batch(0, 0)
			c.write(x, 1, 2)
			c.LogAppended(3, t0, []Entry{c.batch(0, 1)}, true)
			c.state(1, 0, []int32{1, 2}, nil)
			c.commit(1, 1, 1, 2)
			c.HighWatermark(3, t0, 1, nil)
		}},
		{"one offset and epoch, two batches", "S3", strict, func(c *cluster) {
			c.write(c.batch(0, 0), 1)
			c.LogAppended(2, t0, []Entry{c.batch(0, 0)}, true)
		}},
		{"one offset and epoch, two pasts (B4)", "S3", strict, func(c *cluster) {
			c.write(c.batch(0, 0), 1)
			c.LogAppended(2, t0, []Entry{c.batch(0, 1)}, true)
			z := c.batch(1, 2)
			c.LogAppended(1, t0, []Entry{z}, true)
			c.LogAppended(2, t0, []Entry{z}, true)
		}},
		{"a leader without what was committed", "S4", strict, func(c *cluster) {
			c.committed(2)
			c.truncate(3, 1)
			c.told = nil // S5 has seen it already
			c.state(3, 1, []int32{2}, nil)
			c.BecameLeader(3, t0, 1)
		}},
		{"a leader without what was acknowledged though not committed", "S4", strict, func(c *cluster) {
			x := c.batch(0, 0)
			c.write(x, 1, 2)
			c.ack(1, x) // two copies of three in sync: A8
			c.move(3, 1, 2, 3)
		}},
		{"another value committed where one was acknowledged", "S4", strict, func(c *cluster) {
			x := c.batch(0, 0)
			c.write(x, 1, 2)
			c.ack(1, x)
			c.state(3, 1, []int32{3, 2}, nil)
			y := c.batch(0, 1)
			c.BecameLeader(3, t0, 1)
			c.told = nil
			c.write(y, 3)
			c.commit(3, 1, 2, 3)
		}},
		{"a member of the ISR without what was committed (B6)", "S5", strict, func(c *cluster) {
			c.state(1, 0, []int32{1, 2}, nil)
			x := c.batch(0, 0)
			c.write(x, 1, 2)
			c.commit(1, 1, 1, 2)
			c.state(1, 0, []int32{1, 2, 3}, nil)
		}},
		{"a member of the ISR that truncates to nothing (B9)", "S5", strict, func(c *cluster) {
			c.write(c.batch(0, 0), 1, 2, 3)
			c.commit(1, 1, 1, 2, 3)
			c.LogChanged(2, t0, Bounds{}, 0)
		}},
		{"a member of the ELR without what was committed", "S5", strict, func(c *cluster) {
			c.state(1, 0, []int32{1, 2}, nil)
			x := c.batch(0, 0)
			c.write(x, 1, 2)
			c.commit(1, 1, 1, 2)
			c.state(1, 0, []int32{1}, []int32{3})
		}},
		{"a leader that does not count a member of the ISR (C1)", "S6", strict, func(c *cluster) {
			c.write(c.batch(0, 0), 1, 2, 3)
			c.commit(1, 1, 1, 2)
		}},
		{"an ELR beside a large ISR", "S6", strict, func(c *cluster) { c.state(1, 0, []int32{1, 2}, []int32{3}) }},
		{"an acknowledged record on no disk", "S7", strict, func(c *cluster) {
			c.committed(1)
			for id := int32(1); id <= 3; id++ {
				c.Stopped(id, true)
			}
			for id := int32(1); id <= 3; id++ {
				c.DiskSwapped(id)
			}
		}},
		{"an acknowledgement with one copy", "S8", strict, func(c *cluster) {
			x := c.batch(0, 0)
			c.write(x, 1)
			c.ack(1, x)
		}},
		{"an acknowledgement before the flush", "S8", Rules{MinISR: 2, FlushBeforeAck: true, RetentionMs: -1, RetentionBytes: -1}, func(c *cluster) {
			x := c.batch(0, 0)
			c.write(x, 1, 2, 3)
			c.LogChanged(1, t0, Bounds{End: 1, Flushed: 1}, 0)
			c.commit(1, 1, 1, 2, 3)
			c.ack(1, x)
		}},
		{"an acknowledgement that counts on a lost disk for what it never held", "S8", strict, func(c *cluster) {
			c.committed(1)
			c.Stopped(2, true)
			c.DiskSwapped(2)
			x := c.batch(1, 0)
			c.write(x, 1)
			c.ack(1, x)
		}},
		{"an acknowledgement of what the leader does not hold", "S8", strict, func(c *cluster) { c.ack(1, c.batch(0, 0)) }},
		{"a recovery point above what is flushed", "S26", strict, func(c *cluster) {
			c.committed(2)
			c.LogChanged(1, t0, Bounds{End: 2, Flushed: 1}, 0)
			c.RecoveryPoint(1, t0, 1)
			c.RecoveryPoint(1, t0, 2)
		}},
		{"a high watermark that falls in an epoch", "S9", strict, func(c *cluster) { c.committed(2); c.commit(1, 1, 1, 2, 3) }},
		{"a high watermark past the end", "S9", strict, func(c *cluster) { c.commit(1, 1, 1, 2, 3) }},
		{"an end offset that goes back for a client (G4)", "S9", strict, func(c *cluster) { c.S9EndOffset(t0, 10, 8, 0) }},
		{"a read of what is not committed", "S10", strict, func(c *cluster) {
			x := c.batch(0, 0)
			c.write(x, 1)
			c.Delivered(t0, 0, []Entry{x})
		}},
		{"a read of another value at a committed offset (G1)", "S11", strict, func(c *cluster) { c.committed(1); c.Delivered(t0, 0, []Entry{c.batch(0, 0)}) }},
		{"an acknowledgement at an offset that holds another value", "S12", strict, func(c *cluster) { c.committed(1); c.ack(1, c.batch(0, 0)) }},
		{"a session out of order", "S14", strict, func(c *cluster) { c.session(0, 1, 2, 1) }},
		{"a batch of a session twice", "S15", strict, func(c *cluster) { c.session(0, 1, 1) }},
		{"a session with a gap", "S16", strict, func(c *cluster) { c.session(0, 2) }},
		{"a consumer that jumps over a record", "S20", strict, func(c *cluster) { c.committed(3); c.S20AtLeastOnce(t0, 1, 3, 0) }},
		{"a poll that skips", "S22", strict, func(c *cluster) { c.committed(3); c.Delivered(t0, 0, c.partition(t0).truth[1:]) }},
		{"a poll that goes back within", "S22", strict, func(c *cluster) {
			c.committed(3)
			tr := c.partition(t0).truth
			c.Delivered(t0, 0, []Entry{tr[0], tr[1], tr[1]})
		}},
		{"a log start above the high watermark (H16)", "S23", strict, func(c *cluster) {
			c.write(c.batch(0, 0), 1)
			c.LogChanged(1, t0, Bounds{Start: 1, End: 1}, 0)
		}},
		{"young records deleted", "S23", Rules{MinISR: 2, RetentionMs: 500, RetentionBytes: -1}, func(c *cluster) {
			c.committed(2)
			c.LogChanged(1, t0, Bounds{Start: 1, End: 2}, 1400)
		}},
		{"a fetch answered with what lies before", "S25", strict, func(c *cluster) { c.committed(2); c.Delivered(t0, 1, c.partition(t0).truth[:1]) }},
		{"a kill that loses records", "S26", strict, func(c *cluster) { c.committed(2); c.restart(2, false, 1) }},
		{"a power cut that loses what was flushed", "S26", strict, func(c *cluster) {
			c.committed(2)
			c.LogChanged(2, t0, Bounds{End: 2, Flushed: 2}, 0)
			c.restart(2, true, 1)
		}},
		{"other bytes on the disk than were written", "S26", strict, func(c *cluster) {
			c.committed(1)
			c.Stopped(2, true)
			c.Started(2)
			c.LogOpened(2, t0, Bounds{End: 1}, []Entry{c.batch(0, 0)})
		}},
		{"a high watermark in the checkpoint past the end", "S26", strict, func(c *cluster) {
			c.Stopped(2, true)
			c.Started(2)
			c.LogOpened(2, t0, Bounds{HighWatermark: 3}, nil)
		}},
		{"a deposed controller elects", "S27", strict, func(c *cluster) {
			c.StateWritten(t0, StateNode{Leader: 2, LeaderEpoch: 1, ControllerEpoch: 1, ISR: []int32{2, 3}, Replicas: []int32{1, 2, 3}}, 2)
		}},
		{"a broker obeys a deposed controller", "S27", strict, func(c *cluster) { c.CommandApplied(2, 2); c.CommandApplied(2, 1) }},
		{"a lossy replica registers while it is in the ISR (A7)", "S28", strict, func(c *cluster) {
			c.committed(2)
			c.restart(3, true, 1)
			c.Registered(3, true)
		}},
		{"an empty replica is taken into the ISR (C3)", "S28", strict, func(c *cluster) {
			c.committed(2)
			c.state(1, 0, []int32{1, 2}, nil)
			c.Stopped(3, true)
			c.DiskSwapped(3)
			c.Started(3)
			c.LogOpened(3, t0, Bounds{}, nil)
			c.Registered(3, true)
			c.state(1, 0, []int32{1, 2, 3}, nil)
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			c := fresh(f.rules)
			f.play(c)
			c.want(t, f.invariant)
		})
	}
}

// session commits batches of one idempotent producer with these sequences.
func (c *cluster) session(sequences ...int32) {
	for i, sequence := range sequences {
		e := c.batch(int64(i), 0)
		e.ID.Producer, e.ID.Sequence = 7, sequence
		c.write(e, 1, 2, 3)
		c.commit(1, int64(i)+1, 1, 2, 3)
	}
}

// TestADeathInATruncationMayLeaveLess: but not less than it was about to leave.
func TestADeathInATruncationMayLeaveLess(t *testing.T) {
	for _, f := range []struct {
		end       int64
		invariant string
	}{{4, ""}, {3, ""}, {2, "S26"}} {
		c := fresh(strict)
		c.committed(2)
		c.LogAppended(2, t0, []Entry{c.batch(2, 1), c.batch(3, 1)}, true)
		c.LogTruncates(2, t0, 3)
		c.restart(2, false, f.end)
		c.want(t, f.invariant)
	}
}

// TestAPowerCutIsRememberedOverALifeThatDiesWhileItStarts: that one opened no log.
func TestAPowerCutIsRememberedOverALifeThatDiesWhileItStarts(t *testing.T) {
	c := fresh(strict)
	c.committed(2)
	c.state(1, 0, []int32{1, 2}, nil)
	c.Stopped(3, true)
	c.Started(3)
	c.restart(3, false, 1)
	c.want(t, "")
	if n := c.Outstanding(1); n != 1 {
		t.Errorf("%d lossy restarts outstanding, want 1", n)
	}
}

// TestAPowerCutIsRememberedUntilTheReplicaIsInTheISR: it took nothing committed, but the controller
// cannot know that and has it in no ELR, whatever lives of it come between.
func TestAPowerCutIsRememberedUntilTheReplicaIsInTheISR(t *testing.T) {
	c := fresh(strict)
	c.committed(2)
	c.restart(3, true, 2)
	c.state(1, 0, []int32{1, 2}, nil)
	c.Registered(3, true)
	c.restart(3, false, 2)
	if n := c.Outstanding(1); n != 1 {
		t.Errorf("%d lossy restarts outstanding, want 1", n)
	}
	c.Registered(3, true)
	c.state(1, 0, []int32{1, 2, 3}, nil)
	if n := c.Outstanding(1); n != 0 {
		t.Errorf("%d lossy restarts outstanding once it is in the ISR, want 0", n)
	}
	c.want(t, "")
}

// TestWhatALossyRestartTookMayBeCommittedAfterwards: its leader had counted it. From the ELR
// the controller has to take it out, in the ISR it must not be.
func TestWhatALossyRestartTookMayBeCommittedAfterwards(t *testing.T) {
	for _, f := range []struct {
		isr, elr  []int32
		invariant string
	}{{[]int32{1}, []int32{3}, ""}, {[]int32{1, 3}, nil, "S28"}} {
		c := fresh(strict)
		c.committed(1)
		x := c.batch(1, 0)
		c.write(x, 1, 2, 3)
		c.restart(3, true, 1) // nothing committed is gone yet
		c.commit(1, 2, 1, 2, 3)
		c.state(1, 0, f.isr, f.elr)
		c.Registered(3, true)
		c.want(t, f.invariant)
	}
}

// TestALossyReplicaThatLacksNothingMayLead: what it lost was never committed.
func TestALossyReplicaThatLacksNothingMayLead(t *testing.T) {
	c := fresh(strict)
	c.committed(1)
	c.write(c.batch(1, 0), 1)
	c.restart(1, true, 1)
	c.move(2, 1, 2, 3)
	c.Registered(1, true)
	c.move(1, 2, 1)
	c.want(t, "")
	if n := c.Outstanding(2); n != 0 {
		t.Errorf("%d lossy restarts outstanding, want 0", n)
	}
}

// TestACopyThatALossyFaultTookCounts: its follower had it when it was counted, in
// however many lives its broker has begun since.
func TestACopyThatALossyFaultTookCounts(t *testing.T) {
	c := fresh(strict)
	x := c.batch(0, 0)
	c.write(x, 1, 2, 3)
	c.Stopped(2, true)
	c.DiskSwapped(2)
	c.Started(2)
	c.Stopped(2, false)
	c.Started(2)
	c.Registered(3, true)
	c.state(1, 0, []int32{1, 2}, nil)
	c.LogRemoved(3, t0)
	c.commit(1, 1, 1, 2)
	c.ack(1, x)
	c.want(t, "")
}

// TestADuplicateOfWhatWasCommittedIsAcknowledgedAgain: to a producer that tries again, after the replica that lost its copy has begun to
// fetch from the start. What was not committed by then that replica must hold first.
func TestADuplicateOfWhatWasCommittedIsAcknowledgedAgain(t *testing.T) {
	for _, f := range []struct {
		acked     int64
		invariant string
	}{{0, ""}, {1, "S8"}} {
		c := fresh(strict)
		sent := []Entry{c.batch(0, 0), c.batch(1, 0)}
		c.write(sent[0], 1, 2)
		c.write(sent[1], 1, 2)
		c.state(1, 0, []int32{1, 2}, nil)
		c.commit(1, 1, 1, 2)
		c.restart(2, true, 0)
		c.LogAppended(2, t0, nil, true)
		c.ack(1, sent[f.acked])
		c.want(t, f.invariant)
	}
}

// TestADeliberateUncleanElectionBeginsAnew: what it took is not held against anybody.
func TestADeliberateUncleanElectionBeginsAnew(t *testing.T) {
	rules := strict
	rules.Unclean = true
	c := fresh(rules)
	c.committed(1)
	x := c.batch(1, 0)
	c.write(x, 1, 2)
	c.state(1, 0, []int32{1, 2}, nil)
	c.commit(1, 2, 1, 2)
	c.ack(1, x)
	c.Stopped(1, false)
	c.Stopped(2, false)
	c.state(3, 1, []int32{3}, nil)
	c.BecameLeader(3, t0, 1)
	y := c.batch(1, 1)
	c.write(y, 3)
	c.state(3, 1, []int32{3}, nil)
	c.commit(3, 2, 3)
	c.Delivered(t0, 1, []Entry{y})
	c.want(t, "")
	if c.Resets(t0) != 1 || c.TrueHighWatermark(t0) != 2 {
		t.Errorf("%d resets, committed up to %d", c.Resets(t0), c.TrueHighWatermark(t0))
	}
}

// TestWhatAnUncleanElectionBringsBackIsCommittedAgain: the former leader leads again with its log and its high watermark whole, and
// answers a producer that asks again; the next unclean election may take that too.
func TestWhatAnUncleanElectionBringsBackIsCommittedAgain(t *testing.T) {
	rules := Rules{MinISR: 1, RetentionMs: -1, RetentionBytes: -1, Unclean: true}
	c := fresh(rules)
	c.state(1, 0, []int32{1}, nil)
	x := c.batch(0, 0)
	c.write(x, 1)
	c.commit(1, 1, 1)
	elect := func(id, epoch int32) {
		c.state(-1, epoch-1, nil, nil)
		c.state(id, epoch, []int32{id}, nil)
		c.BecameLeader(id, t0, epoch)
	}
	elect(3, 2)
	if c.TrueHighWatermark(t0) != 0 {
		t.Fatalf("committed up to %d", c.TrueHighWatermark(t0))
	}
	elect(1, 4)
	c.ack(1, x)
	if c.TrueHighWatermark(t0) != 1 {
		t.Errorf("committed up to %d", c.TrueHighWatermark(t0))
	}
	elect(3, 6)
	c.want(t, "")
}

// TestLivenessNamesWhatIsPending: each invariant of liveness, kept and not.
func TestLivenessNamesWhatIsPending(t *testing.T) {
	still := func(c *cluster) Picture {
		return Picture{Controller: 1, Lags: []Lag{{"consumer 0", t0, 2}}, Metadata: []Metadata{{2, t0, 1, 0, []int32{3, 2, 1}}}}
	}
	balanced := strict
	balanced.Balanced = true
	for _, f := range []struct {
		name, want string
		play       func(c *cluster, p *Picture)
	}{
		{"at rest", "", func(*cluster, *Picture) {}},
		{"no controller", "L1", func(_ *cluster, p *Picture) { p.Controller = -1 }},
		{"a dead controller", "L1", func(c *cluster, _ *Picture) { c.Stopped(1, false) }},
		{"no leader", "L2", func(c *cluster, _ *Picture) { c.state(-1, 1, []int32{1, 2, 3}, nil) }},
		{"a leader that does not know it", "L2", func(c *cluster, _ *Picture) { c.state(2, 1, []int32{1, 2, 3}, nil) }},
		{"a broker that is not registered", "L3", func(c *cluster, _ *Picture) { c.Registered(2, false) }},
		{"a replica outside the ISR", "L4", func(c *cluster, _ *Picture) { c.state(1, 0, []int32{1, 2}, nil) }},
		{"a replica that lacks records", "L5", func(c *cluster, _ *Picture) { c.partition(t0).replica(2).agrees = 1 }},
		{"a produce that waits", "L6", func(_ *cluster, p *Picture) { p.Produces = []string{"batch 3"} }},
		{"a high watermark that stands", "L7", func(c *cluster, _ *Picture) { c.write(c.batch(2, 0), 1, 2, 3) }},
		{"a consumer that lags", "L9", func(_ *cluster, p *Picture) { p.Lags[0].Position = 1 }},
		{"an ISR change that waits", "L10", func(_ *cluster, p *Picture) { p.ISRChanges = []string{"t-0"} }},
		{"a broker with old metadata", "L11", func(_ *cluster, p *Picture) { p.Metadata[0].LeaderEpoch = -1 }},
		{"another leader than the preferred", "L12", func(c *cluster, p *Picture) { c.move(2, 1, 1, 2, 3); p.Metadata = nil }},
	} {
		t.Run(f.name, func(t *testing.T) {
			c := fresh(balanced)
			c.committed(2)
			p := still(c)
			f.play(c, &p)
			if got := c.Pending(p); f.want == "" && got != "" || f.want != "" && !strings.HasPrefix(got, f.want+":") {
				t.Errorf("want %q: %q", f.want, got)
			}
		})
	}
}
