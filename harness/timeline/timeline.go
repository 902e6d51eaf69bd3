// Package timeline is what happened over the length of one repeat, where an average would hide it.
package timeline

// Timeline is a repeat in steps of equal length. Values[name][i] is what happened in [i·Step, (i+1)·Step).
type Timeline struct {
	Step   float64              `json:"step_sec"`
	Values map[string][]float64 `json:"values"` // by the name of a metric
	Marks  []Mark               `json:"marks"`  // in order of time
}

// Mark is a moment that has a name.
type Mark struct {
	At   float64 `json:"at_sec"`
	Name string  `json:"name"`
}
