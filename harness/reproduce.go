package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/harness/report"
	"github.com/tidemark-log/tidemark/harness/result"
	"github.com/tidemark-log/tidemark/harness/stat"
	"github.com/tidemark-log/tidemark/internal/words"
)

// ErrFailures marks runs of which all samples were taken, but some failed a check or gave no numbers.
var ErrFailures = errors.New("failed cells or checks")

// RunAll runs experiments one after the other and writes the page over all of
// them, and over the newest runs of others that lie beside them. One that cannot run does not keep the others from running; its error is
// among those returned. It gives the page's path.
func RunAll(ctx context.Context, specs []*experiments.Spec, o Options) (page string, err error) {
	started := o.Now()
	if err := os.MkdirAll(o.Root, 0o755); err != nil {
		return "", fmt.Errorf("directory for results: %w; choose another with --out", err)
	}
	var dirs []string
	var errs []error
	for _, spec := range specs {
		out, err := Run(ctx, spec, o)
		if errors.Is(err, ErrInterrupted) {
			return "", errors.Join(append(errs, err)...)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", spec.Name, err)
			if errs = append(errs, err); len(specs) > 1 { // else the caller says it, with nothing between
				fmt.Fprintln(o.Log, err)
			}
			continue
		}
		dirs = append(dirs, out.Dir)
		Tell(o.Log, out)
		if len(out.Summary.Failures) > 0 {
			errs = append(errs, fmt.Errorf("%s: %w, see %s", spec.Name, ErrFailures, filepath.Join(out.Dir, result.ReportFile)))
		}
	}
	if len(dirs) > 0 {
		if page, err = report.Overview(o.Root, report.WithOthers(o.Root, dirs)); err != nil {
			errs = append(errs, err)
		}
		fmt.Fprintf(o.Log, "%s in %s\n", words.Count(len(dirs), "experiment"), o.Now().Sub(started).Round(time.Second))
	}
	return page, errors.Join(errs...)
}

// Specs loads the named experiments, all embedded ones for no names, and checks
// them before any of them runs.
func Specs(names []string, size experiments.Size, set []string) ([]*experiments.Spec, error) {
	if len(names) == 0 {
		names = experiments.Names()
	}
	var specs []*experiments.Spec
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("%s is named twice", name)
		}
		spec, err := experiments.Load(name)
		if err != nil {
			return nil, err
		}
		sized, err := result.Plan{Size: size, Set: set}.Apply(spec)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if _, err := makePlan(sized); err != nil {
			if len(set) > 0 { // the file's line may be innocent
				err = fmt.Errorf("with --set %s: %w", strings.Join(set, " --set "), err)
			}
			return nil, err
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// Tell says in a few lines what came out of a run.
func Tell(w io.Writer, out Outcome) {
	s := out.Summary
	for _, warning := range s.Warnings {
		fmt.Fprintf(w, "%s: %s\n", s.Experiment, warning)
	}
	for _, f := range s.Failures {
		fmt.Fprintf(w, "%s: FAILED: %s\n", s.Experiment, f)
	}
	for _, v := range s.Verdicts {
		_, bound, _ := strings.Cut(v.Test, ")")
		word := string(v.Verdict)
		if v.Verdict == stat.NoVerdict {
			word = "estimate"
		}
		fmt.Fprintf(w, "  %-3s %-12s %s: %s, wanted%s\n", v.Claim, word, v.Says, report.Outcome(v), bound)
	}
	fmt.Fprintf(w, "%s: %s\n\n", s.Experiment, out.Dir)
}
