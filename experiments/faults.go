package experiments

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// The one vocabulary of faults: what happens, to whom, when. The simulator knows all of
// it, live processes what a real machine can do.

// FaultKind is what happens.
type FaultKind string

const (
	FaultKill       FaultKind = "kill"        // the process dies; the page cache lives on
	FaultPowerOff   FaultKind = "power-off"   // and what was not synced is lost
	FaultDiskSwap   FaultKind = "disk-swap"   // dies, and comes back with an empty disk
	FaultStop       FaultKind = "stop"        // an orderly shutdown
	FaultRestart    FaultKind = "restart"     // what is down comes back
	FaultBounce     FaultKind = "bounce"      // kill and restart, faster than anybody notices
	FaultPause      FaultKind = "pause"       // stands still, as in a garbage collection
	FaultPartition  FaultKind = "partition"   // nothing passes between target and with, either way
	FaultOneWay     FaultKind = "one-way"     // nothing passes from target to with
	FaultSlowLink   FaultKind = "slow-link"   // what passes between target and with takes longer
	FaultLostConns  FaultKind = "lost-conns"  // connections of the target break
	FaultExpire     FaultKind = "expire"      // the target's session with the coordination service ends
	FaultAway       FaultKind = "away"        // the coordination service serves nobody
	FaultDiskFull   FaultKind = "disk-full"   // writes fail for want of space
	FaultWriteError FaultKind = "write-error" // a write fails
	FaultSyncError  FaultKind = "sync-error"  // a sync fails
	FaultTornWrite  FaultKind = "torn-write"  // dies in the middle of its next write
	FaultClockJump  FaultKind = "clock-jump"  // the wall clock jumps by `by`
	FaultMove       FaultKind = "move"        // the leader of the target partition becomes `with`, without a failure
	FaultHold       FaultKind = "hold"        // messages of one kind from target to with wait on their way
	FaultRelease    FaultKind = "release"     // what is held goes on: all, or of one kind
	FaultMend       FaultKind = "mend"        // the link between target and with is whole again
	FaultSend       FaultKind = "send"        // no fault: the target producer sends `count` batches of one record
	FaultLose       FaultKind = "lose"        // what is held never arrives: its connections break
	FaultReassign   FaultKind = "reassign"    // the target partition gets other replicas
	FaultDemand     FaultKind = "demand"      // no fault: what "when" says must be so within "for", or the invariant of "message" is broken
	FaultHeal       FaultKind = "heal"        // every link whole, every process up
)

// needs says what a kind wants beside its target.
var needs = map[FaultKind]struct{ with, duration, by bool }{
	FaultKill: {}, FaultPowerOff: {}, FaultDiskSwap: {}, FaultStop: {}, FaultRestart: {}, FaultBounce: {}, FaultPause: {},
	FaultPartition: {with: true}, FaultOneWay: {with: true}, FaultSlowLink: {with: true, duration: true}, FaultLostConns: {}, FaultExpire: {}, FaultAway: {},
	FaultDiskFull: {}, FaultWriteError: {}, FaultSyncError: {}, FaultTornWrite: {}, FaultClockJump: {by: true}, FaultMove: {with: true}, FaultHold: {with: true}, FaultRelease: {}, FaultHeal: {},
	FaultLose: {}, FaultReassign: {}, FaultDemand: {}, FaultMend: {with: true}, FaultSend: {},
}

// Lossy says that a fault may take what was written: an envelope bounds those.
func (k FaultKind) Lossy() bool {
	return k == FaultPowerOff || k == FaultDiskSwap || k == FaultTornWrite
}

// Role is how a target is named.
type Role string

const (
	RoleBroker     Role = "broker"     // by id
	RoleLeader     Role = "leader"     // of a partition
	RoleFollower   Role = "follower"   // in the ISR of a partition, the first by id
	RoleLagging    Role = "lagging"    // a replica of a partition outside its ISR
	RoleController Role = "controller" //
	RoleProducer   Role = "producer"   // by number
	RoleConsumer   Role = "consumer"   // by number
	RoleCoord      Role = "coordination"
	RoleBrokers    Role = "brokers" // all of them, or all others
	RolePartition  Role = "partition"
)

// Target is to whom a fault happens.
type Target struct {
	Role      Role
	Number    int32  // of a broker, producer or consumer
	Topic     string // of a leader, follower or partition
	Partition int32
}

// ParseTarget reads "broker 1", "leader of t/0", "follower of t/0", "controller", "producer 0", "coordination".
func ParseTarget(text string) (Target, error) {
	role, rest, _ := strings.Cut(text, " ")
	t := Target{Role: Role(role)}
	bad := fmt.Errorf("target %q: want broker N, leader of T/P, follower of T/P, lagging of T/P, partition T/P, controller, producer N, consumer N, coordination or brokers", text)
	switch t.Role {
	case RoleController, RoleCoord, RoleBrokers:
		if rest != "" {
			return t, bad
		}
	case RoleBroker, RoleProducer, RoleConsumer:
		n, err := strconv.ParseInt(rest, 10, 32)
		if err != nil || n < 0 {
			return t, bad
		}
		t.Number = int32(n)
	case RoleLeader, RoleFollower, RoleLagging, RolePartition:
		name, of := strings.CutPrefix(rest, "of ")
		topic, number, ok := strings.Cut(name, "/")
		n, err := strconv.ParseInt(number, 10, 32)
		if of == (t.Role == RolePartition) || !ok || topic == "" || err != nil || n < 0 {
			return t, bad
		}
		t.Topic, t.Partition = topic, int32(n)
	default:
		return t, bad
	}
	return t, nil
}

// String is ParseTarget's form.
func (t Target) String() string {
	switch t.Role {
	case RoleBroker, RoleProducer, RoleConsumer:
		return fmt.Sprintf("%s %d", t.Role, t.Number)
	case RoleLeader, RoleFollower, RoleLagging:
		return fmt.Sprintf("%s of %s/%d", t.Role, t.Topic, t.Partition)
	case RolePartition:
		return fmt.Sprintf("%s %s/%d", t.Role, t.Topic, t.Partition)
	}
	return string(t.Role)
}

// Fault is one step of a scenario. It happens at a time, or so long after a step, a
// probe or a condition; without any of these right after the step before.
type Fault struct {
	Kind   FaultKind     `toml:"fault"`
	Target string        `toml:"target"`
	With   string        `toml:"with"` // the other end, or the new leader
	For    time.Duration `toml:"-"`    // until it is taken back; 0: until restart or heal
	By     time.Duration `toml:"-"`    // of a clock's jump, of a slow link
	At     time.Duration `toml:"-"`    // since the start; 0: not by time
	// Message is the kind that a hold or release is about: a request by its Kafka name, or
	// "write" or "read" of the coordination service; with " answer" behind it the way back.
	Message string `toml:"message"`

	Replicas []int32 `toml:"replicas"` // of a reassignment, the leader first

	Count int `toml:"count"` // of batches to send; 0: one

	After string        `toml:"after"` // a probe that must be reached first
	When  string        `toml:"when"`  // a condition that must hold first
	Wait  time.Duration `toml:"-"`     // then so long

	ForText  string `toml:"for"`
	ByText   string `toml:"by"`
	AtText   string `toml:"at"`
	WaitText string `toml:"wait"`

	target, with Target
}

// Targets are the parsed Target and With.
func (f *Fault) Targets() (target, with Target) { return f.target, f.with }

// SendMax bounds what one step lets a producer send.
const SendMax = 1000

// Envelope is how many lossy faults a scenario may have: see the failure catalogue.
type Envelope string

const (
	E0 Envelope = "E0" // none
	E1 Envelope = "E1" // min.insync.replicas−1 that are not re-replicated
	E2 Envelope = "E2" // any number of power cuts
)

// Scenario is a short story of faults.
type Scenario struct {
	Name   string `toml:"-"`
	Entry  string `toml:"entry"`  // of the failure catalogue; "": of none, and nothing has to break
	Title  string `toml:"title"`  // what the catalogue calls it
	Source string `toml:"source"` // where it was reported
	Says   string `toml:"says"`

	Brokers    int               `toml:"brokers"`
	Partitions int32             `toml:"partitions"`
	Replicas   int16             `toml:"replicas"`
	Envelope   Envelope          `toml:"envelope"`
	Settings   map[string]string `toml:"settings"`  // of the brokers, in both runs
	RulesOff   []string          `toml:"rules_off"` // the vector: off in the run that must fail
	Bug        map[string]string `toml:"bug"`       // settings of that run alone
	Breaks     []string          `toml:"breaks"`    // invariants of which one must break in it
	Witness    []string          `toml:"witness"`   // probes that must be reached in the clean run
	Acks       []int16           `toml:"acks"`      // of the producers, one each
	Search     string            `toml:"search"`    // seeds of which one must break, as 1-200; "": seed 1 does

	Assignment []int32 `toml:"assignment"` // replicas of every partition, the leader first; none: as the controller places them
	Controller int32   `toml:"controller"` // the broker that starts first; 0: all at once
	Readers    int     `toml:"readers"`    // consumers that read from followers too (KIP-392)

	// Scripted: producers send when a step says so, and batches of one record.
	Scripted bool    `toml:"scripted"`
	BugAcks  []int16 `toml:"bug_acks"` // acks in the run that must fail, where acks=1 counts as a promise; none: Acks

	Steps []Fault `toml:"steps"`
}

// ParseScenario reads a scenario. An unknown key, kind or role is an error that says where.
func ParseScenario(name string, text []byte) (*Scenario, error) {
	s := &Scenario{Name: name, Brokers: 3, Partitions: 1, Replicas: 3, Envelope: E0, Acks: []int16{-1}}
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(s); err != nil {
		return nil, located(name, text, err)
	}
	lines := findPositions(text)
	for i := range s.Steps {
		if err := s.Steps[i].parse(); err != nil {
			line, _ := lines.line([]string{"steps", strconv.Itoa(i)})
			return nil, fmt.Errorf("%s.toml:%d: %w", name, line, err)
		}
	}
	switch {
	case s.Brokers < 1 || s.Replicas < 1 || int(s.Replicas) > s.Brokers || s.Partitions < 1:
		return nil, fmt.Errorf("%s.toml: %d partitions of %d replicas on %d brokers", name, s.Partitions, s.Replicas, s.Brokers)
	case len(s.Assignment) > 0 && len(s.Assignment) != int(s.Replicas) || s.Controller < 0 || int(s.Controller) > s.Brokers:
		return nil, fmt.Errorf("%s.toml: assignment %v and controller %d do not go with %d replicas on %d brokers", name, s.Assignment, s.Controller, s.Replicas, s.Brokers)
	case s.BugAcks != nil && len(s.BugAcks) != len(s.Acks):
		return nil, fmt.Errorf("%s.toml: bug_acks %v: want one for each of acks %v", name, s.BugAcks, s.Acks)
	case slices.ContainsFunc(s.Steps, func(f Fault) bool { return f.target.Role == RoleProducer && int(f.target.Number) >= len(s.Acks) }):
		return nil, fmt.Errorf("%s.toml: a step names a producer, and there are %d", name, len(s.Acks))
	case !slices.Contains([]Envelope{E0, E1, E2}, s.Envelope):
		return nil, fmt.Errorf("%s.toml: envelope %q: want E0, E1 or E2", name, s.Envelope)
	case s.Envelope == E0 && slices.ContainsFunc(s.Steps, func(f Fault) bool { return f.Kind.Lossy() }):
		return nil, fmt.Errorf("%s.toml: envelope E0 allows no lossy fault", name)
	}
	return s, nil
}

func (f *Fault) parse() error {
	need, known := needs[f.Kind]
	if !known {
		return fmt.Errorf("fault %q: there is none of that name", f.Kind)
	}
	for _, d := range []struct {
		name, text string
		to         *time.Duration
	}{{"for", f.ForText, &f.For}, {"by", f.ByText, &f.By}, {"at", f.AtText, &f.At}, {"wait", f.WaitText, &f.Wait}} {
		if d.text == "" {
			continue
		}
		v, err := time.ParseDuration(d.text)
		if err != nil || v < 0 && d.name != "by" {
			return fmt.Errorf("%s = %q: want a duration, as 1.5s", d.name, d.text)
		}
		*d.to = v
	}
	var err error
	if f.Kind != FaultAway && f.Kind != FaultHeal && f.Kind != FaultRelease && f.Kind != FaultLose && f.Kind != FaultDemand {
		if f.target, err = ParseTarget(f.Target); err != nil {
			return err
		}
	}
	switch {
	case need.with && f.With == "":
		return fmt.Errorf("fault %s: with is missing", f.Kind)
	case !need.with && f.With != "":
		return fmt.Errorf("fault %s: has no use for with", f.Kind)
	case (need.by || need.duration) && f.By == 0:
		return fmt.Errorf("fault %s: by is missing", f.Kind)
	case f.Kind == FaultHold && f.Message == "":
		return fmt.Errorf("fault hold: message is missing")
	case f.Kind == FaultReassign && (f.target.Role != RolePartition || len(f.Replicas) == 0):
		return fmt.Errorf("fault reassign: want a partition as target, and replicas")
	case f.Kind == FaultDemand && (f.When == "" || f.For == 0 || f.Message == ""):
		return fmt.Errorf("fault demand: want when, for and message")
	case f.Message != "" && f.Kind != FaultHold && f.Kind != FaultRelease && f.Kind != FaultDemand:
		return fmt.Errorf("fault %s: has no use for message", f.Kind)
	case f.Kind == FaultSend && f.target.Role != RoleProducer:
		return fmt.Errorf("fault send: the target is a producer, as in producer 0")
	case f.Count < 0 || f.Count > SendMax || f.Count > 0 && f.Kind != FaultSend:
		return fmt.Errorf("fault %s: count = %d: want 1 to %d, of a send", f.Kind, f.Count, SendMax)
	case f.Kind == FaultMove && f.target.Role != RolePartition:
		return fmt.Errorf("fault move: the target is a partition, as in partition t/0")
	}
	if need.with {
		f.with, err = ParseTarget(f.With)
	}
	return err
}
