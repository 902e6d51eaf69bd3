package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/result"
	"github.com/tidemark-log/tidemark/harness/stat"
	"github.com/tidemark-log/tidemark/internal/words"
)

//go:embed page.css
var css string

//go:embed page.html
var pageText string

//go:embed overview.html
var overviewText string

var (
	pageTemplate     = template.Must(template.New("page").Parse(pageText))
	overviewTemplate = template.Must(template.New("overview").Parse(overviewText))
)

// verdictRow is a verdict as the pages show it.
type verdictRow struct {
	Claim, ClaimSays, Says, Test, Ratio, Bound, Badge, Word, But, Figure string
	Repeats                                                              int
}

func verdictRows(s *result.Summary) []verdictRow {
	var rows []verdictRow
	for _, v := range s.Verdicts {
		claim, _ := experiments.ClaimByID(v.Claim)
		bound := v.Test
		if i := strings.LastIndex(v.Test, ")"); i >= 0 {
			bound = strings.TrimSpace(v.Test[i+1:])
		}
		rows = append(rows, verdictRow{
			Claim: v.Claim, ClaimSays: claim.Says, Says: v.Says, Test: v.Test, Ratio: Outcome(v), Bound: bound, Badge: badge(v.Verdict),
			Word: string(v.Verdict), But: warningText(own(v, s)), Figure: v.Figure, Repeats: v.Ratio.N,
		})
	}
	return rows
}

// own leaves out of a verdict's warnings what the page says of the whole run.
func own(v result.VerdictSummary, s *result.Summary) []stat.Warning {
	return slices.DeleteFunc(slices.Clone(v.Warnings), func(w stat.Warning) bool {
		return w.Kind == stat.FewRepeats && w.Count == s.Repeats
	})
}

// inlineFigure is a figure whose SVG stands in the page.
type inlineFigure struct {
	Name, Title, Missing string
	SVG                  template.HTML
}

func inline(figures []drawn) []inlineFigure {
	var all []inlineFigure
	for _, f := range figures {
		all = append(all, inlineFigure{f.Name, f.Title, f.Missing, inlineSVG(f.SVG, f.Title)})
	}
	return all
}

// inlineSVG makes an SVG file part of a page: no XML declaration, as wide as
// there is room, and named for those who cannot see it.
func inlineSVG(svg []byte, title string) template.HTML {
	at := bytes.Index(svg, []byte("<svg"))
	if at < 0 {
		return ""
	}
	text := strings.Replace(string(svg[at:]), "<svg", fmt.Sprintf(`<svg role="img" aria-label="%s"`, template.HTMLEscapeString(title)), 1)
	return template.HTML(text) // drawn by us: titles are escaped by the SVG writer
}

// page is index.html of a run.
func (r *run) page() ([]byte, error) {
	header, rows := r.rows()
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, map[string]any{
		"CSS": template.CSS(css), "Name": r.spec.Name, "S": r.summary, "Verdicts": verdictRows(r.summary), "Figures": inline(r.figures),
		"Header": header, "Factors": len(r.spec.Factors()), "Rows": rows, "CellWarnings": r.cellWarnings(), "Environment": r.environmentRows(), "Commands": r.commands(),
		"Files": []string{result.SamplesFile, result.SummaryFile, result.BenchFile, result.SpecFile, result.EnvironmentFile, result.ReportFile},
		"Size":  r.sizeText(), "Machine": r.env.Machine(), "Commit": r.env.Commit,
	})
	return b.Bytes(), err
}

func (r *run) sizeText() string {
	text := fmt.Sprintf("%s size, %s × %s", r.summary.Size, words.Count(len(r.summary.Cells), "cell"), words.Count(r.summary.Repeats, "repeat"))
	if len(r.plan.Set) > 0 {
		text += ", with " + strings.Join(r.plan.Set, ", ")
	}
	return text
}

// experimentCard is one run on the overview.
type experimentCard struct {
	Name, Question, Prediction, Link, Size string
	Verdicts                               []verdictRow
	Figures                                []inlineFigure
	Warnings, Failures                     []string
	Commit, Machine                        string
}

var aside = regexp.MustCompile(` \([^()]*\)`)

// inShort keeps of each warning what a reader of many experiments must not miss: its first
// sentence, without what stands in brackets. The experiment's own page has the rest.
func inShort(warnings []string) (all []string) {
	for _, w := range warnings {
		if first, _, more := strings.Cut(aside.ReplaceAllString(w, ""), ". "); more {
			all = append(all, first+".")
		} else {
			all = append(all, first)
		}
	}
	return all
}

// WithOthers adds to the directories of runs under root those of the newest whole runs of the other embedded
// experiments there, in the experiments' order, so that who runs one of them again keeps the page over all.
// One that was quick is taken where there is no other.
func WithOthers(root string, dirs []string) []string {
	names := experiments.Names()
	all := slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return slices.Contains(names, experimentOf(dir)) })
	var known []string
	for _, name := range names {
		if i := slices.IndexFunc(dirs, func(dir string) bool { return experimentOf(dir) == name }); i >= 0 {
			known = append(known, dirs[i])
			continue
		}
		var quick, whole *run
		for _, r := range wholeRuns(root, name, func(error) bool { return true }) { // one that cannot be read any more keeps nobody from the page
			if r.plan.Size == experiments.SizeQuick {
				quick = r
			} else {
				whole = r
			}
		}
		if r := cmp.Or(whole, quick); r != nil {
			known = append(known, r.dir)
		}
	}
	return append(known, all...)
}

// experimentOf is the experiment whose run lies in a directory.
func experimentOf(dir string) string { return filepath.Base(filepath.Dir(dir)) }

// Overview writes index.html over the newest runs of the named experiments under root. It gives the page's path.
func Overview(root string, dirs []string) (string, error) {
	var cards []experimentCard
	var runs []*run
	machines := map[string]bool{}
	for _, dir := range dirs {
		r, err := read(dir)
		if err != nil {
			return "", err
		}
		for _, def := range r.spec.Figures {
			d := drawn{Name: def.Name, Title: def.Title}
			if d.SVG, err = os.ReadFile(filepath.Join(dir, def.Name+".svg")); err == nil {
				r.figures = append(r.figures, d)
			}
		}
		link, err := filepath.Rel(root, dir)
		if err != nil {
			return "", err
		}
		cards = append(cards, experimentCard{
			Name: r.spec.Name, Question: r.summary.Question, Prediction: r.summary.Prediction, Link: filepath.ToSlash(link), Size: r.sizeText(),
			Verdicts: verdictRows(r.summary), Figures: inline(r.figures), Warnings: inShort(r.summary.Warnings), Failures: r.summary.Failures,
			Commit: r.env.Commit, Machine: r.env.Machine(),
		})
		machines["commit "+r.env.Commit+", "+r.env.Machine()] = true
		runs = append(runs, r)
	}
	var where []string
	for m := range machines {
		where = append(where, m)
	}
	slices.Sort(where)
	var b bytes.Buffer
	err := overviewTemplate.Execute(&b, map[string]any{
		"CSS": template.CSS(css), "Cards": cards, "Claims": claimRows(runs, root), "Where": where, "Quick": len(runs) > 0 && runs[0].plan.Size == experiments.SizeQuick,
	})
	if err != nil {
		return "", err
	}
	name := filepath.Join(root, result.PageFile)
	return name, result.WriteFile(name, b.Bytes())
}
