package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-log/tidemark/experiments"
)

// NotLiveError says what of a scenario live processes cannot play.
type NotLiveError struct {
	Scenario string
	Why      []string
}

func (e *NotLiveError) Error() string {
	return fmt.Sprintf("%s cannot be played on live processes: %s; the simulator can: tidemark sim run %s", e.Scenario, strings.Join(e.Why, "; "), e.Scenario)
}

// onlyInTheSimulator says why a machine cannot do a fault.
var onlyInTheSimulator = map[experiments.FaultKind]string{
	experiments.FaultPowerOff:   "the page cache outlives a process, so nothing is lost",
	experiments.FaultTornWrite:  "the page cache outlives a process, so nothing is torn",
	experiments.FaultPartition:  "the network of one machine cannot be cut",
	experiments.FaultOneWay:     "the network of one machine cannot be cut",
	experiments.FaultMend:       "the network of one machine cannot be cut",
	experiments.FaultSlowLink:   "the network of one machine cannot be slowed",
	experiments.FaultLostConns:  "connections of another process cannot be broken",
	experiments.FaultExpire:     "a session ends only with its process, or with a pause that outlasts it",
	experiments.FaultDiskFull:   "the disk is everybody's",
	experiments.FaultWriteError: "the disk cannot be made to fail",
	experiments.FaultSyncError:  "the disk cannot be made to fail",
	experiments.FaultClockJump:  "the clock is everybody's",
	experiments.FaultHold:       "messages cannot be held",
	experiments.FaultRelease:    "messages cannot be held",
	experiments.FaultLose:       "messages cannot be held",
	experiments.FaultMove:       "no operator is played",
	experiments.FaultReassign:   "no operator is played",
	experiments.FaultSend:       "producers send all the time",
}

// played are the faults that a machine can do.
var played = []experiments.FaultKind{
	experiments.FaultKill, experiments.FaultBounce, experiments.FaultRestart, experiments.FaultStop, experiments.FaultPause,
	experiments.FaultDiskSwap, experiments.FaultAway, experiments.FaultHeal, experiments.FaultDemand,
}

// Check finds the steps that live processes cannot play, and says so in one line.
func Check(s *experiments.Scenario) error {
	e := &NotLiveError{Scenario: s.Name}
	e.Why = append(e.Why, reasons(s)...)
	if s.Controller != 0 || len(s.Assignment) > 0 {
		e.Why = append(e.Why, "it says which broker is the controller or where replicas are, and a live cluster decides that itself")
	}
	if len(e.Why) > 0 {
		return e
	}
	return nil
}

// reasons names each reason once, with the steps that it is for, in the order of the first.
func reasons(s *experiments.Scenario) []string {
	var order []string
	steps := map[string][]string{}
	add := func(i int, reason string) {
		if steps[reason] == nil {
			order = append(order, reason)
		}
		if n := len(steps[reason]); n == 0 || steps[reason][n-1] != fmt.Sprint(i+1) {
			steps[reason] = append(steps[reason], fmt.Sprint(i+1))
		}
	}
	for i := range s.Steps {
		f := &s.Steps[i]
		if !slices.Contains(played, f.Kind) {
			add(i, fmt.Sprintf("%s: %s", f.Kind, cmp.Or(onlyInTheSimulator[f.Kind], "a machine cannot do that")))
		}
		if f.After != "" {
			add(i, "probes are of the simulator")
		}
		for _, one := range strings.Split(f.When, " and ") {
			if one != "" && !isCondition(one) {
				add(i, fmt.Sprintf("%q cannot be seen from outside", strings.Fields(one)[0]))
			}
		}
		if target, _ := f.Targets(); target.Role == experiments.RoleProducer || target.Role == experiments.RoleConsumer {
			if f.Kind != experiments.FaultSend {
				add(i, "clients are not broken")
			}
		}
	}
	var all []string
	for _, reason := range order {
		word := "step"
		if len(steps[reason]) > 1 {
			word = "steps"
		}
		all = append(all, fmt.Sprintf("%s %s (%s)", word, strings.Join(steps[reason], ", "), reason))
	}
	return all
}
