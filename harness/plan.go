// Package harness runs experiments: it turns a spec into cells, has each cell
// measured the number of times and in the order that the spec asks for, keeps
// every sample as it comes, and has the report made.
//
// A run can be stopped at any moment and gone on with: what has been sampled
// stays, what has not is run, and the summary is the same.
package harness

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/sut"
	"github.com/tidemark-log/tidemark/harness/workload"
)

// plan is a spec made ready to run.
type plan struct {
	spec   *experiments.Spec
	cells  []experiments.Cell
	params []workload.Params // of the cell at the same index
	pruned []experiments.Pruned
}

// makePlan checks everything that can be checked before anything runs, so that a
// mistake in the last cell does not cost the hours before it.
func makePlan(spec *experiments.Spec) (*plan, error) {
	cells, pruned, err := spec.Cells()
	if err != nil {
		return nil, err
	}
	p := &plan{spec: spec, cells: cells, pruned: pruned}
	for _, c := range cells {
		params, err := cellParams(spec, c)
		if err != nil {
			return nil, err
		}
		if err := checkSettings(spec, c); err != nil {
			return nil, err
		}
		p.params = append(p.params, params)
	}
	return p, p.checkMetrics()
}

func cellParams(spec *experiments.Spec, c experiments.Cell) (workload.Params, error) {
	params := workload.DefaultParams()
	params.Brokers, params.ReplicationFactor = spec.Cluster.Brokers, spec.Cluster.ReplicationFactor
	for _, key := range slices.Sorted(maps.Keys(c.Workload)) {
		if err := params.Set(key, c.Workload[key]); err != nil {
			return params, fmt.Errorf("%s: %w", whereIs(spec, c, key), err)
		}
	}
	if err := params.Check(); err != nil {
		return params, fmt.Errorf("%s: cell %s: %w", spec.At("workload"), c.Name(), err)
	}
	return params, nil
}

// checkSettings has the broker's own parser read the cell's settings.
func checkSettings(spec *experiments.Spec, c experiments.Cell) error {
	var overrides []string
	for _, key := range slices.Sorted(maps.Keys(c.Settings)) {
		if slices.Contains(sut.OwnSettings, key) {
			return fmt.Errorf("%s.toml: cell %s: %s is set by the harness, anew for each cell; take it out of the experiment", spec.Name, c.Name(), key)
		}
		overrides = append(overrides, key+"="+c.Settings[key])
	}
	if spec.Cluster.Brokers > 1 { // some settings are for a replicated cluster alone, and some for a cluster of one
		overrides = append(overrides, "zookeeper.connect=127.0.0.1:2181")
	}
	if _, err := broker.ParseConfig(nil, overrides); err != nil {
		return fmt.Errorf("%s.toml: cell %s: %w", spec.Name, c.Name(), err)
	}
	return nil
}

// whereIs finds the line that gave a cell's workload key its value.
func whereIs(spec *experiments.Spec, c experiments.Cell, key string) string {
	if c.Level(key) != "" {
		return spec.At("vary", key)
	}
	for _, l := range c.Levels {
		if _, ok := spec.Levels[l.Key][l.Value][key]; ok {
			return spec.At("levels", l.Key, l.Value, key)
		}
	}
	return spec.At("workload", key)
}

// checkMetrics refuses tests and figures of metrics that no cell gives, and checks that none makes.
func (p *plan) checkMetrics() error {
	known, timelines, checks := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, params := range p.params {
		for _, name := range workload.TimelineNames(params.Kind) {
			timelines[name] = true
		}
		for _, name := range workload.MetricNames(params.Kind) {
			known[name] = true
		}
		for _, name := range workload.CheckNames(params.Kind) {
			checks[name] = true
		}
	}
	checkIn := func(known map[string]bool, at, metric string) error {
		if known[metric] {
			return nil
		}
		return fmt.Errorf("%s: metric %q is given by none of the workloads; they give %v", at, metric, slices.Sorted(maps.Keys(known)))
	}
	check := func(at, metric string) error { return checkIn(known, at, metric) }
	var errs []error
	for _, name := range p.spec.Check {
		if !checks[name] {
			errs = append(errs, fmt.Errorf("%s: check %q is made by none of the workloads; they make %v", p.spec.At("check"), name, slices.Sorted(maps.Keys(checks))))
		}
	}
	for i, v := range p.spec.Verdicts {
		errs = append(errs, check(p.spec.At("verdicts", fmt.Sprint(i), "test"), v.Parsed().Metric))
	}
	for i, f := range p.spec.Figures {
		at := p.spec.At("figures", fmt.Sprint(i), "metric")
		if f.Kind == "timeline" {
			errs = append(errs, checkIn(timelines, at, f.Metric))
		} else {
			errs = append(errs, check(at, f.Metric))
		}
		for _, note := range f.Notes {
			errs = append(errs, check(p.spec.At("figures", fmt.Sprint(i), "notes"), note))
		}
	}
	for _, metric := range p.spec.Report {
		errs = append(errs, check(p.spec.At("report"), metric))
	}
	return errors.Join(errs...)
}

// order gives the order of the cells in one repeat. It depends on the seed and
// the repeat alone, so a resumed run keeps it.
func (p *plan) order(repeat int) []int {
	order := make([]int, len(p.cells))
	for i := range order {
		order[i] = i
	}
	if p.spec.Run.Order == "interleaved" {
		rng := rand.New(rand.NewPCG(p.spec.Run.Seed, uint64(repeat)))
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	return order
}

// seed is that of all cells of one repeat: pairs send the same bytes.
func (p *plan) seed(repeat int) uint64 {
	return rand.NewPCG(p.spec.Run.Seed, uint64(repeat)^0x7469_6465).Uint64()
}

// ReadPlan checks a spec as a run would, and gives its cells and what was pruned.
func ReadPlan(spec *experiments.Spec) ([]experiments.Cell, []experiments.Pruned, error) {
	p, err := makePlan(spec)
	if err != nil {
		return nil, nil, err
	}
	return p.cells, p.pruned, nil
}
