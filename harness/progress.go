package harness

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/internal/words"
)

// progress tells how far a run is: a bar on a terminal, one plain line a repeat elsewhere.
type progress struct {
	out     io.Writer
	bar     *progressbar.ProgressBar // nil: plain lines
	name    string
	cells   int
	repeats int
	started time.Time
	fresh   int // cells run in this process, not found from before
	label   string
}

func newProgress(out io.Writer, name string, cells, repeats int) *progress {
	p := &progress{out: out, name: name, cells: cells, repeats: repeats, started: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(cells*repeats,
			progressbar.OptionSetWriter(out), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetDescription(name), progressbar.OptionSetRenderBlankState(true))
	}
	return p
}

// begin says what is about to run, and what is not and why.
func (p *progress) begin(pruned []experiments.Pruned, found int) {
	p.say("%s × %s", words.Count(p.cells, "cell"), words.Count(p.repeats, "repeat"))
	reasons := map[string]int{}
	for _, c := range pruned {
		if reasons[c.Why]++; reasons[c.Why] == 1 {
			defer func() { p.say("left out %d like %s: %s", reasons[c.Why], c.Name, c.Why) }()
		}
	}
	if found > 0 {
		p.say("going on after %s", words.Count(found, "sample"))
	}
}

func (p *progress) cell(name string, repeat int) {
	p.label = fmt.Sprintf("%s %d/%d %s", p.name, repeat+1, p.repeats, name)
	p.fresh++
	p.describe(p.label)
}

// step is told by the workload what it is doing.
func (p *progress) step(what string) { p.describe(p.label + ": " + what) }

func (p *progress) describe(text string) {
	const columns = 70
	if p.bar != nil {
		if r := []rune(text); len(r) > columns {
			text = string(r[:columns-1]) + "…"
		}
		p.bar.Describe(text)
	}
}

func (p *progress) cellDone() {
	if p.bar != nil {
		_ = p.bar.Add(1)
	}
}

func (p *progress) repeatDone(repeat int) {
	if p.bar != nil || p.fresh == 0 {
		return
	}
	took := time.Since(p.started)
	line := fmt.Sprintf("repeat %d of %d done after %s", repeat+1, p.repeats, took.Round(100*time.Millisecond))
	if left := (p.repeats - repeat - 1) * p.cells; left > 0 {
		line += fmt.Sprintf(", about %s to go", (took / time.Duration(p.fresh) * time.Duration(left)).Round(time.Second))
	}
	p.say("%s", line)
}

// say writes a line of its own.
func (p *progress) say(format string, args ...any) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	fmt.Fprintf(p.out, "%s: %s\n", p.name, fmt.Sprintf(format, args...))
}

func (p *progress) close() {
	if p.bar != nil {
		_ = p.bar.Clear()
		_ = p.bar.Exit()
	}
}
