package result

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-log/tidemark/experiments"
)

// Bench writes samples as Go benchmark lines, so that
//
//	benchstat -col /acks bench.txt
//
// compares their levels. The machine's limit beside a metric is limit-METRIC.
// Only samples that count are there: benchstat knows nothing of checks.
func Bench(spec *experiments.Spec, env Environment, samples []Sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "goos: %s\ngoarch: %s\npkg: github.com/tidemark-log/tidemark/experiments\ncpu: %s\ncommit: %s\nmachine: %s\n",
		env.GOOS, env.GOARCH, env.CPU, env.Commit, env.Machine())
	fmt.Fprintf(&b, "experiment: %s\n", spec.Name)
	for _, s := range Counted(spec, samples) {
		if len(s.Metrics) == 0 {
			continue
		}
		fmt.Fprintf(&b, "Benchmark%s/%s 1", BenchName(spec.Name), s.Cell)
		for _, name := range slices.Sorted(maps.Keys(s.Metrics)) {
			fmt.Fprintf(&b, " %s %s", strconv.FormatFloat(s.Metrics[name], 'g', 8, 64), name)
		}
		for _, name := range slices.Sorted(maps.Keys(s.Limits)) {
			fmt.Fprintf(&b, " %s limit-%s", strconv.FormatFloat(s.Limits[name], 'g', 8, 64), name)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// BenchName writes batch-size as BatchSize.
func BenchName(experiment string) string {
	var b strings.Builder
	for part := range strings.FieldsFuncSeq(experiment, func(r rune) bool { return r == '-' || r == '_' || r == '.' || r == ' ' }) {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}
