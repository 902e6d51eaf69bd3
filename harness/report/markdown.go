package report

import (
	"fmt"
	"strings"

	"github.com/tidemark-log/tidemark/harness/result"
	"github.com/tidemark-log/tidemark/harness/stat"
)

// markdown is report.md.
func (r *run) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n**%s**\n\n", r.spec.Name, escape(r.summary.Question))
	fmt.Fprintf(&b, "> Predicted before the run: %s\n\n", escape(r.summary.Prediction))
	for _, w := range r.summary.Warnings {
		fmt.Fprintf(&b, "*%s*\n\n", escape(w))
	}
	r.markdownVerdicts(&b)
	for _, f := range r.figures {
		if f.Missing != "" {
			fmt.Fprintf(&b, "Figure *%s* could not be drawn: %s.\n\n", escape(f.Title), escape(f.Missing))
			continue
		}
		fmt.Fprintf(&b, "![%s](%s.svg)\n\n", escape(f.Title), f.Name)
	}
	b.WriteString("## Results\n\nMedians, with 95 % intervals where there are enough repeats.\n\n")
	header, rows := r.rows()
	writeTable(&b, header, rows)
	list(&b, "## Failures", r.summary.Failures)
	list(&b, "## Warnings", r.cellWarnings())
	var pruned []string
	for _, p := range r.summary.Pruned {
		pruned = append(pruned, fmt.Sprintf("`%s`: %s", p.Cell, escape(p.Why)))
	}
	list(&b, "## Combinations left out", pruned)
	b.WriteString("## Where this was measured\n\n")
	for _, row := range r.environmentRows() {
		fmt.Fprintf(&b, "- %s: %s\n", row[0], escape(row[1]))
	}
	fmt.Fprintf(&b, "\n## Once more\n\n```\n%s\n```\n\nEvery repeat is a line of [%s](%s); `benchstat` reads [%s](%s); the numbers of this page are in [%s](%s).\n",
		strings.Join(r.commands(), "\n"), result.SamplesFile, result.SamplesFile, result.BenchFile, result.BenchFile, result.SummaryFile, result.SummaryFile)
	return b.String()
}

// commands make the run once more: as it was made and, where that made others too, alone.
func (r *run) commands() []string {
	if made := r.plan.Command; strings.HasPrefix(made, "tidemark run ") {
		return []string{made}
	}
	return []string{r.plan.Command, r.plan.Alone() + "   # this experiment alone"}
}

func (r *run) markdownVerdicts(b *strings.Builder) {
	if len(r.summary.Verdicts) == 0 {
		return
	}
	b.WriteString("## Verdicts\n\n")
	var rows [][]string
	for _, v := range r.summary.Verdicts {
		rows = append(rows, []string{v.Claim, escape(v.Says), "**" + string(v.Verdict) + "**", Outcome(v), fmt.Sprint(v.Ratio.N), "`" + v.Test + "`", escape(warningText(v.Warnings))})
	}
	writeTable(b, []string{"Claim", "Says", "Verdict", "Ratio (95 % interval)", "Repeats", "Test", "But"}, rows)
}

func warningText(all []stat.Warning) string {
	var parts []string
	for _, w := range all {
		parts = append(parts, w.String())
	}
	return strings.Join(parts, "; ")
}

func list(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "%s\n\n", title)
	for _, l := range lines {
		fmt.Fprintf(b, "- %s\n", l)
	}
	b.WriteByte('\n')
}

func writeTable(b *strings.Builder, header []string, rows [][]string) {
	line := func(cells []string) {
		b.WriteString("|")
		for _, c := range cells {
			fmt.Fprintf(b, " %s |", strings.ReplaceAll(c, "|", "\\|"))
		}
		b.WriteByte('\n')
	}
	line(header)
	b.WriteString("|" + strings.Repeat("---|", len(header)) + "\n")
	for _, row := range rows {
		line(row)
	}
	b.WriteByte('\n')
}

// escape keeps text from being read as markup.
func escape(s string) string {
	return strings.NewReplacer("<", "&lt;", "*", "\\*", "_", "\\_", "\n", " ").Replace(s)
}
