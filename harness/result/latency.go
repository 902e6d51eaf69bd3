package result

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// AppendLatency adds one repeat's histograms to its cell's HdrHistogram log. Each
// line is tagged what-was-timed.rN; a repeat that was run again comes later in the file and counts.
func AppendLatency(dir string, s Sample, latency map[string]*hdrhistogram.Histogram) error {
	if len(latency) == 0 {
		return nil
	}
	var b bytes.Buffer
	w := hdrhistogram.NewHistogramLogWriter(&b)
	name := filepath.Join(dir, LatencyDir, FileName(s.Cell)+".hlog")
	if _, err := os.Stat(name); err != nil {
		err := errors.Join(w.OutputLogFormatVersion(), w.OutputComment("microseconds; tags: what was timed, repeat"), w.OutputLegend())
		if err != nil {
			return err
		}
	}
	started := s.Started.UnixMilli()
	for _, what := range slices.Sorted(maps.Keys(latency)) {
		h := latency[what]
		if h == nil || h.TotalCount() == 0 {
			continue
		}
		h.SetTag(fmt.Sprintf("%s.r%d", what, s.Repeat))
		h.SetStartTimeMs(started)
		h.SetEndTimeMs(started + int64(s.Seconds*1000))
		if err := w.OutputIntervalHistogram(h); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	return errors.Join(err, f.Close())
}

// ReadLatency gives the histograms of a cell by tag; none is no error.
func ReadLatency(dir, cell string) (map[string]*hdrhistogram.Histogram, error) {
	f, err := os.Open(filepath.Join(dir, LatencyDir, FileName(cell)+".hlog"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]*hdrhistogram.Histogram{}
	r := hdrhistogram.NewHistogramLogReader(f)
	for {
		h, err := r.NextIntervalHistogram()
		if err != nil && !errors.Is(err, io.EOF) {
			return all, err
		}
		if h == nil {
			return all, nil
		}
		all[h.Tag()] = h
	}
}

// FileName is a cell's name as part of a file name.
func FileName(cell string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '/':
			return ','
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune(".=-_", r):
			return r
		}
		return '_'
	}, cell)
}
