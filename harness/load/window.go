package load

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// NewHistogram is the histogram all latencies go to: microseconds, up to 100 s, three digits.
func NewHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, 100_000_000, 3) }

// Window says which part of a run is measured. It opens when Warmup or
// WarmupBytes is over (whichever is first) and closes after Measure or
// MeasureBytes (whichever is first); zero bytes mean no bound. All connections
// of a run share one Window. Without any warmup it is open from the start, and
// then holds every request of the run; otherwise it opens between two.
type Window struct {
	Warmup, Measure           time.Duration
	WarmupBytes, MeasureBytes int64
	// Ready, when set, is asked after that: the warmup goes on until it says true.
	Ready func(now time.Time, bytes int64) bool
	// OnOpen and OnClose are called once each, right before the window opens and right
	// after it closes: samplers take their snapshots there. Sending stands still meanwhile.
	OnOpen, OnClose func()
	// OnTick, when set, is told about every quarter second how much has been done since the start.
	OnTick func(Tick)

	mu       sync.Mutex
	start    time.Time // of the run
	open     time.Time // zero before
	closed   time.Time // zero before
	lastTick time.Time
	total    Tick
	measured Tick
}

// Enter makes the measured part begin when part says so, and tells it where that opens and closes.
func (w *Window) Enter(part MeasuredPart) {
	w.Warmup, w.WarmupBytes, w.Ready = 0, 0, part.Begun
	w.OnOpen, w.OnClose = then(w.OnOpen, part.Open), then(part.Close, w.OnClose)
}

// MeasuredPart is for who knows better than a time or a size when what is done counts.
type MeasuredPart interface {
	Begun(now time.Time, bytes int64) bool
	Open()
	Close()
}

func then(first, second func()) func() {
	return func() {
		if first != nil {
			first()
		}
		if second != nil {
			second()
		}
	}
}

// Tick is what has been done so far.
type Tick struct {
	Elapsed         time.Duration
	Bytes, Records  int64
	Requests, Phase int64 // Phase: 0 warmup, 1 measured, 2 over
}

// Start begins the warmup. Later calls do nothing.
func (w *Window) Start(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.start.IsZero() {
		return
	}
	w.start, w.lastTick = now, now
	if w.Warmup == 0 && w.WarmupBytes == 0 && w.Ready == nil {
		w.begin()
	}
}

func (w *Window) begin() {
	if w.OnOpen != nil {
		w.OnOpen()
	}
	w.open = time.Now()
}

// Done counts one finished request and says whether it falls into the window,
// and whether the run is over.
func (w *Window) Done(now time.Time, bytes, records int64) (inside, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed.IsZero() {
		return false, true
	}
	w.total.Bytes += bytes
	w.total.Records += records
	w.total.Requests++
	if w.OnTick != nil && now.Sub(w.lastTick) > 250*time.Millisecond {
		w.lastTick = now
		t := w.total
		t.Elapsed = now.Sub(w.start)
		if !w.open.IsZero() {
			t.Phase = 1
		}
		w.OnTick(t)
	}
	if w.open.IsZero() {
		if now.Sub(w.start) < w.Warmup && (w.WarmupBytes == 0 || w.total.Bytes < w.WarmupBytes) {
			return false, false
		}
		if w.Ready != nil && !w.Ready(now, w.total.Bytes) {
			return false, false
		}
		w.begin()
		return false, false
	}
	if now.Before(w.open) { // another connection's, which waited here while the samplers looked
		return false, false
	}
	w.measured.Bytes += bytes
	w.measured.Records += records
	w.measured.Requests++
	if now.Sub(w.open) >= w.Measure || w.MeasureBytes > 0 && w.measured.Bytes >= w.MeasureBytes {
		w.close(now)
	}
	return true, !w.closed.IsZero()
}

func (w *Window) close(now time.Time) {
	w.closed = now
	if w.OnClose != nil {
		w.OnClose()
	}
}

// Stop closes a window that is still open, when the work has run out.
func (w *Window) Stop(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.open.IsZero() && w.closed.IsZero() {
		w.close(now)
	}
}

// Opened says whether the window has opened yet, and when.
func (w *Window) Opened() (when time.Time, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open, !w.open.IsZero()
}

// Closed says whether the window has closed, and when.
func (w *Window) Closed() (when time.Time, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed, !w.closed.IsZero()
}

// Measured is what fell into the window and how long that was; zero when it never opened.
func (w *Window) Measured() Tick {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.measured
	if !w.open.IsZero() && !w.closed.IsZero() {
		m.Elapsed = w.closed.Sub(w.open)
	}
	return m
}
