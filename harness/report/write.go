// Package report makes what people read of a run: figures, report.md, index.html,
// the page over several runs, and the table of claims in PAPER.md.
//
// All of it follows from the files of the run's directory, so it can be made
// again at any time and comes out the same.
package report

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/result"
)

// run is a run's directory, read.
type run struct {
	dir     string
	spec    *experiments.Spec
	plan    result.Plan
	env     result.Environment
	samples []result.Sample
	counted []result.Sample // those that estimates rest on
	summary *result.Summary
	figures []drawn
}

// Write makes everything that follows from a run's samples: bench.txt,
// summary.json, figures, report.md and index.html.
func Write(dir string) (*result.Summary, error) {
	r, err := read(dir)
	if err != nil {
		return nil, err
	}
	if err := r.writeFigures(); err != nil {
		return nil, err
	}
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		result.WriteJSON(filepath.Join(dir, result.SummaryFile), r.summary),
		result.WriteFile(filepath.Join(dir, result.BenchFile), []byte(result.Bench(r.spec, r.env, r.samples))),
		result.WriteFile(filepath.Join(dir, result.ReportFile), []byte(r.markdown())),
		result.WriteFile(filepath.Join(dir, result.PageFile), page))
	return r.summary, err
}

func read(dir string) (*run, error) {
	r := &run{dir: dir}
	var err error
	if r.spec, r.plan, r.env, err = result.Open(dir); err != nil {
		return nil, err
	}
	if r.samples, _, err = result.ReadSamples(filepath.Join(dir, result.SamplesFile)); err != nil {
		return nil, err
	}
	if len(r.samples) == 0 {
		return nil, fmt.Errorf("%s has no samples yet", dir)
	}
	if r.summary, err = result.Summarize(r.spec, r.plan.Size, r.samples); err != nil {
		return nil, err
	}
	r.counted = result.Counted(r.spec, r.samples)
	if busy := r.env.Busy(); busy != "" {
		r.summary.Warnings = append([]string{busy}, r.summary.Warnings...)
	}
	return r, nil
}

// metrics are those of the report's table: what the spec names, or else what its figures and tests use.
func (r *run) metrics() []string {
	if len(r.spec.Report) > 0 {
		return r.spec.Report
	}
	var all []string
	add := func(metric string) {
		if !slices.Contains(all, metric) {
			all = append(all, metric)
		}
	}
	for _, f := range r.spec.Figures {
		if f.Kind != "timeline" {
			add(f.Metric)
		}
		for _, note := range f.Notes {
			add(note)
		}
	}
	for _, v := range r.spec.Verdicts {
		add(v.Parsed().Metric)
	}
	return all
}

// rows is the table of results: a header, then a row per cell.
func (r *run) rows() (header []string, rows [][]string) {
	metrics := r.metrics()
	for _, f := range r.spec.Factors() {
		header = append(header, factorName(f))
	}
	for _, m := range metrics {
		header = append(header, quantityOf(m).name)
	}
	shares := r.shareMetric()
	if shares != "" {
		header = append(header, "Share of the machine's limit")
	}
	for _, c := range r.summary.Cells {
		var row []string
		for _, f := range r.spec.Factors() {
			row = append(row, levelName(f, c.Levels[f]))
		}
		for _, m := range metrics {
			row = append(row, number(quantityOf(m).unit, c.Metrics[m]))
		}
		if shares != "" {
			row = append(row, percent(c.Shares[shares]))
		}
		rows = append(rows, row)
	}
	return header, rows
}

// shareMetric is the first metric whose limit was measured and is drawn.
func (r *run) shareMetric() string {
	for _, m := range result.LimitMetrics(r.spec) {
		for _, c := range r.summary.Cells {
			if _, ok := c.Shares[m]; ok {
				return m
			}
		}
	}
	return ""
}

func percent(n result.Number) string {
	if n.Value == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", *n.Value*100)
}

// cellWarnings lists the warnings of all cells, each with the cells that have it.
func (r *run) cellWarnings() []string {
	var texts []string
	cells := map[string][]string{}
	for _, c := range r.summary.Cells {
		for _, w := range c.Warnings {
			if cells[w] == nil {
				texts = append(texts, w)
			}
			cells[w] = append(cells[w], c.Cell)
		}
	}
	var all []string
	const named = 3
	for _, text := range texts {
		where := cells[text]
		list := strings.Join(where[:min(named, len(where))], "; ")
		if len(where) > named {
			list += fmt.Sprintf("; and %d more", len(where)-named)
		}
		all = append(all, fmt.Sprintf("%s (%s)", text, list))
	}
	return all
}

// environmentRows is what the report says of the machine.
func (r *run) environmentRows() [][2]string {
	e := r.env
	rows := [][2]string{
		{"Commit", e.Commit}, {"Started", e.Started.UTC().Format("2006-01-02 15:04:05 UTC")}, {"CPU", fmt.Sprintf("%d × %s", e.CPUs, e.CPU)},
		{"Memory", fmt.Sprintf("%.1f GiB", float64(e.Memory)/(1<<30))}, {"Disk", e.Disk}, {"File system", e.FS}, {"Kernel", "Linux " + e.Kernel}, {"Go", e.Go},
		{"Load average at the start", e.Load},
	}
	for _, m := range []struct {
		name string
		kv   map[string]string
	}{{"Cgroup", e.Cgroup}, {"Settings", e.Settings}} {
		var parts []string
		for _, k := range sortedKeys(m.kv) {
			parts = append(parts, k+"="+m.kv[k])
		}
		if len(parts) > 0 {
			rows = append(rows, [2]string{m.name, strings.Join(parts, ", ")})
		}
	}
	return rows
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
