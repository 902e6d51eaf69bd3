package sim

import (
	"maps"
	"regexp"
	"testing"
)

// faultLine is how the trace tells of a drawn fault: when, its number, its kind.
var faultLine = regexp.MustCompile(`^ *(\S+)  fault (\d+): (.*)$`)

// faultsOf gives time and kind of each fault of a run, by number.
func faultsOf(seed uint64, without ...int) map[string]string {
	all := map[string]string{}
	Run(seed, Options{Brokers: 3, Without: without, Echo: func(line string) {
		if m := faultLine.FindStringSubmatch(line); m != nil {
			all[m[2]] = m[1] + " " + m[3]
		}
	}})
	return all
}

// TestAFaultLeftOutShiftsNoOther: the others come when they came, and are what they were.
func TestAFaultLeftOutShiftsNoOther(t *testing.T) {
	whole := faultsOf(3)
	if len(whole) < 5 {
		t.Fatalf("only %d faults: %v", len(whole), whole)
	}
	less := faultsOf(3, 1, 4)
	delete(whole, "1")
	delete(whole, "4")
	if !maps.Equal(whole, less) {
		t.Errorf("without 1 and 4: %v\nthe others were: %v", less, whole)
	}
}
