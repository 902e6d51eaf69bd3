// Package result is the directory that a run writes: its files, their formats,
// and the summary that follows from its samples and its spec alone.
//
// samples.jsonl is the record of what was measured; everything else that has
// numbers can be made again from it and spec.toml.
package result

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidemark-log/tidemark/experiments"
	"github.com/tidemark-log/tidemark/internal/words"
)

// The files of a run's directory.
const (
	SpecFile        = "spec.toml"
	CommandFile     = "command.txt"
	EnvironmentFile = "environment.json"
	SamplesFile     = "samples.jsonl"
	LatencyDir      = "latency"
	BenchFile       = "bench.txt"
	SummaryFile     = "summary.json"
	ReportFile      = "report.md"
	PageFile        = "index.html"
)

// Plan is what command.txt holds: how the run was asked for, so that it can be resumed and its summary made again.
type Plan struct {
	Experiment string           `json:"experiment"`
	Size       experiments.Size `json:"size"`
	Set        []string         `json:"set,omitempty"` // key=value, as given
	Command    string           `json:"command"`       // that makes the run again
}

// Create makes a new directory results/<experiment>/<UTC time>-<short hash>
// under root, with the files that say what will run. The hash is that of spec and plan.
func Create(root string, spec *experiments.Spec, plan Plan, env Environment, now time.Time) (string, error) {
	sum := sha256.Sum256(fmt.Append(nil, spec.Text, plan.Size, plan.Set))
	dir := filepath.Join(root, spec.Name, now.UTC().Format("20060102T150405Z")+"-"+hex.EncodeToString(sum[:3]))
	if _, err := os.Stat(dir); err == nil {
		return "", fmt.Errorf("%s is there already: use --resume to go on with it, or wait a second", dir)
	}
	if err := os.MkdirAll(filepath.Join(dir, LatencyDir), 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, SpecFile), []byte(spec.Text), 0o644); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, CommandFile), []byte(plan.text()), 0o644); err != nil {
		return "", err
	}
	if err := WriteJSON(filepath.Join(dir, EnvironmentFile), env); err != nil {
		return "", err
	}
	f, err := os.OpenFile(filepath.Join(dir, SamplesFile), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	return dir, f.Close()
}

// Open reads what a run directory says ran.
func Open(dir string) (*experiments.Spec, Plan, Environment, error) {
	var env Environment
	text, err := os.ReadFile(filepath.Join(dir, CommandFile))
	if err != nil {
		return nil, Plan{}, env, fmt.Errorf("%s is no run directory: %w", dir, err)
	}
	plan, err := parsePlan(string(text))
	if err != nil {
		return nil, plan, env, fmt.Errorf("%s: %w", filepath.Join(dir, CommandFile), err)
	}
	text, err = os.ReadFile(filepath.Join(dir, SpecFile))
	if err != nil {
		return nil, plan, env, err
	}
	spec, err := experiments.Parse(plan.Experiment, text)
	if err != nil {
		return nil, plan, env, err
	}
	text, err = os.ReadFile(filepath.Join(dir, EnvironmentFile))
	if err != nil {
		return nil, plan, env, err
	}
	if err := json.Unmarshal(text, &env); err != nil {
		return nil, plan, env, fmt.Errorf("%s: %w", EnvironmentFile, err)
	}
	sized, err := plan.Apply(spec)
	return sized, plan, env, err
}

// Latest finds the newest run of an experiment under root; fs.ErrNotExist when there is none.
func Latest(root, experiment string) (string, error) {
	runs, err := filepath.Glob(filepath.Join(root, experiment, "*", CommandFile))
	if err != nil {
		return "", err
	}
	if len(runs) == 0 {
		return "", fmt.Errorf("no run of %s under %s: %w", experiment, root, fs.ErrNotExist)
	}
	return filepath.Dir(runs[len(runs)-1]), nil // Glob sorts, and the names begin with the time
}

// Apply gives the spec in the plan's size, with its settings.
func (p Plan) Apply(spec *experiments.Spec) (*experiments.Spec, error) {
	sized, err := spec.WithSize(p.Size)
	if err != nil {
		return nil, err
	}
	for _, set := range p.Set {
		key, value, ok := strings.Cut(set, "=")
		if !ok || key == "" || value == "" {
			return nil, fmt.Errorf("--set %s: must be key=value", set)
		}
		if sized, err = sized.With(key, value); err != nil {
			return nil, fmt.Errorf("--set %w", err)
		}
	}
	return sized, nil
}

// Alone is the command that makes this run again without the others that its
// own command made, where it was "tidemark reproduce". A file of the user's is named without its directory.
func (p Plan) Alone() string {
	args := []string{"tidemark", "run", p.Experiment}
	for word := range strings.FieldsSeq(p.Command) {
		if base := filepath.Base(word); base == p.Experiment+".toml" {
			args[2] = base
		}
	}
	if p.Size != experiments.SizeDefault {
		args = append(args, "--"+string(p.Size))
	}
	for _, set := range p.Set {
		args = append(args, "--set", set)
	}
	return words.Command(args...)
}

// text is the plan as a person reads it and parsePlan too: the command, then key: value lines.
func (p Plan) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nexperiment: %s\nsize: %s\n", p.Command, p.Experiment, p.Size)
	for _, set := range p.Set {
		fmt.Fprintf(&b, "set: %s\n", set)
	}
	return b.String()
}

func parsePlan(text string) (Plan, error) {
	var p Plan
	p.Command, text, _ = strings.Cut(text, "\n")
	for line := range strings.SplitSeq(text, "\n") {
		key, value, ok := strings.Cut(line, ": ")
		switch {
		case strings.TrimSpace(line) == "":
		case ok && key == "experiment":
			p.Experiment = value
		case ok && key == "size":
			p.Size = experiments.Size(value)
		case ok && key == "set":
			p.Set = append(p.Set, value)
		default:
			return p, fmt.Errorf("line %q is not understood", line)
		}
	}
	if p.Experiment == "" || p.Size == "" {
		return p, errors.New("experiment or size is missing")
	}
	return p, nil
}

// WriteJSON writes v for people and programs.
func WriteJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(name, append(text, '\n'))
}

// WriteFile puts a file in the place of one that may be there, whole or not at all: a disk that
// fills meanwhile leaves what there was.
func WriteFile(name string, text []byte) error {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	mode := os.FileMode(0o644)
	if info, err := os.Stat(name); err == nil {
		mode = info.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
