package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/result"
	"github.com/tidemark-log/tidemark/harness/stat"
)

// The lines of PAPER.md between which the table of claims is written.
const (
	paperBegin = "<!-- claims: begin; written by tidemark reproduce, do not edit -->"
	paperEnd   = "<!-- claims: end -->"
)

// claimRow is one claim with all tests of it.
type claimRow struct {
	ID, Says string
	Verdict  string // over all tests; "not yet measured"
	Badge    string
	Tests    []claimTest
}

type claimTest struct {
	Says, Verdict, Badge, Ratio, Bound string
	Experiment, Link, Figure           string // Link and Figure are relative to the page
}

// claimRows gives a row per claim, with the tests of it in the runs. Links are relative to base.
func claimRows(runs []*run, base string) []claimRow {
	var rows []claimRow
	for _, claim := range experiments.Claims() {
		row := claimRow{ID: claim.ID, Says: claim.Says}
		var verdicts []stat.Verdict
		for _, r := range runs {
			for i, v := range r.summary.Verdicts {
				if v.Claim != claim.ID {
					continue
				}
				link, err := filepath.Rel(base, r.dir)
				if err != nil {
					link = r.dir
				}
				link = filepath.ToSlash(link)
				t := claimTest{Says: v.Says, Verdict: string(v.Verdict), Badge: badge(v.Verdict), Ratio: Outcome(v), Bound: verdictRows(r.summary)[i].Bound, Experiment: r.spec.Name, Link: link}
				if v.Figure != "" {
					t.Figure = link + "/" + v.Figure + ".svg"
				}
				row.Tests = append(row.Tests, t)
				verdicts = append(verdicts, v.Verdict)
			}
		}
		row.Verdict, row.Badge = overall(verdicts)
		rows = append(rows, row)
	}
	return rows
}

// overall is what all tests of a claim say together: their verdict where they
// agree, "mixed" where some support and some refute it.
func overall(all []stat.Verdict) (word, class string) {
	counts := map[stat.Verdict]int{}
	for _, v := range all {
		counts[v]++
	}
	for _, v := range all { // all the same
		if counts[v] == len(all) {
			return string(v), badge(v)
		}
	}
	switch {
	case len(all) == 0:
		return "not yet measured", "none"
	case counts[stat.Supported] > 0 && counts[stat.Refuted] > 0:
		return fmt.Sprintf("mixed: %d supported, %d refuted of %d tests", counts[stat.Supported], counts[stat.Refuted], len(all)), "mixed"
	case counts[stat.Refuted] > 0:
		return fmt.Sprintf("refuted in %d of %d tests", counts[stat.Refuted], len(all)), "mixed"
	case counts[stat.Supported] > 0:
		return fmt.Sprintf("supported in %d of %d tests", counts[stat.Supported], len(all)), "mixed"
	}
	return string(stat.Inconclusive), badge(stat.Inconclusive)
}

// WritePaper writes the table of claims between the markers of a PAPER.md, from
// the newest runs under root that were not quick.
func WritePaper(paper, root string) error {
	text, err := os.ReadFile(paper)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), paperBegin)
	_, after, ok2 := strings.Cut(rest, paperEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s: the lines %q and %q, between which the table goes, are not there", paper, paperBegin, paperEnd)
	}
	runs, err := newest(root)
	if err != nil {
		return err
	}
	table := paperTable(claimRows(runs, filepath.Dir(paper)))
	if len(runs) > 0 {
		table += "\nMeasured by:\n\n" + places(runs)
	}
	return result.WriteFile(paper, []byte(before+paperBegin+"\n\n"+table+"\n"+paperEnd+after))
}

// newest reads the newest whole run of each embedded experiment; quick ones do not count.
func newest(root string) ([]*run, error) {
	var runs []*run
	for _, name := range experiments.Names() {
		var failed error
		var last *run
		for _, r := range wholeRuns(root, name, func(err error) bool { failed = err; return false }) {
			if r.plan.Size != experiments.SizeQuick {
				last = r
			}
		}
		if failed != nil {
			return nil, failed
		}
		if last != nil {
			runs = append(runs, last)
		}
	}
	return runs, nil
}

// wholeRuns reads the runs of an experiment under root, the oldest first: those that were made as its file says, to the
// end. When one cannot be read, skip says whether to go on.
func wholeRuns(root, name string, skip func(error) bool) (runs []*run) {
	dirs, _ := filepath.Glob(filepath.Join(root, name, "*", result.SummaryFile)) // only a bad pattern is an error
	for _, summary := range dirs {
		r, err := read(filepath.Dir(summary))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			if !skip(err) {
				return nil
			}
		case len(r.plan.Set) == 0 && r.summary.Missing == 0:
			runs = append(runs, r)
		}
	}
	return runs
}

// places says where and by which commit the runs were measured, the experiments of one place together.
func places(runs []*run) string {
	var order []string
	names := map[string][]string{}
	for _, r := range runs {
		where := fmt.Sprintf("commit %s, %s", r.env.Commit, r.env.Machine())
		if names[where] == nil {
			order = append(order, where)
		}
		names[where] = append(names[where], r.spec.Name)
	}
	var b strings.Builder
	for _, where := range order {
		fmt.Fprintf(&b, "- %s: %s\n", strings.Join(names[where], ", "), escape(where))
	}
	return b.String()
}

func paperTable(rows []claimRow) string {
	var b strings.Builder
	var cells [][]string
	for _, row := range rows {
		if len(row.Tests) == 0 {
			cells = append(cells, []string{row.ID, escape(row.Says), row.Verdict, "", ""})
			continue
		}
		var says, numbers, links []string
		for _, t := range row.Tests {
			says = append(says, fmt.Sprintf("%s: %s", t.Verdict, escape(t.Says)))
			numbers = append(numbers, fmt.Sprintf("%s, wanted %s", t.Ratio, strings.ReplaceAll(t.Bound, "<", "&lt;")))
			link := fmt.Sprintf("[%s](%s/%s)", t.Experiment, t.Link, result.ReportFile)
			if t.Figure != "" {
				link = fmt.Sprintf("[figure](%s), %s", t.Figure, link)
			}
			links = append(links, link)
		}
		cells = append(cells, []string{row.ID, escape(row.Says), "**" + row.Verdict + "**<br>" + strings.Join(says, "<br>"), strings.Join(numbers, "<br>"), strings.Join(links, "<br>")})
	}
	writeTable(&b, []string{"", "Claim", "Verdict here", "Ratio (95 % interval)", "Shown by"}, cells)
	return strings.TrimSuffix(b.String(), "\n")
}
