package plots

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-log/tidemark/harness/stat"
)

func est(v, spread float64) Point {
	return Point{Estimate: stat.Estimate{Value: v, Lo: v / spread, Hi: v * spread, N: 8}}
}

func few(values ...float64) Point {
	return Point{Estimate: stat.Estimate{Value: values[0], Lo: math.NaN(), Hi: math.NaN(), N: len(values)}, Samples: values}
}

var bytesPerS = Unit{Symbol: "B/s"}

const source = "Median of 8 repeats with 95 % intervals · batch-size · commit 0123456789ab · 2 × Some CPU @ 2.60GHz, 23 GiB, ext4 on vda (no seeks), Linux 6.1.0"

func examples() map[string]*Figure {
	sizes := []Category{{"1", 1}, {"10", 10}, {"100", 100}, {"1 k", 1000}, {"10 k", 10000}}
	return map[string]*Figure{
		"lines-log": {
			Title: "How much does batching buy?", Subtitle: "Producing 100 B records to one partition, acks=1, two requests in flight", Source: source,
			Kind: Lines, X: Axis{Label: "records per batch", Log: true}, Y: Axis{Label: "Throughput", Unit: bytesPerS, Log: true}, Categories: sizes,
			Series: []Series{
				{"raw driver", []Point{est(4.1e6, 1.1), est(3.9e7, 1.05), est(2.9e8, 1.2), est(8.2e8, 1.05), est(9.3e8, 1.1)}},
				{"franz-go client", []Point{est(2.1e6, 1.1), est(1.6e7, 1.05), est(9e7, 1.2), est(1.8e8, 1.05), est(1.9e8, 1.02)}},
			},
			Limit: &Limit{"bare receive→pwrite loop", [][]float64{{5e6, 5.1e6}, {5e7, 5e7}, {3.9e8, 4e8}, {1e9, 1.1e9}, {1.06e9, 1.05e9}}},
		},
		"bars": {
			Title: "How much faster is sendfile?", Subtitle: "Warm consume over loopback, two fetches in flight", Source: source,
			Kind: Bars, X: Axis{Label: "bytes per fetch"}, Y: Axis{Label: "Throughput", Unit: bytesPerS}, Categories: []Category{{"64 KiB", 0}, {"1 MiB", 0}},
			Series: []Series{
				{"sendfile", []Point{est(2.1e9, 1.1), est(4.1e9, 1.06)}},
				{"copy (pread + write)", []Point{est(1.6e9, 1.1), est(2.4e9, 1.06)}},
				{"mmap", []Point{est(1.7e9, 1.1), {Estimate: stat.Estimate{Value: math.NaN(), Lo: math.NaN(), Hi: math.NaN()}, Missing: "n/a"}}},
			},
			Limit: &Limit{"bare sendfile loop", [][]float64{{2.5e9, 2.5e9, 2.6e9}, {4.4e9, 4.4e9, 4.3e9}}},
		},
		"bars-few": {
			Title: "What is gone after kill -9?", Subtitle: "Records sent but not found after the broker came back", Source: source,
			Kind: Bars, X: Axis{Label: "records per batch"}, Y: Axis{Label: "Lost records", Unit: Unit{Symbol: "records", Prefix: None}}, Categories: []Category{{"10", 0}, {"1000", 0}},
			Series: []Series{{"acks=0: do not wait", []Point{few(140, 120, 190), few(5200, 3100, 8000)}}, {"acks=1: wait", []Point{few(0, 0, 0), few(0, 0, 0)}}},
		},
		"points-log": {
			Title: "What does the consumer pay when only flushed records are visible?", Subtitle: "Median time from intended send to delivery at 2000 records/s", Source: source,
			Kind: Bars, X: Axis{Label: "flush policy"}, Y: Axis{Label: "Time from send to delivery, median", Unit: Unit{Symbol: "s"}, Log: true},
			Categories: []Category{{"none", 0}, {"every 100 ms", 0}, {"every append", 0}, {"group commit", 0}},
			Series: []Series{
				{"visible when committed", []Point{est(2.1e-4, 1.2), est(2.3e-4, 1.3), est(1.2e-3, 1.1), est(1.0e-3, 1.1)}},
				{"visible when flushed (2011)", []Point{{Estimate: stat.Estimate{Value: math.NaN(), Lo: math.NaN(), Hi: math.NaN()}, Missing: "n/a"}, est(5.1e-2, 1.05), est(1.3e-3, 1.1), est(1.1e-3, 1.1)}},
			},
		},
		"lines-crowded": {
			Title: "Which store slows down as it grows?", Subtitle: "Append rate over the last tenth of the data; 1000 B records, 16 a batch, 128 MiB of memory", Source: source,
			Kind: Lines, X: Axis{Label: "data", Log: true}, Y: Axis{Label: "Records appended per second", Unit: Unit{Symbol: "records/s"}, Log: true},
			Categories: []Category{{"4 MiB", 4}, {"32 MiB", 32}, {"256 MiB", 256}},
			Series:     []Series{{"log", []Point{few(1.2e5, 1.3e5), few(1.25e5, 1.1e5), few(1.2e5, 1.2e5)}}, {"B-tree by offset", []Point{few(1.1e5, 1.2e5), few(1.15e5, 1.2e5), few(1.15e5, 1.2e5)}}, {"B-tree by message id", []Point{few(9e3, 8e3), few(5e3, 5e3), few(4e2, 4.5e2)}}},
		},
		"points-limit": {
			Title: "What does the producer pay for a flush?", Subtitle: "100 B records in batches of 10, acks=1, one partition", Source: source,
			Kind: Bars, X: Axis{Label: "flush policy"}, Y: Axis{Label: "Throughput", Unit: bytesPerS, Log: true}, Categories: []Category{{"none", 0}, {"every append", 0}},
			Series: []Series{{"one request in flight", []Point{est(1.0e7, 1.1), est(9e5, 1.2)}}, {"eight in flight", []Point{est(2.7e7, 1.1), est(2.4e6, 1.2)}}},
			Limit:  &Limit{"bare receive→pwrite loop, no flush", [][]float64{{2e7, 3.5e7}, {2.1e7, 3.6e7}}},
		},
		"points-above": {
			Title: "What does the producer pay for a flush?", Subtitle: "100 B records in batches of 10, acks=1, one partition", Source: source,
			Kind: Bars, X: Axis{Label: "flush policy"}, Y: Axis{Label: "Throughput", Unit: bytesPerS, Log: true}, Categories: []Category{{"none", 0}, {"every append", 0}},
			Series: []Series{{"one request in flight", []Point{few(1.0e7, 1.1e7), few(9e5, 8e5)}}, {"eight in flight", []Point{few(3.67e7, 1.2e7, 6.1e7), few(2.4e6, 2.5e6)}}},
			Limit:  &Limit{"bare receive→pwrite loop, no flush", [][]float64{{2e7, 3.3e7}, {2.1e7, 3.6e7}}},
		},
		"bars-unnamed": {
			Title: "What does the producer pay for a flush?", Subtitle: "One series has no legend", Source: source,
			Kind: Bars, X: Axis{Label: "flush policy"}, Y: Axis{Label: "Records per second", Unit: Unit{Symbol: "records/s"}}, Categories: []Category{{"none", 0}, {"100 ms", 0}, {"every append", 0}},
			Series: []Series{{"", []Point{est(1.2e6, 1.1), est(1.1e6, 1.1), est(9e3, 1.2)}}},
		},
	}
}

// With TIDEMARK_PLOTS=dir the figures are kept there, to be looked at.
func TestFiguresAreWellFormedAndHoldNoNaN(t *testing.T) {
	for name, f := range examples() {
		svg, err := f.SVG()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		pngBytes, err := f.PNG()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkSVG(t, name, svg)
		if img, err := png.Decode(bytes.NewReader(pngBytes)); err != nil || img.Bounds().Dx() != 1536 {
			t.Errorf("%s: PNG of 2 × 8 inches at 96 dpi expected: %v", name, err)
		}
		for _, words := range []string{f.X.Label, f.Series[0].Name, f.Y.Label} {
			if !strings.Contains(string(svg), words) {
				t.Errorf("%s: %q is not in the figure", name, words)
			}
		}
		if dir := os.Getenv("TIDEMARK_PLOTS"); dir != "" {
			for ext, data := range map[string][]byte{".svg": svg, ".png": pngBytes} {
				if err := os.WriteFile(filepath.Join(dir, name+ext), data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func checkSVG(t *testing.T, name string, svg []byte) {
	t.Helper()
	if strings.Contains(string(svg), "NaN") || strings.Contains(string(svg), "Inf") {
		t.Errorf("%s: a number that is none reached the figure", name)
	}
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Errorf("%s: not XML: %v", name, err)
			return
		}
	}
}

func TestTicksAreRoundInTheUnitThatLabelsThem(t *testing.T) {
	mib := float64(1 << 20)
	f := &Figure{Kind: Bars, Y: Axis{Unit: Unit{Symbol: "B", Prefix: IEC}}, Categories: []Category{{"warm", 0}},
		Series: []Series{{"page", []Point{few(26 * mib)}}, {"process", []Point{few(191 * mib)}}}}
	var labels []string
	low, high := f.yRange()
	for _, tick := range f.yTicks(low, high) {
		labels = append(labels, tick.Label)
	}
	if got := strings.Join(labels, " "); got != "0 50 100 150 200 250" {
		t.Errorf("ticks at %s MiB", got)
	}
}

// Also a bar that is too low to hold any text says its share, in the same place as the others.
func TestEveryBarHasItsShareAsFarAboveItsValue(t *testing.T) {
	f := &Figure{Kind: Bars, Title: "t", Categories: []Category{{"a", 0}}, Limit: &Limit{"loop", [][]float64{{512, 500, 490, 221}}},
		Series: []Series{{"high", []Point{few(410)}}, {"low", []Point{few(5)}}, {"limit close above", []Point{few(480)}}, {"a spread over it", []Point{few(210, 40, 300)}}}}
	svg, err := f.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for value, share := range map[string]string{"410": "80.%", "5": "1.%", "480": "98.%", "210": "95.%"} {
		_, low := textAt(t, svg, value)
		if _, high := textAt(t, svg, share); math.Abs(low-high-10.5) > 0.2 {
			t.Errorf("%s stands %.1f points above %s", share, low-high, value)
		}
	}
	if !strings.Contains(string(svg), "bold, the share of it reached") {
		t.Error("the legend does not say what is bold")
	}
}

// Above the limit's dashes a value would be read as the limit's own.
func TestAValueStandsOnItsOwnSideOfTheLimit(t *testing.T) {
	dashes := regexp.MustCompile(`<path d="M[0-9.]+,([0-9.]+)L[0-9.]+,[0-9.]+" style="[^"]*stroke-dasharray`)
	for _, c := range []struct {
		value, limit float64
		logarithmic  bool
		words        string
	}{
		{48, 50, false, "48"},
		{48, 56, false, "48"},
		{6, 7, false, "6, 86.%"}, // no room for two lines
		{48, 60, true, "48"},
		{40, 75, true, "40"},
	} {
		f := &Figure{Kind: Bars, Title: "t", Y: Axis{Label: "y", Log: c.logarithmic}, Categories: []Category{{"a", 0}}, Limit: &Limit{"loop", [][]float64{{c.limit, 60}}},
			Series: []Series{{"close below", []Point{few(c.value)}}, {"far below", []Point{few(1)}}}}
		svg, err := f.SVG()
		if err != nil {
			t.Fatal(err)
		}
		_, down := textAt(t, svg, c.words)
		limits := dashes.FindAllSubmatch(svg, -1) // of the legend, and of the two bars
		if len(limits) != 3 {
			t.Fatalf("%d dashed lines", len(limits))
		}
		if up, err := strconv.ParseFloat(string(limits[1][1]), 64); err != nil || -down > up {
			t.Errorf("logarithmic %t, limit %g: the value stands %.1f points high, the limit %.1f (%v)", c.logarithmic, c.limit, -down, up, err)
		}
	}
}

// Where an interval reaches down to zero, which a logarithmic axis has no place for, it covers all that is below the point.
func TestNoWordsStandOnAnInterval(t *testing.T) {
	to := func(low float64) *Figure {
		return &Figure{Kind: Bars, Title: "t", Y: Axis{Label: "y", Log: true}, Categories: []Category{{"a", 0}}, Limit: &Limit{"loop", [][]float64{{75, 60}}},
			Series: []Series{{"s", []Point{{Estimate: stat.Estimate{Value: 40, Lo: low, Hi: 41, N: 10}}}}, {"far below", []Point{few(1)}}}}
	}
	height := map[float64]float64{}
	for _, low := range []float64{39, 0} {
		svg, err := to(low).SVG()
		if err != nil {
			t.Fatal(err)
		}
		_, height[low] = textAt(t, svg, "40")
	}
	if height[0] >= height[39] { // heights grow downwards
		t.Errorf("40 stands at %.1f on its interval, and at %.1f below one that is short", height[0], height[39])
	}
}

// A single category lies at the axis' middle, and the axis' title is centred below it.
func TestTheTitleOfTheXAxisIsCentred(t *testing.T) {
	f := &Figure{Kind: Bars, Title: "t", X: Axis{Label: "a rather long title of an axis"}, Categories: []Category{{"only", 0}}, Series: []Series{{"s", []Point{few(5)}}}}
	svg, err := f.SVG()
	if err != nil {
		t.Fatal(err)
	}
	middle := func(words string) float64 {
		x, _ := textAt(t, svg, words)
		return x + style(10, ink, false).Width(words).Points()/2
	}
	if off := middle(f.X.Label) - middle("only"); math.Abs(off) > 0.1 {
		t.Errorf("the title is %.1f points off the axis' middle", off)
	}
}

// textAt is where the text that matches words begins in a figure.
func textAt(t *testing.T, svg []byte, words string) (x, y float64) {
	t.Helper()
	m := regexp.MustCompile(`<text x="([^"]*)" y="([^"]*)"[^>]*>` + words + `</text>`).FindSubmatch(bytes.ReplaceAll(svg, []byte("\n"), []byte(" ")))
	if m == nil {
		t.Fatalf("%s is not in the figure", words)
	}
	x, errX := strconv.ParseFloat(string(m[1]), 64)
	y, errY := strconv.ParseFloat(string(m[2]), 64)
	if err := errors.Join(errX, errY); err != nil {
		t.Fatal(err)
	}
	return x, y
}

func TestTheSameFigureGivesTheSameBytes(t *testing.T) {
	f := examples()["bars"]
	a, _ := f.SVG()
	b, _ := f.SVG()
	if !bytes.Equal(a, b) {
		t.Error("two drawings differ")
	}
}

func TestAFigureWithoutValuesIsRefused(t *testing.T) {
	nothing := Point{Estimate: stat.Estimate{Value: math.NaN(), Lo: math.NaN(), Hi: math.NaN()}}
	zero := Point{Estimate: stat.Estimate{Value: 0, Lo: math.NaN(), Hi: math.NaN(), N: 1}}
	for name, f := range map[string]*Figure{
		"no series": {Categories: []Category{{"a", 1}}},
		"all NaN":   {Categories: []Category{{"a", 1}}, Series: []Series{{"s", []Point{nothing}}}},
		"log zero":  {Y: Axis{Log: true}, Categories: []Category{{"a", 1}}, Series: []Series{{"s", []Point{zero}}}},
		"too many":  {Categories: []Category{{"a", 1}}, Series: make([]Series, MaxSeries+1)},
		"ragged":    {Categories: []Category{{"a", 1}, {"b", 2}}, Series: []Series{{"s", []Point{zero}}}},
	} {
		if _, err := f.SVG(); err == nil {
			t.Errorf("%s was drawn", name)
		}
	}
}

func TestUnitsAreWrittenAsPeopleWriteThem(t *testing.T) {
	for _, c := range []struct {
		u    Unit
		v    float64
		want string
	}{
		{Unit{Symbol: "B/s"}, 1234567890, "1.23 GB/s"},
		{Unit{Symbol: "B/s"}, 999.9e6, "1 GB/s"},
		{Unit{Symbol: "B/s"}, 0, "0 B/s"},
		{Unit{Symbol: "s"}, 4.5e-5, "45 µs"},
		{Unit{Symbol: "s"}, 2, "2 s"},
		{Unit{Symbol: "s"}, 5e-10, "0.5 ns"},
		{Unit{Symbol: "B", Prefix: IEC}, 65536, "64 KiB"},
		{Unit{Symbol: "records/s"}, 1.2e6, "1.2 M records/s"},
		{Unit{Symbol: "records/s"}, 12, "12 records/s"},
		{Unit{Prefix: None}, 1234567, "1 234 567"},
		{Unit{Symbol: "×", Prefix: None}, 1.234, "1.23×"},
		{Unit{}, 0.01234, "0.0123"},
		{Unit{Symbol: "B/s"}, math.NaN(), "–"},
	} {
		got := strings.NewReplacer("\u00a0", " ", "\u2009", " ").Replace(c.u.Format(c.v))
		if got != c.want {
			t.Errorf("%g %q: %s, want %s", c.v, c.u.Symbol, got, c.want)
		}
	}
}

func TestATimelineIsWellFormedAndRefusesWhatItCannotDraw(t *testing.T) {
	strip := Panel{Name: "<acks=all>", Step: 0.1, Values: []float64{5, 0, 0, 70, 5, 5, 5}, Marks: []Mark{{At: 0.1, Name: "killed"}, {At: 0.6, Name: "started again"}}, Notes: []string{"lost: 0"}}
	f := &Timeline{Title: "t", Subtitle: "s", Source: "o", Y: Axis{Label: "Records"}, Panels: []Panel{strip, strip, strip}}
	a, err := f.SVG()
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(a, new(struct{})); err != nil {
		t.Errorf("not XML: %v", err)
	}
	if b, _ := f.SVG(); !bytes.Equal(a, b) {
		t.Error("the same timeline gave other bytes")
	}
	for _, words := range []string{"killed", "started again", "lost: 0", "↑ 70", "&lt;acks=all&gt;"} {
		if !bytes.Contains(a, []byte(words)) {
			t.Errorf("%q is not in the figure", words)
		}
	}
	if png, err := f.PNG(); err != nil || len(png) < 1000 {
		t.Errorf("PNG of %d bytes, %v", len(png), err)
	}
	for name, panels := range map[string][]Panel{"none": nil, "no values": {{Step: 1}}, "no step": {{Values: []float64{1}}}, "no number": {{Step: 1, Values: []float64{math.NaN()}}}} {
		if _, err := (&Timeline{Panels: panels}).SVG(); err == nil {
			t.Errorf("%s: was drawn", name)
		}
	}
}

// Who divides the marks that are drawn finds the share that is written beside them.
func TestTheShareIsWhatTheMarksSay(t *testing.T) {
	figure := func(kind Kind, limits ...float64) *Figure {
		f := &Figure{Kind: kind, Title: "t", Categories: []Category{{"a", 1}, {"b", 2}}, Limit: &Limit{Name: "loop"},
			Series: []Series{{"s", []Point{few(30, 10, 50), few(30, 20, 40)}}}}
		for _, l := range limits {
			f.Limit.Values = append(f.Limit.Values, []float64{l})
		}
		return f
	}
	for _, c := range []struct {
		name   string
		f      *Figure
		labels []string
		above  bool
	}{
		{"bars", figure(Bars, 40, 60), []string{"75\u00a0%", "50\u00a0%"}, false},
		{"bars above", figure(Bars, 20, 60), []string{"150\u00a0%", "50\u00a0%"}, true},
		{"as good as reached", figure(Bars, 29.9, 60), []string{"100\u00a0%"}, false},
		{"lines", figure(Lines, 40, 60), []string{"up to 75\u00a0% of the limit"}, false},
		{"lines above", figure(Lines, 20, 60), []string{"up to 150\u00a0% of the limit"}, true},
		{"no limit here", figure(Bars, math.NaN(), 60), []string{"50\u00a0%"}, false},
	} {
		b, err := c.f.SVG()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		svg := string(b)
		for _, label := range c.labels {
			if !strings.Contains(svg, label+"</text>") {
				t.Errorf("%s: no label %q", c.name, label)
			}
		}
		if got := strings.Contains(svg, "Above 100"); got != c.above {
			t.Errorf("%s: that a limit may be passed is said: %t", c.name, got)
		}
	}
}

// Zero was measured: on a logarithmic axis it has no place, but it is not missing. An interval that
// reaches down to it goes on to the axis.
func TestZeroOnALogarithmicAxisIsSaid(t *testing.T) {
	for _, kind := range []Kind{Bars, Lines} {
		f := &Figure{Kind: kind, Y: Axis{Label: "lost", Log: true}, Categories: []Category{{"one", 1}, {"two", 2}}, Series: []Series{{Name: "s", Points: []Point{est(100, 1.1), few(0)}}}}
		svg, err := f.SVG()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(svg, []byte(">0</text>")) {
			t.Errorf("kind %d: a zero is not in the figure", kind)
		}
	}
	reaching := func(lo float64) []byte {
		p := est(100, 1.1)
		if p.Lo = lo; lo < 0 { // too few for an interval, and one of them is nothing
			p = few(100, 0)
		}
		f := &Figure{Kind: Bars, Y: Axis{Log: true}, Categories: []Category{{"one", 1}}, Series: []Series{{Points: []Point{p}}}}
		svg, err := f.SVG()
		if err != nil {
			t.Fatal(err)
		}
		return svg
	}
	reaching(-1)
	if bytes.Equal(reaching(0), reaching(100)) {
		t.Error("an interval down to zero is drawn as one that ends at the value")
	}
}
