package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/tidemark-log/tidemark/harness/timeline"
)

// Sample is one repeat of one cell: a line of samples.jsonl.
type Sample struct {
	Repeat      int                `json:"repeat"` // from 0
	Cell        string             `json:"cell"`
	Started     time.Time          `json:"started"`
	Seconds     float64            `json:"seconds"` // that the cell took, set-up included
	Metrics     map[string]float64 `json:"metrics,omitempty"`
	Limits      map[string]float64 `json:"limits,omitempty"` // the machine's own, by the metric they bound
	Checks      map[string]string  `json:"checks,omitempty"` // by name; empty: it held
	Warnings    []string           `json:"warnings,omitempty"`
	Throttled   bool               `json:"throttled,omitempty"`
	Timeline    *timeline.Timeline `json:"timeline,omitempty"`
	Error       string             `json:"error,omitempty"`        // the cell gave no numbers
	NotPossible string             `json:"not_possible,omitempty"` // nor can it on this machine
}

// OK reports whether the sample has numbers.
func (s *Sample) OK() bool { return s.Error == "" && s.NotPossible == "" }

// Clean removes numbers that are none (JSON has no words for them) and says so in a warning.
func (s *Sample) Clean() {
	for _, m := range []map[string]float64{s.Metrics, s.Limits} {
		for name, v := range m {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				delete(m, name)
				s.Warnings = append(s.Warnings, fmt.Sprintf("%s was %v", name, v))
			}
		}
	}
}

// ReadSamples reads a samples file. A last line that is torn (a run was stopped
// while it wrote it) does not count: intact is the length of what does. A
// damaged line anywhere else is an error.
func ReadSamples(name string) (samples []Sample, intact int64, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, 0, err
	}
	for number := 1; len(text) > 0; number++ {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		var s Sample
		if err := json.Unmarshal(line, &s); err != nil || !whole {
			if len(rest) > 0 {
				return nil, 0, fmt.Errorf("%s:%d: %w", name, number, err)
			}
			return samples, intact, nil
		}
		samples = append(samples, s)
		intact += int64(len(line)) + 1
		text = rest
	}
	return samples, intact, nil
}

// SampleWriter appends samples to a file, each as one whole line.
type SampleWriter struct{ file *os.File }

// AppendSamples opens a samples file to go on with it: it cuts a torn last line
// and gives what is there.
func AppendSamples(name string) (*SampleWriter, []Sample, error) {
	samples, intact, err := ReadSamples(name)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, err
	}
	if err := f.Truncate(intact); err != nil {
		f.Close()
		return nil, nil, err
	}
	if _, err := f.Seek(intact, 0); err != nil {
		f.Close()
		return nil, nil, err
	}
	return &SampleWriter{f}, samples, nil
}

// Append writes one sample.
func (w *SampleWriter) Append(s Sample) error {
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = w.file.Write(append(line, '\n'))
	return err
}

// Close closes the file.
func (w *SampleWriter) Close() error { return w.file.Close() }
