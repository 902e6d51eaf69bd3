package experiments

import (
	"fmt"
	"strings"

	"github.com/tidemark-log/tidemark/internal/words"
)

// Deed says what a step does, in words: "kill the leader of t/0".
func (f *Fault) Deed() string {
	target := f.target.inWords()
	with := f.with.inWords()
	var text string
	switch f.Kind {
	case FaultPowerOff:
		text = "power off of " + target
	case FaultDiskSwap:
		text = "an empty disk for " + target
	case FaultPartition:
		text = fmt.Sprintf("cut %s off from %s", target, with)
	case FaultOneWay:
		text = fmt.Sprintf("let nothing pass from %s to %s", target, with)
	case FaultSlowLink:
		text = fmt.Sprintf("make the link between %s and %s slow, by up to %v", target, with, f.By)
	case FaultLostConns:
		text = "break connections of " + target
	case FaultExpire:
		text = "end the session of " + target
	case FaultAway:
		text = "take the coordination service away"
	case FaultDiskFull:
		text = "fill the disk of " + target
	case FaultWriteError, FaultSyncError:
		text = fmt.Sprintf("let a %s of %s fail", strings.TrimSuffix(string(f.Kind), "-error"), target)
	case FaultTornWrite:
		text = fmt.Sprintf("power off of %s in the middle of its next write", target)
	case FaultClockJump:
		text = fmt.Sprintf("let the wall clock of %s jump by %v", target, f.By)
	case FaultMove:
		text = fmt.Sprintf("make %s the leader of %s", with, strings.TrimPrefix(target, "partition "))
	case FaultReassign:
		text = fmt.Sprintf("give %s the replicas %s", target, joinIDs(f.Replicas))
	case FaultHold:
		text = fmt.Sprintf("hold each %s from %s to %s on its way", f.Message, target, with)
	case FaultRelease:
		text = strings.TrimRight("let go what is held: "+f.Message, ": ")
	case FaultLose:
		text = "lose what is held"
	case FaultMend:
		text = fmt.Sprintf("mend the link between %s and %s", target, with)
	case FaultSend:
		text = fmt.Sprintf("%s sends %s", target, words.Count(max(f.Count, 1), "record"))
	case FaultDemand:
		return fmt.Sprintf("demand that %q is so within %v, or %s is broken", f.When, f.For, f.Message)
	case FaultHeal:
		text = "heal: every link whole, every broker up"
	default: // kill, restart, bounce, pause, stop
		text = string(f.Kind) + " " + target
	}
	if f.For > 0 {
		text += fmt.Sprintf(", for %v", f.For)
	}
	return text
}

// Timing says when a step comes: "when in sync, 200ms later"; "" for one right after the step before.
func (f *Fault) Timing() string {
	var all []string
	if f.At > 0 {
		all = append(all, fmt.Sprintf("at %v", f.At))
	}
	if f.After != "" {
		all = append(all, fmt.Sprintf("once %q is reached", f.After))
	}
	if f.When != "" && f.Kind != FaultDemand {
		all = append(all, "when "+f.When)
	}
	if f.Wait > 0 {
		all = append(all, fmt.Sprintf("%v later", f.Wait))
	}
	return strings.Join(all, ", ")
}

func (t Target) inWords() string {
	switch t.Role {
	case RoleLeader, RoleFollower, RoleLagging, RoleController:
		return "the " + strings.Replace(strings.Replace(t.String(), "follower", "in-sync follower", 1), "lagging", "lagging replica", 1)
	case RoleBrokers:
		return "all brokers"
	case RoleCoord:
		return "the coordination service"
	}
	return t.String()
}

func joinIDs(ids []int32) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ",")
}
