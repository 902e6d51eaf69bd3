package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/result"
	"github.com/tidemark-log/tidemark/harness/stat"
	"github.com/tidemark-log/tidemark/harness/timeline"
)

var env = result.Environment{Started: time.Unix(1e9, 0), GOOS: "linux", GOARCH: "amd64", Go: "go1.26", Commit: "0123456789ab", Kernel: "6.1", CPU: "Some CPU", CPUs: 2, Memory: 1 << 34, Disk: "vda", FS: "ext4"}

// writeRun makes a run directory of an embedded experiment, with a sample of
// every cell in every repeat; scale multiplies every metric of the cells it is given.
func writeRun(t *testing.T, root, name string, size experiments.Size, repeats int, scale func(cell experiments.Cell, metric string) float64) string {
	t.Helper()
	spec, err := experiments.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	plan := result.Plan{Experiment: name, Size: size, Command: "tidemark run " + name + " --set 'a=<b>'"}
	dir, err := result.Create(root, spec, plan, env, time.Unix(1e9, 0).Add(time.Duration(repeats)*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := result.AppendSamples(filepath.Join(dir, result.SamplesFile))
	if err != nil {
		t.Fatal(err)
	}
	sized, err := plan.Apply(spec)
	if err != nil {
		t.Fatal(err)
	}
	cells, _, err := sized.Cells()
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[string]bool{"bytes/s": true, "records/s": true}
	for _, f := range sized.Figures {
		metrics[f.Metric] = true
	}
	for _, v := range sized.Verdicts {
		metrics[v.Parsed().Metric] = true
	}
	for repeat := range repeats {
		for _, c := range cells {
			s := result.Sample{Repeat: repeat, Cell: c.Name(), Metrics: map[string]float64{}, Limits: map[string]float64{"bytes/s": 2e9}, Warnings: []string{"a <warning>"}}
			for _, f := range sized.Figures {
				if f.Kind == "timeline" {
					s.Timeline = &timeline.Timeline{Step: 0.1, Values: map[string][]float64{f.Metric: {1, 0, 0, 9, 1}}, Marks: []timeline.Mark{{At: 0.1, Name: "killed"}}}
				}
			}
			for m := range metrics {
				s.Metrics[m] = 1e6 * scale(c, m) * (1 + 0.01*float64(repeat%3))
			}
			if err := w.Append(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func flat(experiments.Cell, string) float64 { return 1 }

var links = regexp.MustCompile(`(?:href|src)="([^"]+)"`)

// checkLinks demands that every relative link of a page leads to a file or an id that is there.
func checkLinks(t *testing.T, page string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := links.FindAllSubmatch(text, -1)
	if len(found) == 0 {
		t.Errorf("%s has no links", page)
	}
	for _, m := range found {
		link := string(m[1])
		if id, ok := strings.CutPrefix(link, "#"); ok {
			if !bytes.Contains(text, []byte(`id="`+id+`"`)) {
				t.Errorf("%s: no id for %s", page, link)
			}
			continue
		}
		path, err := url.PathUnescape(link)
		if err != nil || strings.Contains(link, "://") {
			t.Errorf("%s: link %s leads outside", page, link)
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(page), path)); err != nil {
			t.Errorf("%s: %v", page, err)
		}
	}
	if bytes.Contains(text, []byte("NaN")) || bytes.Contains(text, []byte("<no value>")) || bytes.Contains(text, []byte("ZgotmplZ")) {
		t.Errorf("%s shows a number or value that is none", page)
	}
}

func TestEveryEmbeddedExperimentHasAReportWhoseLinksLeadSomewhere(t *testing.T) {
	root := t.TempDir()
	var dirs []string
	for _, name := range experiments.Names() {
		dir := writeRun(t, root, name, experiments.SizeDefault, 8, flat)
		dirs = append(dirs, dir)
		checkLinks(t, filepath.Join(dir, result.PageFile))
		spec, _ := experiments.Load(name)
		for _, f := range spec.Figures {
			for _, ext := range []string{".svg", ".png"} {
				if info, err := os.Stat(filepath.Join(dir, f.Name+ext)); err != nil || info.Size() < 1000 {
					t.Errorf("%s: figure %s%s: %v", name, f.Name, ext, err)
				}
			}
		}
		text, _ := os.ReadFile(filepath.Join(dir, result.ReportFile))
		for _, words := range []string{spec.Question, "Predicted before the run", "0123456789ab", "Some CPU"} {
			if !strings.Contains(strings.ReplaceAll(string(text), "\\_", "_"), words) {
				t.Errorf("%s: report.md does not say %q", name, words)
			}
		}
	}
	page, err := Overview(root, dirs)
	if err != nil {
		t.Fatal(err)
	}
	checkLinks(t, page)
}

// TestRunningOneExperimentAgainKeepsTheOthersOnThePage: also where one of them cannot be read.
func TestRunningOneExperimentAgainKeepsTheOthersOnThePage(t *testing.T) {
	root := t.TempDir()
	flush := writeRun(t, root, "flush", experiments.SizeDefault, 10, flat)
	batch := writeRun(t, root, "batch-size", experiments.SizeDefault, 10, flat)
	sendfile := writeRun(t, root, "sendfile", experiments.SizeDefault, 10, flat)
	if err := os.WriteFile(filepath.Join(sendfile, result.SamplesFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(root, "my-own", "run")
	names := experiments.Names()
	want := []string{batch, flush, own}
	if slices.Index(names, "flush") < slices.Index(names, "batch-size") {
		want = []string{flush, batch, own}
	}
	if got := WithOthers(root, []string{own, flush}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Who reads only the page over all experiments learns what makes an experiment's numbers doubtful.
func TestTheOverviewWarnsLikeTheExperimentsOwnPage(t *testing.T) {
	root := t.TempDir()
	dir := writeRun(t, root, "sendfile", experiments.SizeDefault, 8, func(experiments.Cell, string) float64 { return 4000 }) // over the limit
	busy := env
	busy.Load = "7.1 6.0 5.0"
	if err := result.WriteJSON(filepath.Join(dir, result.EnvironmentFile), busy); err != nil {
		t.Fatal(err)
	}
	page, err := Overview(root, []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, card, _ := strings.Cut(string(text), `id="sendfile"`)
	for _, words := range []string{"a load of 7 on 2 CPUs.", "came out above the limit measured beside them, up to 202 % of it: "} {
		if !strings.Contains(card, words) {
			t.Errorf("%q is not beside the experiment", words)
		}
	}
	if strings.Contains(card, "Pairs cancel") {
		t.Error("the warning is not in short")
	}
}

func TestThePageEscapesWhatItShows(t *testing.T) {
	dir := writeRun(t, t.TempDir(), "batch-size", experiments.SizeDefault, 8, flat)
	text, _ := os.ReadFile(filepath.Join(dir, result.PageFile))
	if bytes.Contains(text, []byte("<warning>")) || bytes.Contains(text, []byte("<b>")) {
		t.Error("text became markup")
	}
}

// batches makes records/s grow with the batch, and system calls shrink.
func batches(c experiments.Cell, metric string) float64 {
	n, _ := numeric(c.Level("batch_records"))
	if metric == "syscalls/MB" {
		return 1 / n
	}
	return n
}

const paperText = "# Title\n\nbefore\n" + paperBegin + "\nold table\n" + paperEnd + "\nafter\n"

func TestPaperHasARowPerClaimAndKeepsWhatIsAround(t *testing.T) {
	base := t.TempDir()
	root, paper := filepath.Join(base, "results"), filepath.Join(base, "PAPER.md")
	if err := os.WriteFile(paper, []byte(paperText), 0o644); err != nil {
		t.Fatal(err)
	}
	writeRun(t, root, "batch-size", experiments.SizeDefault, 10, batches)
	writeRun(t, root, "batch-size", experiments.SizeQuick, 11, flat) // newer, but quick: does not count
	writeRun(t, root, "sendfile", experiments.SizeDefault, 10, flat)
	for range 2 { // written again, it is the same
		if err := WritePaper(paper, root); err != nil {
			t.Fatal(err)
		}
	}
	text, _ := os.ReadFile(paper)
	got := string(text)
	if !strings.HasPrefix(got, "# Title\n\nbefore\n") || !strings.HasSuffix(got, "\nafter\n") || strings.Contains(got, "old table") || strings.Count(got, paperBegin) != 1 {
		t.Errorf("what is around the table changed:\n%s", got)
	}
	for _, c := range experiments.Claims() {
		row := ""
		for line := range strings.SplitSeq(got, "\n") {
			if strings.HasPrefix(line, "| "+c.ID+" |") {
				row = line
			}
		}
		want := map[string]string{"C4": "**supported**", "C5": "**refuted**"}[c.ID]
		if want == "" {
			want = "not yet measured"
		}
		if !strings.Contains(row, want) {
			t.Errorf("%s: want %s in %q", c.ID, want, row)
		}
	}
	for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(got, -1) {
		if _, err := os.Stat(filepath.Join(base, m[1])); err != nil {
			t.Errorf("link in PAPER.md: %v", err)
		}
	}
}

func TestPaperWithoutMarkersIsLeftAlone(t *testing.T) {
	paper := filepath.Join(t.TempDir(), "PAPER.md")
	if err := WritePaper(paper, t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(paper, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WritePaper(paper, t.TempDir()); err == nil {
		t.Error("a file without markers was accepted")
	}
	if text, _ := os.ReadFile(paper); string(text) != "mine" {
		t.Errorf("it was changed: %s", text)
	}
}

func TestOverallVerdictOfAClaimIsHonestAboutDisagreement(t *testing.T) {
	for _, c := range []struct {
		all  []stat.Verdict
		want string
	}{
		{nil, "not yet measured"},
		{[]stat.Verdict{stat.Supported, stat.Supported}, "supported"},
		{[]stat.Verdict{stat.Supported, stat.Refuted, stat.Inconclusive}, "mixed: 1 supported, 1 refuted of 3 tests"},
		{[]stat.Verdict{stat.Supported, stat.Inconclusive}, "supported in 1 of 2 tests"},
		{[]stat.Verdict{stat.Refuted, stat.NoVerdict}, "refuted in 1 of 2 tests"},
		{[]stat.Verdict{stat.Inconclusive, stat.NoVerdict}, "inconclusive"},
	} {
		if got, _ := overall(c.all); got != c.want {
			t.Errorf("%v: %q, want %q", c.all, got, c.want)
		}
	}
}

func TestRunsWithNothingInCommonAreNotCompared(t *testing.T) {
	a := writeRun(t, t.TempDir(), "sendfile", experiments.SizeDefault, 8, flat)
	b := writeRun(t, t.TempDir(), "flush", experiments.SizeDefault, 8, flat)
	if c, err := Compare(a, b, false); err == nil || !strings.Contains(err.Error(), "no cell with numbers in common") {
		t.Errorf("%v, %v", c, err)
	}
}

func TestCompareFindsWhatChangedAndSaysWhatElseDiffers(t *testing.T) {
	a := writeRun(t, t.TempDir(), "sendfile", experiments.SizeDefault, 8, flat)
	b := writeRun(t, t.TempDir(), "sendfile", experiments.SizeDefault, 8, func(c experiments.Cell, metric string) float64 {
		if c.Level("lab.fetch.transfer") == "copy" && metric == "bytes/s" {
			return 0.5
		}
		return 1
	})
	other := env
	other.Kernel = "6.2"
	if err := result.WriteJSON(filepath.Join(b, result.EnvironmentFile), other); err != nil {
		t.Fatal(err)
	}
	for _, paired := range []bool{false, true} {
		c, err := Compare(a, b, paired)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range c.Rows {
			want := 1.0
			if strings.Contains(r.Cell, "=copy") && r.Metric == "bytes/s" {
				want = 0.5
			}
			if e := r.Ratio.Estimate(); math.Abs(e.Value-want) > 0.02 {
				t.Errorf("%s %s: %v, want %v", r.Cell, r.Metric, e, want)
			}
		}
		if len(c.Differences) != 1 || c.Differences[0] != "kernel: 6.1 ↔ 6.2" {
			t.Errorf("differences %v", c.Differences)
		}
		var out bytes.Buffer
		c.Print(&out)
		if !strings.Contains(out.String(), "kernel: 6.1 ↔ 6.2") || strings.Count(out.String(), "differs") != 4 {
			t.Errorf("printed:\n%s", out.String())
		}
		if _, err := json.Marshal(c); err != nil {
			t.Error(err)
		}
	}
}

// A run of "tidemark reproduce" says also how it is made without the others.
func TestOnceMoreNamesTheExperimentAlone(t *testing.T) {
	for command, want := range map[string]string{
		"tidemark reproduce --quick":         "tidemark reproduce --quick\ntidemark run flush --quick   # this experiment alone",
		"tidemark run flush --quick --out x": "tidemark run flush --quick --out x",
	} {
		r := &run{plan: result.Plan{Experiment: "flush", Size: experiments.SizeQuick, Command: command}}
		if got := strings.Join(r.commands(), "\n"); got != want {
			t.Errorf("%s:\n%s", command, got)
		}
	}
}
